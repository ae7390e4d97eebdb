/* pull.c - a pull, once its keys are grouped: keys go to their owners, which look them up, and rows
 * come back. The home of a hash or modulo table gets rows as they are stored, in the order of its
 * keys, and pools them with the cuda store's kernel as if they were a table's rows; or it gets a
 * partial sum of every row from every owner, and adds these. */
#include "server/store/nccl/group.h"

static void lay_out(struct flow *flow, uint32_t device, struct arena *arena)
{
    struct member *m = &flow->members[device];
    exchange_lay_out(flow, device, arena);
    m->found = arena_take(arena, (uint64_t)m->in.n * sizeof *m->found);
    if (flow->item == ITEM_ROW && flow->lanes[LANE_STARTS].bytes)
        m->in.row_of = arena_take(arena, (uint64_t)m->in.n * sizeof *m->in.row_of);
}

static int take_memory(struct flow *flow)
{
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        struct arena arena = {.base = NULL};
        lay_out(flow, d, &arena);
        status = device_use(flow->group->tables[d]->device);
        if (status == 0)
            status = block_need(&flow->members[d].owner, arena.bytes);
        arena = (struct arena){.base = flow->members[d].owner.memory};
        if (status == 0)
            lay_out(flow, d, &arena);
    }
    return status;
}

static bool aligned(const void *memory, uint32_t dim, embd_dtype dtype)
{
    return dim % 4 == 0 && (uintptr_t)memory % (dtype == EMBD_DTYPE_F32 ? 16 : 8) == 0;
}

/* Whether what comes back is the answer as it is. */
static bool is_whole(const struct flow *flow)
{
    const struct table_view *t = &flow->group->tables[0]->view;
    for (uint32_t d = 0; d < flow->group->n; d++)
        if ((uintptr_t)flow->members[d].batch.values % 16 != 0)
            return false;
    return flow->pull->dtype == t->dtype && !embd__dtype_is_coded(t->dtype) && !flow->has_offsets &&
           t->dim * element_bytes(t->dtype) == t->stride;
}

/* Whether the owner stores rows right where the home wants them. It always reaches its own home.
 * Other rows are stored grouped and go home by NCCL. */
static bool is_reached(const struct flow *flow, uint32_t owner, uint32_t home)
{
    return flow_stores_at_home(flow) || home == owner;
}

static uint8_t *rows_of(const struct flow *flow, uint32_t owner, uint32_t home)
{
    uint32_t bytes = flow->lanes[LANE_ROWS].bytes;
    if (!is_reached(flow, owner, home))
        return flow->members[owner].lanes[LANE_ROWS].owner +
               (uint64_t)flow->items.got[owner].at[home] * bytes;
    uint8_t *rows = flow->members[home].lanes[LANE_ROWS].home;
    return flow->item == ITEM_PART ? rows + (uint64_t)flow->items.sent[home].at[owner] * bytes
                                   : rows;
}

static const uint32_t *places_of(const struct flow *flow, uint32_t owner, uint32_t home)
{
    const struct member *m = &flow->members[owner];
    if (flow->item == ITEM_PART || !is_reached(flow, owner, home))
        return NULL;
    if (home == owner)
        return m->route.order + flow->items.sent[home].at[owner];
    return (const uint32_t *)(void *)m->lanes[LANE_PLACES].owner + flow->items.got[owner].at[home];
}

static struct delivery delivery_of(const struct flow *flow, uint32_t owner)
{
    struct delivery d = {
        .to = {.n = flow->group->n, .first = owner, .starts = flow->items.got[owner]},
        .skips_empty = flow->item == ITEM_PART};
    for (uint32_t home = 0; home < d.to.n; home++) {
        d.to.at[home] = rows_of(flow, owner, home);
        d.places[home] = places_of(flow, owner, home);
    }
    return d;
}

/* The result of an owner, unless it returns rows as they are stored: pooled rows, or partial
 * sums. */
static struct pull_view answer_of(const struct flow *flow, const struct member *m,
                                  const struct delivery *d)
{
    const struct store_pull *pull = flow->pull;
    struct pull_view view = {
        .in = m->in,
        .dtype = flow->item == ITEM_ROW ? pull->dtype : EMBD_DTYPE_F32,
        .zero_missing = pull->zero_missing,
        .divide = flow->item == ITEM_ROW && pull->scale ? flow->group->schema->s.combiner
                                                        : EMBD_COMBINER_CONCAT,
        .is_aligned = true,
        .statuses = flow->lanes[LANE_STATUSES].bytes ? m->lanes[LANE_STATUSES].owner : NULL,
    };
    for (uint32_t home = 0; home < d->to.n; home++)
        view.is_aligned &= aligned(d->to.at[home], m->table->view.dim, view.dtype);
    return view;
}

