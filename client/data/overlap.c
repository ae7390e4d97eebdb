/* overlap.c - finds keys that more than one slot uses.
 *
 * In a table that is not partitioned by slot such keys would share one row, and two features would
 * train each other's values without anybody noticing. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/data/overlap.h"
#include "embd/data.h"

#define FIRST_CELLS 4096u

static uint64_t scatter(uint64_t key)
{
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 29;
}

/* The key's cell, or the free one where it belongs. */
static uint64_t find(const struct overlap *o, uint64_t key)
{
    uint64_t cell = scatter(key) & (o->n_cells - 1);
    while (o->slots[cell] != 0 && o->keys[cell] != key)
        cell = (cell + 1) & (o->n_cells - 1);
    return cell;
}

static int grow(struct overlap *o, struct embd__error *e)
{
    struct overlap more = {.n_cells = o->n_cells == 0 ? FIRST_CELLS : 2 * o->n_cells};
    more.keys = malloc(more.n_cells * sizeof *more.keys);
    more.slots = calloc(more.n_cells, sizeof *more.slots);
    if (more.keys == NULL || more.slots == NULL) {
        embd__overlap_free(&more);
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "no memory to look for overlaps among %" PRIu64 " keys", o->n_used);
    }
    for (uint64_t i = 0; i < o->n_cells; i++)
        if (o->slots[i] != 0) {
            uint64_t cell = find(&more, o->keys[i]);
            more.keys[cell] = o->keys[i];
            more.slots[cell] = o->slots[i];
        }
    more.n_used = o->n_used;
    embd__overlap_free(o);
    *o = more;
    return EMBD_OK;
}

static int add(struct overlap *o, uint64_t key, uint32_t slot, struct embd__error *e)
{
    if (4 * o->n_used >= 3 * o->n_cells && grow(o, e) != EMBD_OK)
        return e->status;
    uint64_t cell = find(o, key);
    if (o->slots[cell] == slot + 1)
        return EMBD_OK;
    if (o->slots[cell] != 0)
        return embd__error_set(e, EMBD_CORRUPT,
                               "key %" PRIu64 " is in slot %u and in slot %" PRIu32, key,
                               o->slots[cell] - 1u, slot);
    o->keys[cell] = key;
    o->slots[cell] = (uint16_t)(slot + 1);
    o->n_used++;
    return EMBD_OK;
}

int embd__overlap_check(struct overlap *o, const embd_batch *batch, uint32_t n_slots,
                        struct embd__error *e)
{
    for (uint64_t r = 0; r < batch->n_rows; r++)
        for (uint64_t i = batch->offsets[r]; i < batch->offsets[r + 1]; i++)
            if (add(o, batch->keys[i], (uint32_t)(r % n_slots), e) != EMBD_OK)
                return e->status;
    return EMBD_OK;
}

void embd__overlap_free(struct overlap *o)
{
    free(o->keys);
    free(o->slots);
    *o = (struct overlap){0};
}
