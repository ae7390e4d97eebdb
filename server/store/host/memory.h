/* memory.h - where the host store's memory comes from: the heap for what is small, huge pages of
 * its own for what is large and touched at random, where the translation of addresses would cost
 * more than the data. */
#ifndef EMBD_HOST_MEMORY_H
#define EMBD_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#define MEMORY_HUGE_PAGE ((size_t)2 << 20)

/* Zeroed, aligned to 64, from MEMORY_HUGE_PAGE on to that. NULL: out of memory. bytes > 0. */
void *memory_new(size_t bytes);
void memory_free(void *memory, size_t bytes); /* NULL is allowed; bytes as given to memory_new */

/* Addresses without memory behind them, aligned to MEMORY_HUGE_PAGE; memory_commit gives them
 * zeroed memory from `memory` on, in whole pages. memory_free frees both. */
void *memory_reserve(size_t bytes);
bool memory_commit(void *memory, size_t bytes);

/* For functions that do nothing but prefetch: gcc takes them for functions without effect and drops
 * their calls, unless they are inlined before it looks (found in push.c: 88 cycles a row, not 26).
 */
#define MEMORY_PREFETCH static inline __attribute__((always_inline))

/* For functions that take a constant or a function: each caller gets a loop of its own. */
#define HOST_INLINE static inline __attribute__((always_inline))

/* As memory_new, but small memory is not zeroed: for buffers that are filled at once. */
void *memory_buffer_new(size_t bytes);

#endif
