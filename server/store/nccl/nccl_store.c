/* nccl_store.c - a table over all GPUs of the process: the table of store.h's functions. */
#include "server/store/cuda/cut.h"
#include "server/store/nccl/group.h"

#include <stdlib.h>

#include "server/store/contract.h"

/* struct store of store.h is the cuda store's in this folder; a group is passed in its place. */
static struct group *group_of(const struct store *store)
{
    return (struct group *)(uintptr_t)store;
}

/* ---- open and close ---- */

static struct group *given_up;

static void nccl_close(struct store *store)
{
    struct group *group = group_of(store);
    if (group == NULL)
        return;
    while (group->first != NULL)
        flow_collect(group);
    wire_close();
    if (group->failed) { /* devices may still use its memory, so it is never freed */
        group->given_up = given_up;
        given_up = group;
        return;
    }
    flow_free_spare(group);
    for (uint32_t d = 0; d < group->n; d++) {
        device_use((int)d);
        device_stream_free(group->route_streams[d]);
        device_stream_free(group->return_streams[d]);
        device_stream_free(group->finish_streams[d]);
        cuda_close(group->tables[d]);
    }
    free(group);
}

/* The initial rows of a growing table are spread over the members, with a little more for each,
 * because keys do not spread evenly. */
static void set_member_schema(struct group *group, const struct table_schema *schema)
{
    embd_schema *s = &group->member_schema.s;
    group->member_schema = *schema;
    if (s->on_full == EMBD_ON_FULL_GROW && s->capacity != 0 && group->n > 1)
        s->capacity = s->capacity / group->n + s->capacity / group->n / 64 + 1;
}

static enum wire_way way_asked_for(void)
{
    if (store_gpus.way == STORE_WAY_AUTO)
        return WIRE_AUTOMATIC;
    return store_gpus.way == STORE_WAY_PEER ? WIRE_BY_PEER : WIRE_BY_NCCL;
}

/* These streams are urgent: their work is small beside the lookups, and others wait for it. */
static int open_streams(struct group *group, uint32_t device, struct embd__error *e)
{
    int status = device_urgent_stream_new(&group->route_streams[device]);
    if (status == 0)
        status = device_urgent_stream_new(&group->return_streams[device]);
    if (status == 0)
        status = device_urgent_stream_new(&group->finish_streams[device]);
    group->table_streams[device] = group->tables[device]->stream;
    return status ? group_error(group, status, "opening it", e) : EMBD_OK;
}

static int nccl_open(const struct table_schema *schema, struct store **out, struct embd__error *e)
{
    const char *why = "";
    *out = NULL;
    struct group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to open it", schema->s.name);
    if (wire_open(way_asked_for(), &why) != 0) {
        free(group);
        return embd__error_set(e, EMBD_UNSUPPORTED, "table %s: the GPUs cannot be used: %.150s",
                               schema->s.name, why);
    }
    group->schema = schema;
    group->n = wire_devices();
    group->has_parts = store_gpus.partial_sums;
    set_member_schema(group, schema);
    for (uint32_t d = 0; d < group->n; d++) {
        if (cuda_open_on(&group->member_schema, (int)d, &group->tables[d], e) != EMBD_OK ||
            open_streams(group, d, e) != EMBD_OK) {
            nccl_close((struct store *)group);
            return e->status;
        }
        group->tables[d]->is_member = true;
        group->tables[d]->n_rows_max = REF_ROWS_MAX;
    }
    *out = (struct store *)group;
    return EMBD_OK;
}

/* ---- calls ---- */

static void nccl_pull(struct store *store, struct store_pull *pull, struct store_done *done)
{
    contract_pull(pull);
    flow_submit(group_of(store), CALL_PULL, pull, done);
}

static void nccl_apply(struct store *store, struct store_change *change, struct store_done *done)
{
    contract_change(change);
    flow_submit(group_of(store), change->kind == STORE_PUSH ? CALL_PUSH : CALL_INSERT, change,
                done);
}

static bool nccl_collect(struct store *store)
{
    return flow_collect(group_of(store));
}

static int nccl_cancel(struct store *store, struct store_ticket *ticket)
{
    return flow_cancel(group_of(store), ticket);
}

/* ---- tickets ---- */

/* Reserves everything on every member, because the keys may all be one's. */
static int reserve(struct group *group, uint64_t n, bool may_drop, struct embd__error *e)
{
    uint64_t room = group_room(group), n_rows = n < room ? n : room;
    int status = 0;
    if (group->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        status = device_use(group->tables[d]->device);
        if (status == 0)
            status = grow_by(group->tables[d], n_rows, n);
    }
    if (status == 0 || (status == DEVICE_NO_MEMORY && may_drop))
        return EMBD_OK;
    return group_error(group, status, "for more rows", e);
}

