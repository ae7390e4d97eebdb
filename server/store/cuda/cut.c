/* cut.c - cuts: reads the table as it was at one moment (frozen.h), or what had changed since an
 * earlier cut (change_sets.h), while calls change it.
 *
 * Removed keys come first, from the host's lists. The rest comes from the device in blocks, several
 * of them in transit, so that a scan finds one that has arrived: first rows that were copied before
 * they changed, as soon as they fill a block, so that their memory is free again; then rows in
 * order of their numbers, which a kernel writes to the host's memory unless they are done; then all
 * candidates. Nothing here waits for the device: a scan returns what has arrived, or nothing yet.
 */
#include <string.h>

#include "server/store/cuda/cut.h"
#include "server/store/cuda/memory.h"
#include "server/store/cuda/queue.h"

#define RANGE_MAX ((uint64_t)1 << 22) /* row numbers searched for one block of changed rows */

/* ---- the moment ---- */

int cuda_cut_prepare(struct store *store, const struct store_cut *cut, struct embd__error *e)
{
    cuda_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    change_sets_take_evicted(store);
    int status = cut->id ? change_sets_make_room(store) : 0;
    return status ? cuda_error(store, status, "recording changes", e) : EMBD_OK;
}

int cuda_cut_freeze(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    const struct change_sets *changes = &store->changes;
    uint32_t n = changes->n, first = cut->since ? change_sets_find(store, cut->since) : n;
    cut->has_all = first == n;
    if (frozen_begin(store, cut->has_all, (uint8_t)(first + 1), e) != EMBD_OK)
        return e->status;
    store->frozen.first_set = first;
    store->frozen.end_set = n;
    store->frozen.gone_end = n > 0 ? changes->sets[n - 1].gone.n : 0;
    return EMBD_OK;
}

int cuda_cut_note(struct store *store, const struct store_cut *cut, struct embd__error *e)
{
    int status = cut->id ? change_sets_begin(store, cut->id) : 0;
    return status ? cuda_error(store, status, "recording changes", e) : EMBD_OK;
}

int cuda_freeze(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    if (cuda_cut_prepare(store, cut, e) != EMBD_OK || cuda_cut_freeze(store, cut, e) != EMBD_OK)
        return e->status;
    return cuda_cut_note(store, cut, e);
}

void cuda_thaw(struct store *store)
{
    device_use(store->device);
    frozen_end(store);
}

void cuda_forget(struct store *store, uint64_t cut)
{
    device_use(store->device);
    cuda_wait_all(store);
    if (!store->failed)
        change_sets_drop(store, cut);
}

/* ---- removed keys ---- */

