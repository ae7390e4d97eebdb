/* arena.c - a block that grows between calls, never during one: what does not fit is allocated
 * apart and the block has the whole size the next time. */
#include "client/call/arena.h"

#include <stdlib.h>

#define ALIGNMENT 64u

struct arena_block {
    struct arena_block *next;
    void *memory;
};

static void *take_apart(struct arena *arena, size_t bytes)
{
    struct arena_block *block = malloc(sizeof *block);
    if (block == NULL)
        return NULL;
    block->memory = aligned_alloc(ALIGNMENT, bytes);
    if (block->memory == NULL) {
        free(block);
        return NULL;
    }
    block->next = arena->spill;
    arena->spill = block;
    arena->spilled += bytes;
    return block->memory;
}

void *embd__arena_take(struct arena *arena, uint64_t bytes)
{
    if (bytes > SIZE_MAX / 4)
        return NULL;
    size_t size = bytes == 0 ? ALIGNMENT : ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size > arena->capacity - arena->used)
        return take_apart(arena, size);
    void *p = arena->base + arena->used;
    arena->used += size;
    return p;
}

void *embd__arena_array(struct arena *arena, uint64_t n, uint64_t unit)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(n, unit, &bytes))
        return NULL;
    return embd__arena_take(arena, bytes);
}

static void free_spill(struct arena *arena)
{
    while (arena->spill != NULL) {
        struct arena_block *block = arena->spill;
        arena->spill = block->next;
        free(block->memory);
        free(block);
    }
    arena->spilled = 0;
}

void embd__arena_reset(struct arena *arena)
{
    size_t wanted = arena->used + arena->spilled;
    arena->used = 0;
    if (arena->spill == NULL)
        return;
    free_spill(arena);
    free(arena->base);
    wanted = (wanted + wanted / 4 + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    arena->base = aligned_alloc(ALIGNMENT, wanted);
    arena->capacity = arena->base == NULL ? 0 : wanted;
}

void embd__arena_fini(struct arena *arena)
{
    free_spill(arena);
    free(arena->base);
    *arena = (struct arena){0};
}
