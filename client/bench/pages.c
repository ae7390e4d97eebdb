/* pages.c - memory in huge pages: what is measured is not the walk through page tables. */
#include "client/bench/pages.h"

#include <string.h>
#include <sys/mman.h>

void *pages_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

void pages_free(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}
