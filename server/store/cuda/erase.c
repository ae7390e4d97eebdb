/* erase.c - removes keys: their entries become empty, and their rows are removed (compact.h). All
 * memory is taken before anything changes; the host waits once, for the number of removed rows. */
#include "server/store/cuda/compact.h"
#include "server/store/cuda/queue.h"

/* Device memory of an erase, and its report. */
struct erasure {
    uint8_t *block;
    uint32_t *refs, *host_refs; /* [n]; host_refs: in staging, where changes are noted */
    struct losses {
        uint32_t n_rows, n_candidates;
    } * losses, *report;
    struct removal removal;
};

static void lay_out(struct call *call, struct erasure *l, struct arena *arena)
{
    uint32_t n = call->in.n;
    l->block = arena_take(arena, call->in_bytes);
    l->refs = arena_take(arena, n * sizeof *l->refs);
    l->losses = arena_take(arena, sizeof *l->losses);
    if (call->inputs[IN_OFFSETS].from != NULL)
        call->in.row_of = arena_take(arena, n * sizeof *call->in.row_of);
    compact_lay_out(&l->removal, n, arena);
}

static int take_memory(struct call *call, struct erasure *l)
{
    struct arena arena = {.base = NULL}, staging = {.bytes = call->staged_bytes};
    lay_out(call, l, &arena);
    uint64_t report_at = staging.bytes;
    arena_take(&staging, sizeof *l->report);
    uint64_t statuses_at = staging.bytes;
    arena_take(&staging, call->in.n);
    uint64_t host_refs_at = staging.bytes;
    if (call->store->changes.n > 0)
        arena_take(&staging, call->in.n * sizeof *l->host_refs);
    call->staging_bytes = staging.bytes;
    call->staging = buffer_new(staging.bytes);
    if (call->staging == NULL)
        return DEVICE_NO_MEMORY;
    l->report = (struct losses *)(void *)(call->staging + report_at);
    l->host_refs = (uint32_t *)(void *)(call->staging + host_refs_at);
    call->statuses = call->staging + statuses_at;
    int status = cuda_new(call->store, &call->scratch, arena.bytes);
    arena = (struct arena){.base = call->scratch};
    if (status == 0)
        lay_out(call, l, &arena);
    return status;
}

/* Removes the entries, and waits for the numbers of removed rows and candidates. */
static int remove_keys(struct call *call, struct erasure *l)
{
    struct store *store = call->store;
    void *stream = store->stream;
    struct loss_view loss = {l->removal.rows, &l->losses->n_rows, &l->losses->n_candidates};
    int status = call_upload(call, l->block, false);
    if (status == 0 && call->in.row_of)
        status = launch_expand(call->in, stream);
    if (status == 0)
        status = launch_find(store->view, call->in, l->refs, call->statuses, stream);
    if (status == 0)
        status = device_fill(l->losses, 0, sizeof *l->losses, stream);
    if (status == 0)
        status = launch_forget(store->view, call->in, l->refs, loss, stream);
    if (status == 0 && store->changes.n > 0)
        status = device_copy(l->host_refs, l->refs, call->in.n * sizeof *l->host_refs, stream);
    if (status == 0)
        status = device_copy(l->report, l->losses, sizeof *l->report, stream);
    return status ? status : device_stream_wait(stream);
}

static void set_statuses(const struct call *call, struct store_erase *erase)
{
    for (uint32_t i = 0; i < call->in.n && erase->statuses; i++)
        erase->statuses[i] =
            call->statuses[i] == EMBD_KEY_HIT ? EMBD_KEY_EVICTED : EMBD_KEY_MISSING;
}

static int erase_keys(struct call *call, struct store_erase *erase, struct embd__error *e)
{
    struct store *store = call->store;
    struct erasure l;
    call_set_keys(call, &erase->in, 0, erase->in.n_rows);
    call_lay_out_inputs(call);
    int status = take_memory(call, &l);
    if (status != 0)
        return cuda_error(store, status, "to erase keys", e);
    status = remove_keys(call, &l);
    if (status == 0)
        status = compact_rows(store, &l.removal, l.report->n_rows);
    if (status != 0)
        return cuda_error(store, status, "erasing keys", e);
    store->n_candidates -= l.report->n_candidates;
    store->n_tombstones += l.report->n_candidates;
    erase->n_erased = l.report->n_rows;
    if (store->changes.n > 0)
        change_sets_note_erased(store, &erase->in, l.host_refs);
    set_statuses(call, erase);
    return EMBD_OK;
}

int cuda_erase(struct store *store, struct store_erase *erase, struct embd__error *e)
{
    erase->n_erased = 0;
    e->status = EMBD_OK;
    cuda_wait_all(store);
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    if (erase->in.n_keys == 0)
        return EMBD_OK;
    struct call *call = call_new(store);
    if (call == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to erase keys",
                               store->schema->s.name);
    int status = erase_keys(call, erase, e);
    call_free(call);
    return status;
}
