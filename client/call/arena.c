/* arena.c - a block that grows between calls, never during one: what does not fit is allocated
 * apart and the block has the whole size the next time. */
#include "client/call/arena.h"

#include <stdlib.h>

#include "client/io/pages.h"

struct arena_block {
    struct arena_block *next;
    void *memory;
};

void *embd__arena_spill(struct arena *arena, size_t size)
{
    struct arena_block *block = malloc(sizeof *block);
    if (block == NULL)
        return NULL;
    block->memory = aligned_alloc(ARENA_ALIGNMENT, size);
    if (block->memory == NULL) {
        free(block);
        return NULL;
    }
    block->next = arena->spill;
    arena->spill = block;
    arena->spilled += size;
    return block->memory;
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

void embd__arena_grow(struct arena *arena)
{
    size_t wanted = arena->used + arena->spilled;
    free_spill(arena);
    free(arena->base);
    wanted = (wanted + wanted / 4 + ARENA_ALIGNMENT) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    arena->base = embd__pages_new(wanted);
    arena->capacity = arena->base == NULL ? 0 : wanted;
}

void embd__arena_fini(struct arena *arena)
{
    free_spill(arena);
    free(arena->base);
    *arena = (struct arena){0};
}