/* Whether n_keys keys fit whatever they are. A request may evict all rows that it does not name,
 * except where rows have to expire first. */
static bool fits_anyway(const struct group *group, uint64_t n_keys)
{
    const embd_schema *s = &group->schema->s;
    if (flow_most_coming(group) + n_keys <= group_room(group))
        return true;
    return embd__schema_use_floats(s) > 0 && s->on_full != EMBD_ON_FULL_EVICT_TTL &&
           n_keys <= s->capacity;
}

static void keep_status(struct store_done *done, int status)
{
    done->error.status = status;
}

static int look(struct group *group, struct store_change *change, struct embd__error *e)
{
    struct store_change insert = {
        .kind = STORE_INSERT, .in = change->in, .seconds = change->seconds};
    struct store_done done = {.fn = keep_status};
    insert.in.weights = insert.in.scores = NULL;
    flow_plan(group, &insert, store_may_drop(change), &done);
    change->n_inserted = insert.n_inserted;
    change->n_full = insert.n_full;
    change->n_filtered = insert.n_filtered;
    change->n_evicted = insert.n_evicted;
    *e = done.error;
    return e->status;
}

/* As cuda_prepare. */
static int prepare_outcome(struct group *group, struct store_change *change, struct embd__error *e)
{
    uint32_t n = change->in.n_keys;
    bool may_drop = store_may_drop(change);
    if ((may_drop || fits_anyway(group, n)) && reserve(group, n, may_drop, e) != EMBD_NO_MEMORY)
        return e->status;
    return look(group, change, e);
}

/* Each member may take its part of what the change has room for. */
static void bound(struct group *group, const struct store_change *change)
{
    bool is_bounded = change->is_bounded && change->in.n_keys > 0;
    for (uint32_t d = 0; d < group->n; d++)
        cuda_bound(group->tables[d], is_bounded ? change->room / group->n : UINT64_MAX);
}

static bool unbound(struct group *group, struct store_change *change)
{
    bool was_short = false;
    for (uint32_t d = 0; d < group->n; d++)
        was_short = cuda_unbound(group->tables[d], change) || was_short;
    return was_short;
}

static int reserve_memory(struct group *group, struct store_change *change, struct embd__error *e)
{
    uint32_t n = change->in.n_keys;
    uint64_t others = group->n_promised - change->ticket.n_keys;
    bool may_drop = store_may_drop(change) && !change->is_bounded;
    struct embd__error uncounted;
    if (reserve(group, others + n, may_drop, e) == EMBD_NO_MEMORY && n > 0 &&
        look(group, change, &uncounted) == EMBD_OK) {
        e->status = EMBD_OK;
        reserve(group, others + change->n_inserted + change->n_filtered, may_drop, e);
    }
    if (e->status != EMBD_OK)
        return e->status;
    change->ticket.n_keys = n;
    group->n_promised = others + n;
    return EMBD_OK;
}

static int prepare_memory(struct group *group, struct store_change *change, struct embd__error *e)
{
    change->needed = 0;
    bound(group, change);
    reserve_memory(group, change, e);
    if (!unbound(group, change) || e->status != EMBD_NO_MEMORY)
        return e->status;
    e->status = EMBD_OK;
    return embd__error_set(e, EMBD_FULL, "table %s: no room for %u keys", group->schema->s.name,
                           change->in.n_keys);
}

static int nccl_prepare(struct store *store, struct store_change *change, enum store_prepare what,
                        struct embd__error *e)
{
    struct group *group = group_of(store);
    e->status = EMBD_OK;
    change->n_inserted = change->n_full = change->n_filtered = change->n_evicted = 0;
    if (what == STORE_PREPARE_KEYS)
        return EMBD_OK;
    return what == STORE_PREPARE_OUTCOME ? prepare_outcome(group, change, e)
                                         : prepare_memory(group, change, e);
}

/* ---- scan: one member after the other ---- */

#define MEMBER_SHIFT                                                                               \
    57 /* member in the cursor: above the bits of members' cursors, below their top bit */
#define MEMBER_MASK ((uint64_t)63 << MEMBER_SHIFT)

/* The cursor of the next member, where this one's has ended. */
static uint64_t cursor_behind(const struct group *group, uint32_t member, uint64_t inner)
{
    if (inner != UINT64_MAX)
        return inner | (uint64_t)member << MEMBER_SHIFT;
    return member + 1 < group->n ? (uint64_t)(member + 1) << MEMBER_SHIFT : UINT64_MAX;
}

