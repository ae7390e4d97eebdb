/* batch.c - cuts a request into one batch for each device: ascending rows, of about equal numbers.
 * Each device then groups its batch by owner. Memory of the caller that is not pinned is staged in
 * pinned memory, because any other copy would make the host wait for the device. */
#include "server/store/nccl/group.h"

#include <string.h>

static const struct store_keys *keys_of(const struct flow *flow)
{
    if (flow->kind == CALL_PULL)
        return &flow->pull->in;
    return &flow->change->in;
}

static uint8_t *statuses_of(const struct flow *flow)
{
    if (flow->kind == CALL_PULL)
        return flow->pull->statuses;
    return flow->change->statuses;
}

/* The whole request, as one batch. */
static struct device_batch whole(const struct flow *flow)
{
    const struct store_keys *in = keys_of(flow);
    bool is_pull = flow->kind == CALL_PULL;
    uint32_t row = is_pull ? flow->pull->first : 0,
             n_rows = is_pull ? flow->pull->count : in->n_rows,
             begin = in->offsets ? in->offsets[row] : row,
             end = in->offsets ? in->offsets[row + n_rows] : row + n_rows;
    return (struct device_batch){
        .n_rows = n_rows,
        .n_keys = end - begin,
        .first = begin,
        .keys = in->keys + begin,
        .offsets = in->offsets ? in->offsets + row : NULL,
        .slots = in->slots ? in->slots + row : NULL,
        .weights = in->weights ? in->weights + begin : NULL,
        .scores = in->scores ? in->scores + begin : NULL,
        .grads = flow->kind == CALL_PUSH ? flow->change->grads : NULL,
        .values = is_pull ? flow->pull->values : NULL,
        .statuses = statuses_of(flow) ? statuses_of(flow) + (is_pull ? begin : 0) : NULL,
    };
}

static uint32_t row_bytes(const struct flow *flow)
{
    embd_dtype dtype = flow->kind == CALL_PULL   ? flow->pull->dtype
                       : flow->kind == CALL_PUSH ? flow->change->dtype
                                                 : EMBD_DTYPE_F32;
    return flow->group->schema->s.dim * element_bytes(dtype);
}

/* Copies what is not pinned to a piece of pinned memory. */
static const void *stage(struct arena *arena, const void *from, uint64_t bytes)
{
    if (from == NULL || memory_kind(from) != MEMORY_HOST)
        return from;
    void *to = arena_take(arena, bytes);
    if (to != NULL && bytes)
        memcpy(to, from, bytes);
    return to;
}

static void lay_out_pinned(struct flow *flow, struct device_batch *all, struct arena *arena)
{
    uint64_t n = all->n_keys, rows = all->n_rows, values = rows * row_bytes(flow);
    for (uint32_t d = 0; d < flow->group->n; d++)
        flow->members[d].report = arena_take(arena, sizeof *flow->members[d].report);
    all->keys = stage(arena, all->keys, n * sizeof *all->keys);
    all->offsets = stage(arena, all->offsets, (rows + 1) * sizeof *all->offsets);
    all->slots = stage(arena, all->slots, rows * sizeof *all->slots);
    all->weights = stage(arena, all->weights, n * sizeof *all->weights);
    all->scores = stage(arena, all->scores, n * sizeof *all->scores);
    all->grads = stage(arena, all->grads, values);
    flow->statuses = all->statuses ? arena_take(arena, n) : NULL;
    bool is_direct = all->values == NULL || memory_kind(all->values) != MEMORY_HOST;
    flow->values = is_direct ? NULL : arena_take(arena, values);
}

static struct device_batch cut(const struct flow *flow, const struct device_batch *all,
                               const uint32_t *offsets, uint32_t row, uint32_t end)
{
    struct device_batch b = *all;
    uint32_t key = offsets ? offsets[row] - all->first : row;
    uint64_t values_at = (uint64_t)row * row_bytes(flow);
    b.n_rows = end - row;
    b.n_keys = (offsets ? offsets[end] - all->first : end) - key;
    b.first = all->first + key;
    b.keys += key;
    b.offsets = all->offsets ? all->offsets + row : NULL;
    b.slots = all->slots ? all->slots + row : NULL;
    b.weights = all->weights ? all->weights + key : NULL;
    b.scores = all->scores ? all->scores + key : NULL;
    b.grads = all->grads ? all->grads + values_at : NULL;
    if (all->values)
        b.values = (flow->values ? flow->values : all->values) + values_at;
    b.statuses = flow->statuses ? flow->statuses + key : NULL;
    return b;
}

