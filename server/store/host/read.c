/* read.c - rows of given keys out, with their states, as they are stored. A key without a row stays
 * without one, and nothing notes that it was read. */
#include <string.h>

#include "server/store/host/table.h"

#define BATCH 32u

/* 0: the key has no row. */
static uint32_t find_row(const struct store *store, const struct store_keys *in, uint32_t i)
{
    uint32_t slot = in->slots != NULL ? in->slots[i] : 0;
    uint32_t ref = index_find(&store->index, index_hash(in->keys[i], slot), slot);
    return index_has_row(ref) && !pending_has(&store->pending, ref - 1) ? ref : 0;
}

static void copy_record(const struct store *store, const struct store_read *read, uint32_t i,
                        uint32_t ref)
{
    uint8_t *row = (uint8_t *)read->rows + (size_t)i * store->value_bytes;
    float *state = read->states != NULL ? read->states + (size_t)i * store->state_floats : NULL;
    size_t state_bytes = state != NULL ? store->state_floats * sizeof *state : 0;
    read->statuses[i] = ref != 0 ? EMBD_KEY_HIT : EMBD_KEY_MISSING;
    if (ref == 0) {
        memset(row, 0, store->value_bytes);
        if (state_bytes > 0)
            memset(state, 0, state_bytes);
        return;
    }
    uint8_t *record = rows_at(&store->rows, ref - 1);
    memcpy(row, record, store->value_bytes);
    if (state_bytes > 0)
        memcpy(state, host_state(store, record), state_bytes);
}

int host_read(struct store *store, const struct store_read *read, struct embd__error *e)
{
    const struct store_keys *in = &read->in;
    (void)e;
    if (store->sweep.phase != SWEEP_NONE)
        sweep_reach_keys(store, in, 0, in->n_rows);
    for (uint32_t begin = 0; begin < in->n_keys; begin += BATCH) {
        uint32_t refs[BATCH], n = in->n_keys - begin < BATCH ? in->n_keys - begin : BATCH;
        for (uint32_t i = 0; i < n; i++) {
            refs[i] = find_row(store, in, begin + i);
            if (refs[i] != 0)
                rows_prefetch(rows_at(&store->rows, refs[i] - 1), store->rows.stride);
        }
        for (uint32_t i = 0; i < n; i++)
            copy_record(store, read, begin + i, refs[i]);
    }
    return EMBD_OK;
}
