/* arena.h - memory of one call, taken piece by piece and given back all at once. After a few calls
 * of one size everything lies in one block and nothing is allocated any more. */
#ifndef EMBD_CLIENT_ARENA_H
#define EMBD_CLIENT_ARENA_H

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

/* `bytes` of memory, aligned to 64, until embd__arena_reset; NULL: out of memory. Zero bytes are
 * allowed. */
void *embd__arena_take(struct arena *arena, uint64_t bytes);
/* As above for n items of `unit` bytes; NULL also where the product would overflow. */
void *embd__arena_array(struct arena *arena, uint64_t n, uint64_t unit);

/* Gives everything back; grows base to what the last round took. */
void embd__arena_reset(struct arena *arena);
void embd__arena_fini(struct arena *arena);

#endif
