/* cut.c - cuts: the table while it stands still, or what has changed in it since an earlier cut (noted.c).
 *
 * Of what changed come first the keys that are gone, from the host's lists; then rows, which the host finds by
 * their bytes, a piece at a time, and the device picks; then all candidates. */
#include "cuda_store.h"

#define PIECE 65536u /* bytes of rows looked at at once */

int cuda_cut_prepare(struct store *store, const struct store_cut *cut, struct embd__error *e)
{
    call_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    noted_take(store);
    int status = cut->id ? noted_make_room(store) : 0;
    return status ? cuda_error(store, status, "noting changes", e) : EMBD_OK;
}

int cuda_cut_begin(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    uint32_t n = store->noted.n, first = cut->since ? noted_find(store, cut->since) : n;
    cut->has_all = first == n;
    store->cut = (struct cut){.has_all = cut->has_all,
                              .first_set = first,
                              .end_set = n,
                              .oldest = (uint8_t)(first + 1)};
    int status = cut->id ? noted_begin(store, cut->id) : 0;
    return status ? cuda_error(store, status, "noting changes", e) : EMBD_OK;
}

int cuda_freeze(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    int status = cuda_cut_prepare(store, cut, e);
    return status ? status : cuda_cut_begin(store, cut, e);
}

void cuda_thaw(struct store *store)
{
    store->cut = (struct cut){.has_all = true};
}

/* ---- reading ---- */

bool cuda_read_gone(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct cut *f = &store->cut;
    out->n_rows = out->n_candidates = 0;
    for (; f->first_set < f->end_set; f->first_set++, f->gone_at = 0) {
        const struct gone *gone = &store->noted.sets[f->first_set].gone;
        for (; f->gone_at < gone->n; f->gone_at++) {
            uint32_t i = out->n_candidates;
            if (i == max_rows)
                return true;
            out->candidate_keys[i] = gone->keys[f->gone_at].key;
            out->candidate_counts[i] = 0;
            if (store->view.row_slots)
                out->candidate_slots[i] = (uint16_t)gone->keys[f->gone_at].slot;
            out->n_candidates++;
        }
    }
    return out->n_candidates > 0;
}

/* Where the next changed rows are found, in memory the device reads too. */
struct found {
    uint8_t *sets;  /* [PIECE] */
    uint32_t *rows; /* [n] */
    uint32_t n;
};

static uint64_t found_lay_out(struct found *found, uint8_t *base, uint32_t max_rows)
{
    struct arena arena = {.base = base};
    found->sets = arena_take(&arena, PIECE);
    found->rows = arena_take(&arena, max_rows * sizeof *found->rows);
    return arena.bytes;
}

/* At most max_rows of them from f->cursor on. */
static int find(struct store *store, uint32_t max_rows, struct found *found)
{
    struct cut *f = &store->cut;
    while (f->cursor < store->n_rows && found->n < max_rows) {
        uint64_t left = store->n_rows - f->cursor, n = left < PIECE ? left : PIECE, i = 0;
        int status = device_copy(found->sets, store->view.row_sets + f->cursor, n, store->stream);
        if (status == 0)
            status = device_stream_wait(store->stream);
        if (status != 0)
            return status;
        for (; i < n && found->n < max_rows; i++)
            if (found->sets[i] >= f->oldest)
                found->rows[found->n++] = (uint32_t)(f->cursor + i);
        f->cursor += i;
    }
    return 0;
}

/* The rows side by side on the device, then out. */
static int pick(struct store *store, const struct found *found, struct store_scan *out)
{
    struct table_view to = store->view;
    void *memory = NULL;
    int status = 0;
    for (int turn = 0; turn < 2 && status == 0; turn++) {
        struct arena arena = {.base = memory};
        to.values = arena_take(&arena, (uint64_t)found->n * to.stride);
        to.states = arena_take(&arena, (uint64_t)found->n * to.state_stride * sizeof(float));
        to.row_keys = arena_take(&arena, found->n * sizeof *to.row_keys);
        uint16_t *slots = arena_take(&arena, found->n * sizeof *slots);
        to.row_slots = store->view.row_slots ? slots : NULL;
        if (turn == 0)
            status = device_new(&memory, arena.bytes, store->stream);
    }
    if (status == 0)
        status = launch_pick_rows(store->view, found->rows, found->n, to, store->stream);
    if (status == 0)
        status = scan_copy_rows(&to, 0, found->n, out, store->stream);
    device_free(memory, store->stream);
    return status;
}

static int read_changed(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct found found = {.n = 0};
    uint64_t bytes = found_lay_out(&found, NULL, max_rows);
    uint8_t *memory = buffer_new(bytes);
    if (memory == NULL)
        return DEVICE_NO_MEMORY;
    found_lay_out(&found, memory, max_rows);
    int status = find(store, max_rows, &found);
    if (status == 0 && found.n > 0)
        status = pick(store, &found, out);
    out->n_rows = found.n;
    buffer_free(memory, bytes);
    if (store->cut.cursor >= store->n_rows)
        store->cut.cursor = store->n_candidates ? SCAN_CANDIDATES : UINT64_MAX;
    return status;
}

int cuda_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e)
{
    struct cut *f = &store->cut;
    int status = 0;
    *done_out = false;
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    if (cuda_read_gone(store, max_rows, out))
        return EMBD_OK;
    if (f->has_all || f->cursor & SCAN_CANDIDATES) {
        if (f->cursor != UINT64_MAX && cuda_scan(store, &f->cursor, max_rows, out, e) != EMBD_OK)
            return e->status;
    } else {
        status = read_changed(store, max_rows, out);
    }
    *done_out = f->cursor == UINT64_MAX;
    return status ? cuda_error(store, status, "copying changed rows out", e) : EMBD_OK;
}
