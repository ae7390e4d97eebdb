/* failing_memory.c - see failing_memory.h. */
#include "tests/fault/failing_memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Passings left until one is refused; 0 and below: none is. */
static atomic_llong left;
static atomic_bool is_on;

void memory_fail(uint64_t n)
{
    atomic_store(&left, (long long)n);
    atomic_store(&is_on, true);
}

void memory_pause(void)
{
    atomic_store(&is_on, false);
}

void memory_go_on(void)
{
    atomic_store(&is_on, atomic_load(&left) > 0);
}

bool memory_end(void)
{
    atomic_store(&is_on, false);
    return atomic_exchange(&left, 0) <= 0;
}

static bool is_refused(void)
{
    if (!atomic_load_explicit(&is_on, memory_order_relaxed) || atomic_fetch_sub(&left, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}

/* What the linker calls them. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
char *__real_strdup(const char *text);
void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
char *__wrap_strdup(const char *text);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t n)
{
    return is_refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return is_refused() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t n)
{
    return is_refused() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    return is_refused() ? NULL : __real_aligned_alloc(alignment, n);
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : __real_strdup(text);
}

void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return is_refused() ? MAP_FAILED : __real_mmap(at, n, protection, flags, fd, offset);
}
