/* load.c - copies rows and candidates in. A block is planned and created like a push whose keys are
 * all admitted; then its values and states replace the initial ones. */
#include "server/store/cuda/insert_plan.h"
#include "server/store/cuda/memory.h"
#include "server/store/cuda/queue.h"
#include "server/store/use.h"

#include <stdlib.h>

/* Device memory of a load, beyond the plan. */
struct restore {
    uint8_t *block;
    uint32_t *refs, *positions;
    void *temp;
    size_t temp_bytes;
};

static void lay_out(struct call *call, struct restore *r, struct arena *arena)
{
    uint64_t n = call->in.n;
    r->block = arena_take(arena, call->in_bytes);
    insert_plan_lay_out(call, arena);
    r->refs = arena_take(arena, n * sizeof *r->refs);
    r->positions = arena_take(arena, n * sizeof *r->positions);
    r->temp_bytes = sort_bytes(call->in.n);
    r->temp = arena_take(arena, r->temp_bytes);
}

static int take_memory(struct call *call, struct restore *r)
{
    struct arena arena = {.base = NULL};
    lay_out(call, r, &arena);
    uint64_t report_at = call->staged_bytes;
    call->staging_bytes = report_at + sizeof *call->report;
    call->staging = buffer_new(call->staging_bytes);
    if (call->staging == NULL)
        return DEVICE_NO_MEMORY;
    call->report = (struct plan_report *)(void *)(call->staging + report_at);
    int status = cuda_new(call->store, &call->scratch, arena.bytes);
    arena = (struct arena){.base = call->scratch};
    if (status == 0)
        lay_out(call, r, &arena);
    return status;
}

static int set_rows(struct call *call, const struct restore *r)
{
    struct store *store = call->store;
    int status = launch_sort(r->temp, r->temp_bytes, call->plan.refs, r->refs, call->plan.positions,
                             r->positions, call->in.n, ref_bits(store->n_rows), store->stream);
    if (status == 0)
        status = frozen_keep_refs(store, r->refs, call->in.n);
    if (status == 0)
        status = launch_store_rows(store->view, r->refs, r->positions, call->in.n,
                                   call->inputs[IN_VALUES].on_device,
                                   call->inputs[IN_STATES].on_device, store->stream);
    if (status == 0)
        status = change_sets_note_refs(store, r->refs, call->in.n);
    return status ? status : device_stream_wait(store->stream);
}

static void set_inputs(struct call *call, const struct row_block *block)
{
    const struct table_view *t = &call->store->view;
    struct store_keys in = {.n_keys = block->n_rows,
                            .n_rows = block->n_rows,
                            .keys = block->keys,
                            .slots = block->slots};
    call_set_keys(call, &in, 0, block->n_rows);
    call_set_input(call, IN_VALUES, block->rows,
                   block->n_rows * embd__value_bytes(t->dtype, t->dim));
    if (t->state_floats)
        call_set_input(call, IN_STATES, block->states,
                       (uint64_t)block->n_rows * t->state_floats * sizeof(float));
    call_lay_out_inputs(call);
}

static int load_rows(struct call *call, const struct row_block *block, struct embd__error *e)
{
    struct store *store = call->store;
    struct restore r;
    set_inputs(call, block);
    int status = take_memory(call, &r);
    if (status == 0)
        status = call_upload(call, r.block, false);
    if (status == 0)
        status = insert_plan_start(call);
    if (status == 0)
        status = device_stream_wait(store->stream);
    if (status == 0 && call->report->n_leaders <= cuda_room(store))
        status = grow_entries(store, store->n_rows + store->n_candidates + call->report->n_leaders +
                                         block->n_candidates);
    if (status != 0)
        return cuda_error(store, status, "to load rows", e);
    if (insert_plan_commit(call, false, NULL, e) != EMBD_OK)
        return e->status;
    status = set_rows(call, &r);
    return status ? cuda_error(store, status, "loading rows", e) : EMBD_OK;
}

/* ---- candidates ---- */

struct candidate {
    uint64_t key;
    uint32_t slot, count, at;
};

static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Sorts the candidates and removes duplicates; the last of equal keys counts. */
static uint32_t distinct(const struct row_block *block, struct candidate *c)
{
    uint32_t n = block->n_candidates, n_out = 0;
    for (uint32_t i = 0; i < n; i++)
        c[i] = (struct candidate){block->candidate_keys[i],
                                  block->candidate_slots ? block->candidate_slots[i] : 0,
                                  block->candidate_counts[i], i};
    qsort(c, n, sizeof *c, compare);
    for (uint32_t i = 0; i < n; i++)
        if (i + 1 == n || c[i].key != c[i + 1].key || c[i].slot != c[i + 1].slot)
            c[n_out++] = c[i];
    return n_out;
}

