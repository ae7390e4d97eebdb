/* scan.c - copies rows and candidates out. Rows lie in order of their numbers, so a scan is a few
 * large copies; the few candidates are picked from the entries on the host. The cursor is a row
 * number, then, with the top bit set, an entry number. */
#include "server/store/cuda/queue.h"

#include <string.h>

#define PIECE      4096u               /* entries */
#define CANDIDATES ((uint64_t)1 << 63) /* in the cursor: all rows are scanned */

static int copy_rows(const struct table_view *t, uint64_t first, uint32_t n, struct store_scan *out,
                     void *stream)
{
    uint64_t value_bytes = embd__value_bytes(t->dtype, t->dim),
             state_bytes = t->state_floats * sizeof(float);
    int status = device_copy(out->keys, t->row_keys + first, n * sizeof *out->keys, stream);
    if (status == 0 && t->row_slots)
        status = device_copy(out->slots, t->row_slots + first, n * sizeof *out->slots, stream);
    if (status == 0 && out->rows)
        status = device_copy_rows(out->rows, value_bytes, t->values + first * t->stride, t->stride,
                                  value_bytes, n, stream);
    if (status == 0 && out->rows && t->state_floats)
        status = device_copy_rows(out->states, state_bytes, t->states + first * t->state_stride,
                                  t->state_stride * sizeof(float), state_bytes, n, stream);
    return status ? status : device_stream_wait(stream);
}

static void pick(const struct store *store, const struct entry *e, struct store_scan *out)
{
    uint32_t i = out->n_candidates++;
    out->candidate_keys[i] = e->key;
    out->candidate_counts[i] = e->ref & REF_SIGHTS_MAX;
    if (store->view.row_slots)
        out->candidate_slots[i] = (uint16_t)(e->tail & ENTRY_SLOT);
}

/* Copies candidates from entry *at on, until there are max_rows. */
static int copy_candidates(struct store *store, uint64_t *at, uint32_t max_rows,
                           struct store_scan *out)
{
    uint64_t n = store->view.n_buckets * ENTRY_BUCKET;
    struct entry entries[PIECE];
    while (*at < n) {
        uint64_t piece = n - *at < PIECE ? n - *at : PIECE;
        int status =
            device_copy(entries, store->view.entries + *at, piece * sizeof *entries, store->stream);
        if (status == 0)
            status = device_stream_wait(store->stream);
        if (status != 0)
            return status;
        for (uint64_t i = 0; i < piece; i++) {
            if (out->n_rows + out->n_candidates == max_rows) {
                *at += i;
                return 0;
            }
            if (entries[i].ref & REF_CANDIDATE)
                pick(store, &entries[i], out);
        }
        *at += piece;
    }
    return 0;
}

static int scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out)
{
    if (!(*cursor & CANDIDATES)) {
        uint64_t left = store->n_rows - *cursor;
        out->n_rows = left < max_rows ? (uint32_t)left : max_rows;
        int status = copy_rows(&store->view, *cursor, out->n_rows, out, store->stream);
        *cursor += out->n_rows;
        if (status != 0 || *cursor < store->n_rows)
            return status;
        *cursor = store->n_candidates ? CANDIDATES : UINT64_MAX;
    }
    if (*cursor == UINT64_MAX)
        return 0;
    uint64_t at = *cursor & ~CANDIDATES;
    int status = copy_candidates(store, &at, max_rows, out);
    *cursor = at == store->view.n_buckets * ENTRY_BUCKET ? UINT64_MAX : CANDIDATES | at;
    return status;
}

int cuda_scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
              struct embd__error *e)
{
    out->n_rows = out->n_candidates = 0;
    cuda_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    int status = scan(store, cursor, max_rows, out);
    return status ? cuda_error(store, status, "copying rows out", e) : EMBD_OK;
}

/* ---- keys, while the table changes ---- */

static int list(struct store *store, uint64_t first, uint32_t n, struct store_scan *out)
{
    const struct table_view *t = &store->view;
    int status = device_copy(out->keys, t->row_keys + first, n * sizeof *out->keys, store->stream);
    if (status == 0 && t->row_slots)
        status =
            device_copy(out->slots, t->row_slots + first, n * sizeof *out->slots, store->stream);
    return status ? status : device_stream_wait(store->stream);
}

/* The cursor is the number of rows that are left. */
int cuda_list(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
              struct embd__error *e)
{
    out->n_rows = 0;
    cuda_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    uint64_t left = *cursor == 0 || *cursor > store->n_rows ? store->n_rows : *cursor;
    uint32_t n = left < max_keys ? (uint32_t)left : max_keys;
    int status = n > 0 ? list(store, left - n, n, out) : 0;
    if (status != 0)
        return cuda_error(store, status, "copying keys out", e);
    out->n_rows = n;
    *cursor = left > n ? left - n : UINT64_MAX;
    return EMBD_OK;
}
