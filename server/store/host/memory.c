#include "server/store/host/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Maps more than needed and unmaps the unaligned ends. */
static void *map_aligned(size_t bytes, int protection)
{
    size_t mapped = bytes + MEMORY_HUGE_PAGE;
    if (mapped < bytes)
        return NULL;
    char *base = mmap(NULL, mapped, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)base & (MEMORY_HUGE_PAGE - 1);
    size_t page = 4096, used = (bytes + page - 1) & ~(page - 1);
    if (before)
        munmap(base, before);
    if (mapped - before > used)
        munmap(base + before + used, mapped - before - used);
    madvise(base + before, used, MADV_HUGEPAGE);
    return base + before;
}

static bool is_mapped(size_t bytes)
{
    return bytes >= MEMORY_HUGE_PAGE;
}

void *memory_buffer_new(size_t bytes)
{
    if (is_mapped(bytes))
        return map_aligned(bytes, PROT_READ | PROT_WRITE);
    return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

void *memory_new(size_t bytes)
{
    void *memory = memory_buffer_new(bytes);
    if (memory != NULL && !is_mapped(bytes))
        memset(memory, 0, bytes);
    return memory;
}

void memory_free(void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    if (is_mapped(bytes))
        munmap(memory, bytes);
    else
        free(memory);
}

void *memory_reserve(size_t bytes)
{
    return map_aligned(bytes, PROT_NONE);
}

bool memory_commit(void *memory, size_t bytes)
{
    return mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0;
}
