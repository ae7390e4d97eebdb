/* memory.h - arenas, and pinned memory for frames and answers. */
#ifndef EMBD_CUDA_MEMORY_H
#define EMBD_CUDA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Cuts a block into aligned pieces. With a base of NULL it only counts: callers lay memory out
 * twice, once for its size and once for the pieces. */
struct arena {
    uint8_t *base;
    uint64_t bytes;
};
void *arena_take(struct arena *arena, uint64_t bytes);

/* Pinned memory. Any thread. NULL: out of memory. */
void *buffer_new(size_t bytes);
void buffer_free(void *buffer, size_t bytes);

#endif
