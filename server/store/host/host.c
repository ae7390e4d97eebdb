/* host.c - the table of functions of the host store, and the life of a table. */
#include "server/store/host/table.h"

#include <string.h>
#include <unistd.h>

#include "server/store/host/memory.h"

/* Half of a small second-level cache: what a pull makes is still there when it is sent. */
#define PULL_BYTES ((uint64_t)256 << 10)

static uint32_t round_up(uint32_t bytes, uint32_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* capacity with on_full = grow: room at once. Refused where the machine could never hold it. */
static int reserve_capacity(struct store *store, struct embd__error *e)
{
    const embd_schema *s = &store->schema->s;
    if (s->on_full != EMBD_ON_FULL_GROW || s->capacity == 0)
        return EMBD_OK;
    uint64_t per_row = store->rows.stride + 24;
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t most = memory / per_row < INDEX_ROWS_MAX ? memory / per_row : INDEX_ROWS_MAX;
    if (s->capacity > most)
        return embd__error_set(
            e, EMBD_NO_MEMORY,
            "table %s: capacity %llu rows of %u bytes; this machine holds %llu at most", s->name,
            (unsigned long long)s->capacity, store->rows.stride, (unsigned long long)most);
    if (!rows_reserve(&store->rows, s->capacity) || !index_reserve_more(&store->index, s->capacity))
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "table %s: no memory for capacity %llu rows of %u bytes", s->name,
                               (unsigned long long)s->capacity, store->rows.stride);
    return EMBD_OK;
}

static void host_close(struct store *store)
{
    if (store == NULL)
        return;
    while (store->late != NULL)
        late_collect(store);
    host_end_shrink(store);
    index_close(&store->index);
    rows_close(&store->rows);
    merge_fini(&store->merge);
    row_set_fini(&store->named);
    eviction_queue_drop(store);
    pending_fini(&store->pending);
    changes_fini(&store->changes);
    host_thaw(store);
    values_close(store);
    memory_free(store, sizeof *store);
}