static int pool_to_homes(const struct flow *flow, const struct member *m, struct delivery d)
{
    struct pull_view view = answer_of(flow, m, &d);
    void *stream = m->table->stream;
    int status = launch_find(m->table->view, view.in, m->found, view.statuses, stream);
    return status ? status : launch_pool_to(m->table->view, view, m->found, d, stream);
}

static int deliver(const struct flow *flow, uint32_t device)
{
    const struct member *m = &flow->members[device];
    struct delivery d = delivery_of(flow, device);
    if (flow->item == ITEM_PART || (flow->item == ITEM_ROW && !is_whole(flow)))
        return pool_to_homes(flow, m, d);
    return launch_deliver(m->table->view, m->in, d, flow->pull->zero_missing,
                          flow->lanes[LANE_STATUSES].bytes ? m->lanes[LANE_STATUSES].owner : NULL,
                          m->table->stream);
}

/* The output of the batch. */
static struct pull_view values_of(const struct flow *flow, const struct member *m)
{
    const struct device_batch *b = &m->batch;
    embd_dtype dtype = flow->pull->dtype;
    return (struct pull_view){
        .in = {.n = b->n_keys,
               .n_rows = b->n_rows,
               .first = b->first,
               .keys = b->keys,
               .offsets = b->offsets,
               .weights = b->weights},
        .dtype = dtype,
        .divide = flow->pull->scale ? flow->group->schema->s.combiner : EMBD_COMBINER_CONCAT,
        .values = m->values,
        .is_aligned = aligned(m->values, m->table->view.dim, dtype),
    };
}

/* Pools what came back: rows, or their partial sums. */
static int pool_at_home(const struct flow *flow, const struct member *m, void *stream)
{
    struct table_view t = m->table->view;
    struct pull_view view = values_of(flow, m);
    if (flow->item == ITEM_PART) {
        struct parts_view parts = {.n_devices = flow->group->n,
                                   .grouped = m->route.grouped,
                                   .parts = (const float *)(void *)m->lanes[LANE_ROWS].home};
        return launch_add_parts(t.dim, view, parts, stream);
    }
    t.values = m->lanes[LANE_ROWS].home;
    int status = launch_numbers(m->refs, 1, m->batch.n_keys, stream);
    return status ? status : launch_pool(t, view, m->refs, stream);
}

static int hand_over(const struct flow *flow, const struct member *m, void *stream)
{
    const struct device_batch *b = &m->batch;
    int status = 0;
    if (m->values != b->values)
        status = device_copy(
            b->values, m->values,
            (uint64_t)b->n_rows * m->table->view.dim * element_bytes(flow->pull->dtype), stream);
    if (status == 0 && flow->lanes[LANE_STATUSES].bytes)
        status = device_copy(b->statuses, m->lanes[LANE_STATUSES].home, b->n_keys, stream);
    return status;
}

static int look_up_all(struct flow *flow)
{
    struct group *group = flow->group;
    int status = 0;
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        status = device_use(group->tables[d]->device);
        if (status == 0)
            status = deliver(flow, d);
    }
    return status;
}

/* Whether work is left after owners have stored their rows. */
static bool is_followed(const struct flow *flow, bool is_pooled)
{
    bool is_copied = false;
    for (uint32_t d = 0; d < flow->group->n; d++)
        is_copied |= flow->members[d].values != flow->members[d].batch.values;
    return !flow_stores_at_home(flow) || is_pooled || is_copied || flow->lanes[LANE_STATUSES].bytes;
}

/* Brings results home after the lookup, on the finish streams. */
static int bring_back(struct flow *flow, bool is_pooled)
{
    struct group *group = flow->group;
    int status = exchange_back(flow, flow_stores_at_home(flow) ? LANE_STATUSES : LANE_ROWS);
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        const struct member *m = &flow->members[d];
        status = device_use(m->table->device);
        if (status == 0 && is_pooled)
            status = pool_at_home(flow, m, group->finish_streams[d]);
        if (status == 0)
            status = hand_over(flow, m, group->finish_streams[d]);
    }
    return status;
}

int pull_run(struct flow *flow)
{
    struct group *group = flow->group;
    bool is_pooled = flow->item != ITEM_ROW && !is_whole(flow);
    for (uint32_t d = 0; d < group->n && !is_pooled; d++)
        flow->members[d].lanes[LANE_ROWS].home = flow->members[d].values;
    int status = take_memory(flow);
    if (status == 0)
        status = exchange_out(flow);
    if (status == 0)
        status = look_up_all(flow);
    return status == 0 && is_followed(flow, is_pooled) ? bring_back(flow, is_pooled) : status;
}