bool cuda_read_gone(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct frozen *f = &store->frozen;
    out->n_rows = out->n_candidates = 0;
    for (; f->first_set < f->end_set; f->first_set++, f->gone_at = 0) {
        const struct gone *gone = &store->changes.sets[f->first_set].gone;
        uint64_t end = f->first_set + 1 == f->end_set ? f->gone_end : gone->n;
        for (; f->gone_at < end; f->gone_at++) {
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

/* ---- fetching ---- */

static uint64_t lay_out(struct fetch *fetch, const struct table_view *t, uint32_t n, uint8_t *base)
{
    struct arena arena = {.base = base};
    fetch->head_copy = arena_take(&arena, sizeof *fetch->head_copy);
    fetch->candidates = arena_take(&arena, n * sizeof *fetch->candidates);
    return kept_lay_out(&fetch->rows, t, n, &arena);
}

static int need_memory(const struct store *store, struct fetch *fetch, uint32_t n)
{
    uint64_t bytes = lay_out(fetch, &store->view, n, NULL);
    if (bytes > fetch->bytes) {
        buffer_free(fetch->memory, fetch->bytes);
        fetch->memory = buffer_new(bytes);
        fetch->bytes = fetch->memory ? bytes : 0;
    }
    if (fetch->memory == NULL)
        return DEVICE_NO_MEMORY;
    lay_out(fetch, &store->view, n, fetch->memory);
    fetch->n = fetch->at = 0;
    return 0;
}

/* Copies at once from pinned memory: nothing writes there any more. */
static int copy(const struct store *store, void *to, const void *from, uint64_t bytes,
                bool is_pinned)
{
    if (!is_pinned)
        return device_copy(to, from, bytes, store->stream);
    memcpy(to, from, bytes);
    return 0;
}

static int fetch_kept(struct store *store, struct fetch *fetch, uint32_t n)
{
    struct frozen_chunk *chunk = store->frozen.first;
    const struct table_view *t = &store->view;
    const struct kept_view *from = &chunk->view, *to = &fetch->rows;
    uint64_t at = chunk->read, state_bytes = t->state_stride * sizeof(float);
    int status = copy(store, to->keys, from->keys + at, n * sizeof *to->keys, chunk->is_pinned);
    if (status == 0 && t->row_slots)
        status = copy(store, to->slots, from->slots + at, n * sizeof *to->slots, chunk->is_pinned);
    if (status == 0)
        status = copy(store, to->values, from->values + at * t->stride, (uint64_t)n * t->stride,
                      chunk->is_pinned);
    if (status == 0 && state_bytes > 0)
        status = copy(store, to->states, from->states + at * t->state_stride, n * state_bytes,
                      chunk->is_pinned);
    fetch->head_copy = NULL;
    fetch->candidates = NULL;
    fetch->n = n;
    chunk->read += n;
    return status;
}

static int fetch_range(struct store *store, struct fetch *fetch, uint32_t most)
{
    struct frozen *f = &store->frozen;
    uint64_t n, left = f->n_rows - f->cursor, begin = f->cursor;
    struct kept_view *to = &fetch->rows;
    f->cursor = frozen_range_end(f, begin, begin + (left < RANGE_MAX ? left : RANGE_MAX), most, &n);
    to->done = f->done;
    to->n_rows = f->n_rows;
    to->head = f->heads + (fetch - f->fetches);
    fetch->candidates = NULL;
    int status = device_fill(to->head, 0, sizeof *to->head, store->stream);
    if (status == 0)
        status = launch_keep(store->view, *to, NULL, begin, f->cursor - begin, store->stream);
    return status ? status
                  : device_copy(fetch->head_copy, to->head, sizeof *to->head, store->stream);
}

static int fetch_candidates(struct store *store, struct fetch *fetch, uint32_t most)
{
    struct frozen *f = &store->frozen;
    uint64_t left = f->n_candidates - f->candidate;
    const struct entry *from = f->candidates + f->candidate;
    fetch->head_copy = NULL;
    fetch->n = left < most ? (uint32_t)left : most;
    f->candidate += fetch->n;
    return copy(store, fetch->candidates, from, fetch->n * sizeof *from, f->is_pinned);
}

/* How many copied rows are fetched next: whole blocks; the rest of a full chunk; at the end, all.
 */
static uint32_t next_kept(struct store *store, uint32_t most)
{
    struct frozen *f = &store->frozen;
    while (f->first != NULL && frozen_chunk_is_over(f, f->first))
        frozen_drop_first(store);
    uint32_t n = f->first != NULL ? frozen_read_head(f->first->head_copy).n - f->first->read : 0;
    if (n < most && f->first == f->last && f->cursor < f->n_rows)
        return 0;
    return n < most ? n : most;
}

/* Starts the transfer of one more block; false: nothing is left, or nothing can start now. */
static bool begin_fetch(struct store *store, uint32_t most, int *status)
{
    struct frozen *f = &store->frozen;
    uint32_t n_kept = next_kept(store, most);
    bool has_any = n_kept > 0 || f->cursor < f->n_rows || f->candidate < f->n_candidates;
    if (f->n_fetches == FETCHES || !has_any)
        return false;
    struct fetch *fetch = &f->fetches[(f->first_fetch + f->n_fetches) % FETCHES];
    *status = need_memory(store, fetch, most);
    if (*status != 0)
        return false;
    if (n_kept > 0)
        *status = fetch_kept(store, fetch, n_kept);
    else if (f->cursor < f->n_rows)
        *status = fetch_range(store, fetch, most);
    else
        *status = fetch_candidates(store, fetch, most);
    f->n_fetches++;
    if (*status == 0)
        *status = device_flag_raise(fetch->flag, store->stream);
    return *status == 0;
}

/* ---- reading ---- */

static void put_rows(void *to, const void *from, uint64_t stride, uint64_t bytes, uint32_t n)
{
    if (stride == bytes)
        memcpy(to, from, n * bytes);
    else
        for (uint64_t i = 0; i < n; i++)
            memcpy((uint8_t *)to + i * bytes, (const uint8_t *)from + i * stride, bytes);
}

static void read_rows(const struct store *store, const struct fetch *fetch, uint32_t n,
                      struct store_scan *out)
{
    const struct table_view *t = &store->view;
    const struct kept_view *from = &fetch->rows;
    uint64_t value_bytes = embd__value_bytes(t->dtype, t->dim), at = fetch->at,
             state_bytes = t->state_floats * sizeof(float);
    memcpy(out->keys, from->keys + at, n * sizeof *out->keys);
    if (t->row_slots)
        memcpy(out->slots, from->slots + at, n * sizeof *out->slots);
    put_rows(out->rows, from->values + at * t->stride, t->stride, value_bytes, n);
    if (state_bytes > 0)
        put_rows(out->states, from->states + at * t->state_stride, t->state_stride * sizeof(float),
                 state_bytes, n);
    out->n_rows = n;
}

static void read_candidates(const struct store *store, const struct fetch *fetch, uint32_t n,
                            struct store_scan *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct entry *e = &fetch->candidates[fetch->at + i];
        out->candidate_keys[i] = e->key;
        out->candidate_counts[i] = e->ref & REF_SIGHTS_MAX;
        if (store->view.row_slots)
            out->candidate_slots[i] = (uint16_t)(e->tail & ENTRY_SLOT);
    }
    out->n_candidates = n;
}

/* Reads from the oldest block, if it has arrived. */
static int read_fetch(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    struct frozen *f = &store->frozen;
    struct fetch *fetch = &f->fetches[f->first_fetch];
    int error = 0;
    if (fetch->at == 0 && device_flag_query(fetch->flag, &error) == DEVICE_PENDING)
        return 0;
    if (error != 0)
        return error;
    if (fetch->head_copy != NULL)
        fetch->n = fetch->head_copy->n;
    uint32_t n = fetch->n - fetch->at < max_rows ? fetch->n - fetch->at : max_rows;
    if (fetch->candidates != NULL)
        read_candidates(store, fetch, n, out);
    else
        read_rows(store, fetch, n, out);
    fetch->at += n;
    if (fetch->at == fetch->n) {
        f->first_fetch = (f->first_fetch + 1) % FETCHES;
        f->n_fetches--;
    }
    return 0;
}

static bool is_over(const struct frozen *f)
{
    return f->first_set == f->end_set && f->n_fetches == 0 && f->first == NULL &&
           f->cursor == f->n_rows && f->candidate == f->n_candidates;
}

/* Reads one block, and starts the next at once. Blocks are empty if all of their rows were done. */
static int read_next(struct store *store, uint32_t max_rows, struct store_scan *out)
{
    const struct frozen *f = &store->frozen;
    int status = 0;
    uint32_t n_before;
    do {
        while (begin_fetch(store, max_rows, &status))
            ;
        n_before = f->n_fetches;
        if (status == 0 && n_before > 0)
            status = read_fetch(store, max_rows, out);
    } while (status == 0 && f->n_fetches < n_before && out->n_rows + out->n_candidates == 0);
    while (status == 0 && begin_fetch(store, max_rows, &status))
        ;
    return status;
}

int cuda_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out, bool *done_out,
                     struct embd__error *e)
{
    const struct frozen *f = &store->frozen;
    int status = 0;
    *done_out = false;
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    if (!f->is_broken && !cuda_read_gone(store, max_rows, out)) {
        device_use(store->device);
        status = read_next(store, max_rows, out);
        *done_out = is_over(f);
    }
    if (f->is_broken)
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "table %s: no memory to copy rows that change while a cut is read",
                               store->schema->s.name);
    return status ? cuda_error(store, status, "copying rows of a cut out", e) : EMBD_OK;
}