static int nccl_scan(struct store *store, uint64_t *cursor, uint32_t max_rows,
                     struct store_scan *out, struct embd__error *e)
{
    struct group *group = group_of(store);
    uint32_t member = (uint32_t)(*cursor >> MEMBER_SHIFT & 63);
    uint64_t inner = *cursor & ~MEMBER_MASK;
    out->n_rows = out->n_candidates = 0;
    flow_wait_all(group);
    if (group->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
    int status = device_use(group->tables[member]->device);
    if (status != 0)
        return group_error(group, status, "copying rows out", e);
    if (cuda_scan(group->tables[member], &inner, max_rows, out, e) != EMBD_OK)
        return e->status;
    *cursor = cursor_behind(group, member, inner);
    return EMBD_OK;
}

static int nccl_list(struct store *store, uint64_t *cursor, uint32_t max_keys,
                     struct store_scan *out, struct embd__error *e)
{
    struct group *group = group_of(store);
    uint32_t member = (uint32_t)(*cursor >> MEMBER_SHIFT & 63);
    uint64_t inner = *cursor & ~MEMBER_MASK;
    out->n_rows = 0;
    if (member >= group->n) { /* a peer's: none that this store gave */
        *cursor = UINT64_MAX;
        return EMBD_OK;
    }
    flow_wait_all(group);
    if (group->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
    int status = device_use(group->tables[member]->device);
    if (status != 0)
        return group_error(group, status, "copying keys out", e);
    if (cuda_list(group->tables[member], &inner, max_keys, out, e) != EMBD_OK)
        return e->status;
    *cursor = cursor_behind(group, member, inner);
    return EMBD_OK;
}

/* ---- cuts: removed keys of all members first, then the rest, of each in turn ---- */

/* Whether all members know what changed since the cut; else the cut has all rows of all. */
static bool is_known(const struct group *group, uint64_t since)
{
    for (uint32_t d = 0; d < group->n; d++)
        if (change_sets_find(group->tables[d], since) == group->tables[d]->changes.n)
            return false;
    return true;
}

static void thaw_members(struct group *group)
{
    for (uint32_t d = 0; d < group->n; d++)
        cuda_thaw(group->tables[d]);
}

/* Freezes all members, or none if one has no memory. */
static int freeze_members(struct group *group, struct store_cut *own, struct embd__error *e)
{
    for (uint32_t d = 0; d < group->n; d++) {
        int status = device_use(group->tables[d]->device);
        if (status == 0 && cuda_cut_freeze(group->tables[d], own, e) == EMBD_OK)
            continue;
        thaw_members(group);
        if (status != 0 || group->tables[d]->failed)
            return group_error(group, WIRE_LOST, "freezing", e);
        return e->status;
    }
    return EMBD_OK;
}

static int each_member(struct group *group, const struct store_cut *cut,
                       int (*step)(struct store *store, const struct store_cut *cut,
                                   struct embd__error *e),
                       struct embd__error *e)
{
    for (uint32_t d = 0; d < group->n; d++)
        if (device_use(group->tables[d]->device) != 0 || step(group->tables[d], cut, e) != EMBD_OK)
            return group_error(group, WIRE_LOST, "recording changes", e);
    return EMBD_OK;
}

static int nccl_freeze(struct store *store, struct store_cut *cut, struct embd__error *e)
{
    struct group *group = group_of(store);
    flow_wait_all(group);
    if (group->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
    group->cut_gone_at = group->cut_at = 0;
    group->cut_read = group->cut_waits_ms = 0;
    if (each_member(group, cut, cuda_cut_prepare, e) != EMBD_OK)
        return e->status;
    struct store_cut own = {.id = cut->id, .since = is_known(group, cut->since) ? cut->since : 0};
    cut->has_all = own.since == 0;
    if (freeze_members(group, &own, e) != EMBD_OK)
        return e->status;
    return each_member(group, cut, cuda_cut_note, e);
}

/* A member that returns nothing is asked again, until it counts as lost. */
static int look_at_progress(struct group *group, bool has_any, struct embd__error *e)
{
    uint64_t now_ms = wire_now_ms();
    if (has_any)
        group->cut_waits_ms = 0;
    else if (group->cut_waits_ms == 0)
        group->cut_waits_ms = now_ms;
    else if (now_ms - group->cut_waits_ms > group_patience_ms)
        return group_error(group, WIRE_LOST, "copying rows out", e);
    return EMBD_OK;
}

static int nccl_scan_frozen(struct store *store, uint32_t max_rows, struct store_scan *out,
                            bool *done_out, struct embd__error *e)
{
    struct group *group = group_of(store);
    bool is_done;
    *done_out = false;
    for (; group->cut_gone_at < group->n; group->cut_gone_at++)
        if (cuda_read_gone(group->tables[group->cut_gone_at], max_rows, out))
            return EMBD_OK;
    while (group->cut_read >> group->cut_at & 1)
        group->cut_at = (group->cut_at + 1) % group->n;
    struct store *table = group->tables[group->cut_at];
    int status = group->failed ? WIRE_LOST : device_use(table->device);
    if (status != 0)
        return group_error(group, status, "copying rows out", e);
    if (cuda_scan_frozen(table, max_rows, out, &is_done, e) != EMBD_OK)
        return e->status;
    group->cut_read |= (uint64_t)is_done << group->cut_at;
    group->cut_at = (group->cut_at + 1) % group->n;
    *done_out = group->cut_read == UINT64_MAX >> (64 - group->n);
    return look_at_progress(group, is_done || out->n_rows + out->n_candidates > 0, e);
}

static bool is_under_way(const struct group *group)
{
    for (uint32_t d = 0; d < group->n; d++)
        if (frozen_is_under_way(group->tables[d]))
            return true;
    return false;
}

/* A device may be stuck. The memory of a failed group is never freed. */
static void nccl_thaw(struct store *store)
{
    struct group *group = group_of(store);
    struct embd__error e = {.status = EMBD_OK};
    uint64_t end_ms = wire_now_ms() + group_patience_ms;
    while (!group->failed && is_under_way(group))
        if (wire_now_ms() > end_ms)
            group_error(group, WIRE_LOST, "ending a cut", &e);
    if (!group->failed)
        thaw_members(group);
}

static void nccl_forget(struct store *store, uint64_t cut)
{
    struct group *group = group_of(store);
    flow_wait_all(group);
    for (uint32_t d = 0; d < group->n && !group->failed; d++)
        cuda_forget(group->tables[d], cut);
}

/* ---- the rest ---- */

static int nccl_read(struct store *store, const struct store_read *read, struct embd__error *e)
{
    return group_read(group_of(store), read, e);
}

static int nccl_load(struct store *store, const struct row_block *block, struct embd__error *e)
{
    return group_load(group_of(store), block, e);
}

static void nccl_set_step(struct store *store, uint64_t step)
{
    struct group *group = group_of(store);
    for (uint32_t d = 0; d < group->n; d++)
        store_cuda.set_step(group->tables[d], step);
    group->step = step;
}

static void nccl_alter(struct store *store)
{
    struct group *group = group_of(store);
    set_member_schema(group, group->schema);
    for (uint32_t d = 0; d < group->n; d++)
        cuda_alter(group->tables[d]);
}

static void nccl_stats(const struct store *store, struct store_stats *out)
{
    const struct group *group = group_of(store);
    *out = (struct store_stats){0};
    for (uint32_t d = 0; d < group->n; d++) {
        struct store_stats s;
        store_cuda.stats(group->tables[d], &s);
        out->rows += s.rows;
        out->candidates += s.candidates;
        out->capacity += s.capacity;
        out->row_bytes += s.row_bytes;
        out->index_bytes += s.index_bytes;
        out->memory_bytes += s.memory_bytes;
        out->evicted += s.evicted;
        out->forgotten += s.forgotten;
    }
    out->steps = group->step;
    out->clock = group->tables[0]->clock;
}

/* The figure of all GPUs: one store has them all. */
static uint64_t nccl_memory(uint32_t *place_out)
{
    uint64_t bytes = 0;
    const char *why;
    int n = device_count(&why);
    *place_out = 0;
    for (int d = 0; d < n; d++)
        bytes += device_use(d) == 0 ? device_memory_free() : 0;
    return bytes;
}

static int nccl_erase(struct store *store, struct store_erase *erase, struct embd__error *e)
{
    return group_erase(group_of(store), erase, e);
}

const struct store_ops store_nccl = {
    .name = "nccl",
    .caps = {.is_async = true},
    .open = nccl_open,
    .close = nccl_close,
    .pull = nccl_pull,
    .prepare = nccl_prepare,
    .apply = nccl_apply,
    .cancel = nccl_cancel,
    .collect = nccl_collect,
    .scan = nccl_scan,
    .list = nccl_list,
    .read = nccl_read,
    .freeze = nccl_freeze,
    .scan_frozen = nccl_scan_frozen,
    .thaw = nccl_thaw,
    .forget = nccl_forget,
    .load = nccl_load,
    .set_step = nccl_set_step,
    .erase = nccl_erase,
    .alter = nccl_alter,
    .stats = nccl_stats,
    .memory = nccl_memory,
    .buffer_new = buffer_new,
    .buffer_free = buffer_free,
};