/* The arrays of candidates, in one block of pinned memory. */
struct columns {
    uint64_t *keys;
    uint32_t *counts, *n_new;
    uint16_t *slots;
};

static void lay_out_columns(struct columns *c, struct arena *arena, uint32_t n)
{
    c->keys = arena_take(arena, n * sizeof *c->keys);
    c->counts = arena_take(arena, n * sizeof *c->counts);
    c->slots = arena_take(arena, n * sizeof *c->slots);
    c->n_new = arena_take(arena, sizeof *c->n_new);
}

static int enqueue_candidates(struct call *call, const struct columns *on_host, uint64_t bytes,
                              uint32_t n)
{
    struct store *store = call->store;
    struct columns c;
    struct arena arena = {.base = call->scratch};
    lay_out_columns(&c, &arena, n);
    uint32_t *refs = arena_take(&arena, n * sizeof *refs);
    struct keys_view in = {.n = n, .n_rows = n, .keys = c.keys, .slots = c.slots};
    int status = device_copy(call->scratch, call->staging, bytes, store->stream);
    if (status == 0)
        status = launch_store_candidates(store->view, in, c.counts, refs, c.n_new, store->stream);
    if (status == 0)
        status = device_copy(on_host->n_new, c.n_new, sizeof *c.n_new, store->stream);
    if (status == 0)
        status = device_stream_wait(store->stream);
    if (status == 0)
        store->n_candidates += *on_host->n_new;
    return status;
}

/* Takes the memory for candidates, before the rows change anything. */
static int take_columns(struct call *call, uint32_t n)
{
    struct columns c;
    struct arena arena = {.base = NULL};
    lay_out_columns(&c, &arena, n);
    call->staging_bytes = arena.bytes;
    call->staging = buffer_new(arena.bytes);
    if (call->staging == NULL)
        return DEVICE_NO_MEMORY;
    arena_take(&arena, n * sizeof(uint32_t));
    return cuda_new(call->store, &call->scratch, arena.bytes);
}

static int set_candidates(struct call *call, const struct candidate *candidates, uint32_t n)
{
    struct columns c;
    struct arena arena = {.base = call->staging};
    lay_out_columns(&c, &arena, n);
    for (uint32_t i = 0; i < n; i++) {
        c.keys[i] = candidates[i].key;
        c.slots[i] = (uint16_t)candidates[i].slot;
        c.counts[i] = candidates[i].count < REF_SIGHTS_MAX ? candidates[i].count : REF_SIGHTS_MAX;
    }
    *c.n_new = 0;
    return enqueue_candidates(call, &c, arena.bytes, n);
}

static int load_block(struct store *store, struct call *rows, struct call *others,
                      const struct row_block *block, struct embd__error *e)
{
    struct candidate *candidates = malloc((block->n_candidates + 1ull) * sizeof *candidates);
    if (candidates == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to load %u candidates",
                               store->schema->s.name, block->n_candidates);
    uint32_t n = distinct(block, candidates);
    int status = n ? take_columns(others, n) : 0;
    if (status != 0)
        cuda_error(store, status, "to load candidates", e);
    else if (load_rows(rows, block, e) == EMBD_OK && n) {
        status = set_candidates(others, candidates, n);
        if (status != 0)
            cuda_error(store, status, "loading candidates", e);
    }
    free(candidates);
    return e->status;
}

static void note_clock(struct store *store, const struct row_block *block)
{
    uint32_t n = store->view.state_floats, at = n - embd__schema_use_floats(&store->schema->s);
    for (uint32_t i = 0; i < block->n_rows && store->is_timed; i++)
        store->clock = use_later(store->clock, block->states + (size_t)i * n + at);
}

int cuda_load(struct store *store, const struct row_block *block, struct embd__error *e)
{
    uint32_t admit_after = store->view.admit_after;
    cuda_wait_all(store);
    e->status = EMBD_OK;
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    struct call *rows = call_new(store), *others = call_new(store);
    store->view.admit_after = 0;
    store->none_expire_before = 0;
    if (rows != NULL && others != NULL && load_block(store, rows, others, block, e) == EMBD_OK)
        note_clock(store, block);
    else
        embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to load rows",
                        store->schema->s.name);
    store->view.admit_after = admit_after;
    if (rows != NULL)
        call_free(rows);
    if (others != NULL)
        call_free(others);
    return e->status;
}