int batch_cut(struct flow *flow)
{
    struct device_batch all = whole(flow), staged;
    struct arena arena = {.base = NULL};
    uint32_t n = flow->group->n, share = (all.n_rows + n - 1) / n;
    staged = all;
    lay_out_pinned(flow, &staged, &arena);
    flow->pinned_bytes = arena.bytes;
    flow->pinned = buffer_new(arena.bytes);
    if (flow->pinned == NULL)
        return DEVICE_NO_MEMORY;
    arena = (struct arena){.base = flow->pinned};
    staged = all;
    lay_out_pinned(flow, &staged, &arena);
    flow->n_keys = all.n_keys;
    flow->statuses_out = all.statuses;
    flow->values_out = flow->values ? all.values : NULL;
    flow->values_bytes = (uint64_t)all.n_rows * row_bytes(flow);
    for (uint32_t d = 0, row = 0; d < n; d++) {
        uint32_t end = all.n_rows - row < share ? all.n_rows : row + share;
        flow->members[d].batch = cut(flow, &staged, all.offsets, row, end);
        row = end;
    }
    return 0;
}

/* ---- on the device ---- */

static void lay_out_batch(const struct flow *flow, struct device_batch *b, bool is_there,
                          struct arena *arena)
{
    if (is_there)
        return;
    uint64_t n = b->n_keys, rows = b->n_rows;
    b->keys = arena_take(arena, n * sizeof *b->keys);
    b->offsets = b->offsets ? arena_take(arena, (rows + 1) * sizeof *b->offsets) : NULL;
    b->slots = b->slots ? arena_take(arena, rows * sizeof *b->slots) : NULL;
    b->weights = b->weights ? arena_take(arena, n * sizeof *b->weights) : NULL;
    b->scores = b->scores ? arena_take(arena, n * sizeof *b->scores) : NULL;
    b->grads = b->grads ? arena_take(arena, rows * row_bytes(flow)) : NULL;
}

static void lay_out_route(const struct flow *flow, struct member *m, struct arena *arena)
{
    struct route_view *r = &m->route;
    const struct device_batch *b = &m->batch;
    uint64_t n_items = flow->item == ITEM_ROW    ? b->n_rows
                       : flow->item == ITEM_PART ? (uint64_t)b->n_rows * flow->group->n
                                                 : b->n_keys;
    size_t sort = flow->item == ITEM_PART ? 0 : sort_bytes((uint32_t)n_items),
           sum = sum_bytes((uint32_t)n_items);
    uint64_t n_sorted = flow->item == ITEM_PART ? 0 : n_items;
    *r = (struct route_view){
        .partition = flow->group->schema->s.partition,
        .n_devices = flow->group->n,
        .n_items = (uint32_t)n_items,
        .n_keys = b->n_keys,
        .n_rows = flow->item == ITEM_PART ? b->n_rows : 0,
        .first = b->first,
        .owners = arena_take(arena, n_sorted * sizeof *r->owners),
        .sorted = arena_take(arena, n_sorted * sizeof *r->sorted),
        .numbers = arena_take(arena, n_sorted * sizeof *r->numbers),
        .order = arena_take(arena, n_items * sizeof *r->order),
        .report = m->report,
    };
    r->key_order = r->order;
    m->temp = arena_take(arena, sort > sum ? sort : sum);
    if (flow->lanes[LANE_STARTS].bytes) {
        r->lengths = arena_take(arena, (n_items + 1) * sizeof *r->lengths);
        r->grouped = arena_take(arena, (n_items + 1) * sizeof *r->grouped);
        r->key_order = arena_take(arena, b->n_keys * sizeof *r->key_order);
    }
    m->row_of = NULL;
    if (flow->has_offsets && flow->item == ITEM_KEY)
        m->row_of = arena_take(arena, b->n_keys * sizeof *m->row_of);
}

/* Lays out what comes back and what a pull makes of it; pinned memory of the caller is used
 * directly. */
static void lay_out_answers(const struct flow *flow, struct member *m, bool is_there,
                            struct arena *arena)
{
    const struct device_batch *b = &m->batch;
    struct lane_ends *lanes = m->lanes;
    m->values = b->values;
    if (b->values && !is_there && memory_kind(b->values) != MEMORY_PINNED)
        m->values = arena_take(arena, (uint64_t)b->n_rows * row_bytes(flow));
    m->refs = arena_take(arena, b->n_keys * sizeof *m->refs);
    lanes[LANE_STATUSES].home = arena_take(arena, b->statuses ? b->n_keys : 0);
    lanes[LANE_ROWS].home = m->values;
    if (flow->item != ITEM_ROW)
        lanes[LANE_ROWS].home =
            arena_take(arena, (uint64_t)m->route.n_items * flow->lanes[LANE_ROWS].bytes);
}

static uint8_t *plain(const void *memory)
{
    return (uint8_t *)(uintptr_t)memory;
}

