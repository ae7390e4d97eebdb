/* arena.h - memory of one call, taken piece by piece and given back all at once. After a few calls
 * of one size everything lies in one block and nothing is allocated any more. */
#ifndef EMBD_CALL_ARENA_H
#define EMBD_CALL_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena_block;

/* Zero is an empty arena. Owner: one thread at a time. */
struct arena {
    uint8_t *base;
    size_t capacity, used;     /* of base */
    struct arena_block *spill; /* what did not fit into base */
    size_t spilled;
};

#define ARENA_ALIGNMENT 64u

/* Memory that does not fit into base. */
void *embd__arena_spill(struct arena *arena, size_t size);

/* `bytes` of memory, aligned to 64, until embd__arena_reset; NULL: out of memory. Zero bytes are
 * allowed. */
static inline void *embd__arena_take(struct arena *arena, uint64_t bytes)
{
    if (bytes > SIZE_MAX / 4)
        return NULL;
    size_t size = bytes == 0
                      ? ARENA_ALIGNMENT
                      : ((size_t)bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (size > arena->capacity - arena->used)
        return embd__arena_spill(arena, size);
    void *p = arena->base + arena->used;
    arena->used += size;
    return p;
}

/* As above for n items of `unit` bytes; NULL also if the product would overflow. */
static inline void *embd__arena_array(struct arena *arena, uint64_t n, uint64_t unit)
{
    uint64_t bytes;
    return __builtin_mul_overflow(n, unit, &bytes) ? NULL : embd__arena_take(arena, bytes);
}

/* Grows base to what the last round took. */
void embd__arena_grow(struct arena *arena);

/* Gives everything back. */
static inline void embd__arena_reset(struct arena *arena)
{
    if (arena->spill != NULL)
        embd__arena_grow(arena);
    arena->used = 0;
}

void embd__arena_fini(struct arena *arena);

#endif