static int host_open(const struct table_schema *schema, struct store **out, struct embd__error *e)
{
    const embd_schema *s = &schema->s;
    *out = NULL;
    if (store_secret_draw(e) != EMBD_OK)
        return e->status;
    struct store *store = memory_new(sizeof *store);
    if (store == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to open it", s->name);
    store->schema = schema;
    store->dim = s->dim;
    store->dtype = s->dtype;
    store->value_bytes = (uint32_t)embd__value_bytes(s->dtype, s->dim);
    store->state_at = round_up(store->value_bytes, 4);
    store->state_floats = embd__schema_state_floats(s);
    store->optimizer_floats = embd__schema_optimizer_floats(s);
    store->has_master = embd__schema_master_floats(s) > 0;
    store->master_at = embd__schema_master_at(s);
    store->is_global = optimizer_is_global(&s->optimizer);
    store->is_wholerow = embd__schema_is_wholerow(s);
    store->evicts = embd__schema_use_floats(s) > 0;
    store->is_timed = embd__schema_is_timed(s);
    store->bound = embd__schema_bound(s);
    store->has_candidates = s->admit_after > 1;
    store->use_at = store->state_floats - embd__schema_use_floats(s);
    store->use_rule = use_rule_of(s);
    rows_open(&store->rows, round_up(store->state_at + 4 * store->state_floats, 8));
    int status = EMBD_OK;
    if (!index_open(&store->index, s->partition == EMBD_PARTITION_SLOT) || !values_open(store))
        status = embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to open it", s->name);
    else
        status = reserve_capacity(store, e);
    if (status != EMBD_OK) {
        host_close(store);
        return status;
    }
    *out = store;
    return EMBD_OK;
}

static void host_set_step(struct store *store, uint64_t step)
{
    host_end_late(store);
    host_end_sweep(store);
    merge_forget(&store->merge);
    store->step = step;
    store->none_expire_before = 0;
    eviction_queue_drop(store);
}

static bool is_same_rule(const struct use_rule *a, const struct use_rule *b)
{
    return a->counts == b->counts && a->occurrences == b->occurrences && a->scores == b->scores &&
           a->half_life == b->half_life;
}

/* The set of pending rows has at least the size of the capacity; the queue has rows in the order of
 * the rule, for passes of a part of the capacity. */
static void alter_eviction(struct store *store)
{
    const embd_schema *s = &store->schema->s;
    const struct use_rule rule = use_rule_of(s);
    bool is_as_long = embd__schema_bound(s) == store->bound;
    if (store->pending.n_left > 0 && !row_set_grow(&store->pending.set, host_row_numbers(store)))
        pending_remove_all(store);
    if (!is_as_long || !is_same_rule(&rule, &store->use_rule))
        eviction_queue_drop(store);
    store->use_rule = rule;
    store->none_expire_before = 0;
}

/* The rest is read from the schema where it is used. */
static void host_alter(struct store *store)
{
    const embd_schema *s = &store->schema->s;
    host_end_late(store);
    host_end_sweep(store);
    merge_forget(&store->merge);
    alter_eviction(store);
    store->initializer.a = s->initializer.a;
    store->initializer.b = s->initializer.b;
    store->is_global = optimizer_is_global(&s->optimizer);
    store->is_wholerow = embd__schema_is_wholerow(s);
    store->has_candidates |= s->admit_after > 1;
    if (embd__schema_bound(s) < store->bound)
        changes_forget(&store->changes);
    store->bound = embd__schema_bound(s);
}

static void host_stats(const struct store *store, struct store_stats *out)
{
    *out = (struct store_stats){
        .rows = host_rows(store),
        .candidates = store->n_candidates,
        .capacity = store->rows.capacity,
        .row_bytes = store->rows.capacity * store->rows.stride,
        .index_bytes = host_overhead_bytes(store),
        .steps = store->step,
        .clock = store->clock,
        .evicted = store->n_evicted,
        .forgotten = store->n_forgotten,
        .slices = store->sweep.phase != SWEEP_NONE ? sweep_slices(store) : 0,
    };
    uint64_t late_bytes = store->late != NULL ? late_memory_bytes(store) : 0;
    out->memory_bytes = store->rows.n * store->rows.stride + out->index_bytes;
    out->memory_bytes = late_bytes > out->memory_bytes ? late_bytes : out->memory_bytes;
}

/* The machine's, one for all tables. */
static uint64_t host_memory(uint32_t *place_out)
{
    *place_out = 0;
    return 0;
}

/* ---- calls beside a push of very many keys: what is left of it is done first ---- */

static void apply(struct store *store, struct store_change *change, struct store_done *done)
{
    host_end_late(store);
    if (!late_takes(store, change) || !late_begin(store, change, done))
        host_apply(store, change, done);
}

/* Such a push merges its keys itself. */
static int prepare(struct store *store, struct store_change *change, enum store_prepare what,
                   struct embd__error *e)
{
    if (what == STORE_PREPARE_KEYS && (store->late != NULL || late_takes(store, change)))
        return EMBD_OK;
    host_end_late(store);
    return host_prepare(store, change, what, e);
}

static int cancel(struct store *store, struct store_ticket *ticket)
{
    if (late_is_of(store, ticket))
        return late_cancel(store);
    host_cancel(store, ticket);
    return EMBD_OK;
}

static int scan(struct store *store, uint64_t *cursor, uint32_t max_rows, struct store_scan *out,
                struct embd__error *e)
{
    host_end_late(store);
    return host_scan(store, cursor, max_rows, out, e);
}

static int list(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
                struct embd__error *e)
{
    host_end_late(store);
    return host_list(store, cursor, max_keys, out, e);
}

static int read_rows(struct store *store, const struct store_read *read, struct embd__error *e)
{
    host_end_late(store);
    return host_read(store, read, e);
}

static int freeze(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    host_end_late(store);
    return host_freeze(store, cut, e);
}

static void forget(struct store *store, uint64_t cut)
{
    host_end_late(store);
    host_forget(store, cut);
}

static int load(struct store *store, const struct row_block *block, struct embd__error *e)
{
    host_end_late(store);
    return host_load(store, block, e);
}

static int erase(struct store *store, struct store_erase *erase, struct embd__error *e)
{
    host_end_late(store);
    return host_erase(store, erase, e);
}

static int shrink(struct store *store, struct store_shrink *shrink, struct embd__error *e)
{
    host_end_late(store);
    return host_shrink(store, shrink, e);
}

/* The done of a push may make the next call of this store. */
static bool host_collect(struct store *store)
{
    if (store->late != NULL)
        return late_collect(store);
    return store->sweep.phase != SWEEP_NONE && sweep_go_on(store);
}

static void *host_buffer_new(size_t bytes)
{
    return memory_buffer_new(bytes ? bytes : 1);
}

static void host_buffer_free(void *buffer, size_t bytes)
{
    memory_free(buffer, bytes ? bytes : 1);
}

const struct store_ops store_host = {
    .name = "host",
    .caps = {.pull_bytes = PULL_BYTES, .shrinks = true},
    .open = host_open,
    .close = host_close,
    .pull = host_pull,
    .prepare = prepare,
    .apply = apply,
    .cancel = cancel,
    .collect = host_collect,
    .scan = scan,
    .list = list,
    .read = read_rows,
    .freeze = freeze,
    .scan_frozen = host_scan_frozen,
    .thaw = host_thaw,
    .forget = forget,
    .load = load,
    .set_step = host_set_step,
    .erase = erase,
    .shrink = shrink,
    .alter = host_alter,
    .stats = host_stats,
    .memory = host_memory,
    .buffer_new = host_buffer_new,
    .buffer_free = host_buffer_free,
};
