/* read.c - rows of given keys out, with their states. The device finds and copies them into one
 * block, which the host waits for. */
#include "server/store/cuda/memory.h"
#include "server/store/cuda/queue.h"

#include <string.h>

/* Device memory of a read, and where its results are staged. */
struct reading {
    uint8_t *block;
    uint32_t *refs;
    uint8_t *out; /* values, states, statuses: as on the host */
    uint64_t values_bytes, states_at, statuses_at, out_bytes;
};

static void lay_out(const struct call *call, struct reading *r, struct arena *arena)
{
    uint32_t n = call->in.n;
    r->block = arena_take(arena, call->in_bytes);
    r->refs = arena_take(arena, n * sizeof *r->refs);
    r->out = arena_take(arena, r->out_bytes);
}

static void measure(const struct call *call, const struct store_read *read, struct reading *r)
{
    const struct table_view *t = &call->store->view;
    struct arena arena = {.base = NULL};
    uint64_t n = call->in.n;
    r->values_bytes = n * embd__value_bytes(t->dtype, t->dim);
    arena_take(&arena, r->values_bytes);
    r->states_at = arena.bytes;
    arena_take(&arena, read->states != NULL ? n * t->state_floats * sizeof(float) : 0);
    r->statuses_at = arena.bytes;
    arena_take(&arena, n);
    r->out_bytes = arena.bytes;
}

static int take_memory(struct call *call, struct reading *r)
{
    struct arena arena = {.base = NULL};
    lay_out(call, r, &arena);
    call->staging_bytes = call->staged_bytes + r->out_bytes;
    call->staging = buffer_new(call->staging_bytes);
    if (call->staging == NULL)
        return DEVICE_NO_MEMORY;
    int status = cuda_new(call->store, &call->scratch, arena.bytes);
    arena = (struct arena){.base = call->scratch};
    if (status == 0)
        lay_out(call, r, &arena);
    return status;
}

static int copy_out(struct call *call, const struct store_read *read, const struct reading *r)
{
    struct store *store = call->store;
    float *states = read->states != NULL ? (float *)(void *)(r->out + r->states_at) : NULL;
    int status = call_upload(call, r->block, false);
    if (status == 0)
        status =
            launch_find(store->view, call->in, r->refs, r->out + r->statuses_at, store->stream);
    if (status == 0)
        status = launch_read_rows(store->view, r->refs, call->in.n, r->out, states, store->stream);
    if (status == 0)
        status =
            device_copy(call->staging + call->staged_bytes, r->out, r->out_bytes, store->stream);
    return status ? status : device_stream_wait(store->stream);
}

static int read_rows(struct call *call, const struct store_read *read, struct embd__error *e)
{
    const struct table_view *t = &call->store->view;
    struct reading r;
    uint32_t n = read->in.n_keys;
    call_set_keys(call, &read->in, 0, n);
    call_lay_out_inputs(call);
    measure(call, read, &r);
    int status = take_memory(call, &r);
    if (status != 0)
        return cuda_error(call->store, status, "to read rows", e);
    status = copy_out(call, read, &r);
    if (status != 0)
        return cuda_error(call->store, status, "reading rows", e);
    const uint8_t *out = call->staging + call->staged_bytes;
    memcpy(read->rows, out, r.values_bytes);
    if (read->states != NULL)
        memcpy(read->states, out + r.states_at, (uint64_t)n * t->state_floats * sizeof(float));
    memcpy(read->statuses, out + r.statuses_at, n);
    return EMBD_OK;
}

int cuda_read(struct store *store, const struct store_read *read, struct embd__error *e)
{
    e->status = EMBD_OK;
    cuda_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    if (read->in.n_keys == 0)
        return EMBD_OK;
    struct call *call = call_new(store);
    if (call == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to read rows",
                               store->schema->s.name);
    read_rows(call, read, e);
    call_free(call);
    return e->status;
}