static void set_lanes(struct flow *flow, struct member *m)
{
    const struct device_batch *b = &m->batch;
    struct lane_ends *lanes = m->lanes;
    m->route.keys = b->keys;
    m->route.offsets = flow->lanes[LANE_STARTS].bytes ? b->offsets : NULL;
    m->route.slots = b->slots;
    lanes[LANE_KEYS] = (struct lane_ends){.home = plain(b->keys), .order = m->route.key_order};
    lanes[LANE_WEIGHTS] =
        (struct lane_ends){.home = plain(b->weights), .order = m->route.key_order};
    lanes[LANE_SCORES] = (struct lane_ends){.home = plain(b->scores), .order = m->route.key_order};
    lanes[LANE_SLOTS] = (struct lane_ends){.home = plain(b->slots), .order = m->route.order};
    lanes[LANE_STARTS] = (struct lane_ends){.home = plain(m->route.grouped)};
    lanes[LANE_GRADS] =
        (struct lane_ends){.home = plain(b->grads), .order = m->row_of ? m->refs : m->route.order};
    lanes[LANE_PLACES] =
        (struct lane_ends){.home = plain(m->route.numbers), .order = m->route.order};
    lanes[LANE_ROWS].order = flow->item == ITEM_PART ? NULL : m->route.order;
    lanes[LANE_STATUSES].order = m->route.key_order;
}

static int copy_there(const struct flow *flow, const struct device_batch *from,
                      const struct device_batch *to, void *stream)
{
    uint64_t n = from->n_keys, rows = from->n_rows;
    int status = device_copy(plain(to->keys), from->keys, n * sizeof *to->keys, stream);
    if (status == 0 && from->offsets)
        status = device_copy(plain(to->offsets), from->offsets, (rows + 1) * sizeof *to->offsets,
                             stream);
    if (status == 0 && from->slots)
        status = device_copy(plain(to->slots), from->slots, rows * sizeof *to->slots, stream);
    if (status == 0 && from->weights)
        status = device_copy(plain(to->weights), from->weights, n * sizeof *to->weights, stream);
    if (status == 0 && from->scores)
        status = device_copy(plain(to->scores), from->scores, n * sizeof *to->scores, stream);
    if (status == 0 && from->grads)
        status = device_copy(plain(to->grads), from->grads, rows * row_bytes(flow), stream);
    return status;
}

/* Takes memory on the device and copies the batch there. */
static int settle(struct flow *flow, struct member *m, bool is_there, void *stream)
{
    struct device_batch from = m->batch;
    int status = device_use(m->table->device);
    for (int turn = 0; turn < 2 && status == 0; turn++) {
        struct arena arena = {.base = turn ? m->home.memory : NULL};
        m->batch = from;
        lay_out_batch(flow, &m->batch, is_there, &arena);
        lay_out_route(flow, m, &arena);
        lay_out_answers(flow, m, is_there, &arena);
        if (turn == 0)
            status = block_need(&m->home, arena.bytes);
    }
    set_lanes(flow, m);
    if (status == 0 && !is_there)
        status = copy_there(flow, &from, &m->batch, stream);
    return status;
}

static int bits_for(uint32_t n)
{
    int bits = 1;
    while (n >> bits)
        bits++;
    return bits;
}

static int sum_lengths(const struct member *m, void *stream)
{
    const struct route_view *r = &m->route;
    return launch_sums(m->temp, sum_bytes(r->n_items), r->lengths, r->grouped, r->n_items, stream);
}

static int group_keys(const struct member *m, void *stream)
{
    int status = launch_lengths(m->route, stream);
    if (status == 0)
        status = sum_lengths(m, stream);
    return status ? status : launch_key_order(m->route, stream);
}

/* Finds the row of each key, whose gradient the key takes. */
static int find_rows(const struct member *m, void *stream)
{
    struct keys_view in = {.n = m->batch.n_keys,
                           .n_rows = m->batch.n_rows,
                           .first = m->batch.first,
                           .offsets = m->batch.offsets,
                           .row_of = m->row_of};
    int status = launch_expand(in, stream);
    return status ? status : launch_compose(m->row_of, m->route.order, m->refs, in.n, stream);
}

static int route_parts(const struct member *m, void *stream)
{
    int status = launch_parts(m->route, stream);
    if (status == 0)
        status = sum_lengths(m, stream);
    if (status == 0)
        status = launch_part_keys(m->route, stream);
    return status ? status : launch_report(m->route, stream);
}

static int route(const struct flow *flow, const struct member *m, void *stream)
{
    const struct route_view *r = &m->route;
    if (flow->item == ITEM_PART)
        return route_parts(m, stream);
    int status = launch_route(*r, stream);
    if (status == 0)
        status = launch_sort(m->temp, sort_bytes(r->n_items), r->owners, r->sorted, r->numbers,
                             r->order, r->n_items, bits_for(r->n_devices), stream);
    if (status == 0 && r->offsets)
        status = group_keys(m, stream);
    if (status == 0 && m->row_of && flow->kind == CALL_PUSH)
        status = find_rows(m, stream);
    if (status == 0)
        status = launch_report(*r, stream);
    return status;
}

int batch_route(struct flow *flow, bool is_there)
{
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        struct member *m = &flow->members[d];
        status = settle(flow, m, is_there, flow->group->route_streams[d]);
        if (status == 0)
            status = route(flow, m, flow->group->route_streams[d]);
    }
    return status;
}
