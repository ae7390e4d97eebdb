/* deed_table.c - tables are created, dropped and loaded; streams are opened and set. */
#include "tests/engine/deeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/convert.h"
#include "server/engine/check.h"
#include "tests/engine/request.h"

/* ---- schemas ---- */

static const uint64_t slot_sizes[] = {9, 3, 14};

static const uint64_t pool[] = {
    0,          1,
    2,          3,
    4,          5,
    6,          7,
    8,          9,
    10,         11,
    12,         13,
    14,         15,
    16,         17,
    18,         19,
    UINT64_MAX, UINT64_MAX - 1,
    1ULL << 63, 0x9e3779b97f4a7c15ULL,
    1ULL << 32, 0xffffffffULL,
    1ULL << 54, 65536,
    1024,       0x123456789abcdefULL,
};

static embd_optimizer draw_optimizer(struct world *w)
{
    embd_optimizer o;
    embd_optimizer_init(&o, (embd_optimizer_kind)below(w, 8), 0.05f);
    o.update = (embd_update)below(w, 3);
    if (o.update == EMBD_UPDATE_LAZY_GLOBAL && o.kind != EMBD_OPTIMIZER_ADAM)
        o.update = EMBD_UPDATE_LOCAL;
    o.scaler = one_in(w, 3) ? 1024.0f : 1.0f;
    o.initial_accumulator = one_in(w, 2) ? 0.1f : 0.0f;
    o.l1 = 0.001f * (float)below(w, 4);
    o.l2 = 0.01f;
    o.beta = 0.5f;
    return o;
}

static void draw_limits(struct world *w, embd_schema *s)
{
    s->admit_after = below(w, 4);
    if (one_in(w, 3))
        return;
    s->on_full = (embd_on_full)(EMBD_ON_FULL_ERROR + below(w, 4));
    s->capacity = 3 + below(w, 30);
    s->ttl = 1 + below(w, 6);
}

embd_schema deeds_draw_schema(struct world *w, uint32_t table)
{
    embd_schema s;
    embd_schema_init(&s);
    snprintf(s.name, sizeof s.name, "table%u", table);
    s.dim = 1 + below(w, DIM_MOST);
    s.slots = 1 + below(w, 3);
    s.partition = (embd_partition)below(w, 3);
    s.combiner = (embd_combiner)below(w, 4);
    s.dtype = (embd_dtype)below(w, 3);
    s.optimizer = draw_optimizer(w);
    s.seed = dice_next(&w->dice);
    s.initializer.kind = one_in(w, 2) ? EMBD_INITIALIZER_UNIFORM : EMBD_INITIALIZER_NORMAL;
    if (s.initializer.kind == EMBD_INITIALIZER_NORMAL)
        s.initializer.a = 0.25f, s.initializer.b = 0.5f;
    if (one_in(w, 4)) {
        s.slots = 3;
        s.slot_sizes = slot_sizes;
        s.initializer.kind = EMBD_INITIALIZER_UNIFORM_SLOT;
    }
    draw_limits(w, &s);
    s.create_on = one_in(w, 3) ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
    s.durability = s.create_on == EMBD_CREATE_ON_PULL || one_in(w, 4) ? EMBD_DURABILITY_SNAPSHOT
                   : one_in(w, 2)                                     ? EMBD_DURABILITY_BUFFERED
                                                                      : EMBD_DURABILITY_DURABLE;
    return s;
}

/* ---- tables ---- */

struct pair deeds_pair(struct world *w, const struct table *table)
{
    return (struct pair){.ops = w->ops,
                         .store = table->store,
                         .schema = table->schema,
                         .model = model_new(&table->schema.s),
                         .dice = {dice_next(&w->dice)},
                         .pool = pool,
                         .n_pool = sizeof pool / sizeof pool[0]};
}

void deed_create(struct world *w)
{
    struct op op = {.engine = NULL};
    struct embd__error e = {.status = EMBD_OK};
    uint32_t i = below(w, TABLES);
    bool is_there = world_has(w, i), differs = is_there && one_in(w, 2);
    embd_schema s = is_there ? w->tables[i].schema.s : deeds_draw_schema(w, i);
    s.dim += differs;
    op_begin(&op, &w->engine, OP_TABLE_CREATE);
    if (embd__schema_copy(&op.as.schema, &s, &e) != EMBD_OK ||
        embd__schema_check(&op.as.schema.s, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    world_submit(w, &op);
    assert_int_equal(op.error.status, differs ? EMBD_EXISTS : EMBD_OK);
    assert_int_equal(op.created, !is_there);
    seen.unequal += differs;
    if (!is_there)
        w->tables[i] = deeds_pair(w, op.table);
    embd__schema_fini(&op.as.schema);
    op_fini(&op);
}

void deed_drop(struct world *w)
{
    struct op op = {.engine = NULL};
    uint32_t i = world_draw_table(w);
    if (i == TABLES)
        return;
    op_begin(&op, &w->engine, OP_TABLE_DROP);
    op.as.dropped = world_table(w, i);
    world_submit(w, &op);
    assert_int_equal(op.error.status, EMBD_OK);
    model_free(w->tables[i].model);
    w->tables[i] = (struct pair){.model = NULL};
    for (uint32_t stream = 0; stream < 2 * STREAMS; stream++)
        w->streams[stream % 2][stream / 2].tables &= ~(1u << i);
    op_fini(&op);
}

/* ---- loads ---- */

struct load {
    uint32_t n, n_candidates;
    uint64_t keys[ROWS_MOST], candidate_keys[ROWS_MOST];
    uint16_t slots[ROWS_MOST], candidate_slots[ROWS_MOST];
    uint32_t counts[ROWS_MOST];
    float values[ROWS_MOST * DIM_MOST], states[ROWS_MOST * (2 * DIM_MOST + 8)];
    _Alignas(8) uint8_t rows[ROWS_MOST * DIM_MOST * 4];
};

static bool has_key(const struct load *l, uint64_t key, uint16_t slot)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->keys[i] == key && l->slots[i] == slot)
            return true;
    for (uint32_t i = 0; i < l->n_candidates; i++)
        if (l->candidate_keys[i] == key && l->candidate_slots[i] == slot)
            return true;
    return false;
}

/* Keys that differ: rows, candidates for keys without a row, or keys to be forgotten. */
static void draw_keys(struct world *w, struct pair *table, bool is_gone, struct load *l)
{
    struct batch batch;
    uint32_t admit_after = table->schema.s.admit_after;
    batch_draw(table, &batch, below(w, ROWS_MOST / 2), 1, true, false);
    l->n = l->n_candidates = 0;
    for (uint32_t i = 0; i < batch.in.n_keys; i++) {
        uint64_t key = batch.keys[i];
        uint16_t slot = batch.slots ? batch.slots[i] : 0;
        const struct model_key *k = model_find(table->model, key, slot);
        bool is_candidate =
            is_gone || (admit_after > 1 && (k == NULL || !k->has_row) && one_in(w, 3));
        if (has_key(l, key, slot))
            continue;
        uint32_t at = is_candidate ? l->n_candidates++ : l->n++;
        (is_candidate ? l->candidate_keys : l->keys)[at] = key;
        (is_candidate ? l->candidate_slots : l->slots)[at] = slot;
        if (is_candidate)
            l->counts[at] = is_gone ? 0 : 1 + below(w, admit_after - 1);
    }
    batch_free(&batch);
}

/* Values and states; the steps in states are those of a table that was pushed `step` times. */
static void draw_rows(struct world *w, const struct pair *table, uint64_t step, struct load *l)
{
    const embd_schema *s = &table->schema.s;
    uint32_t n = table->model->state_floats, n_own = table->model->optimizer_floats;
    uint32_t use_at = table->model->use_at;
    for (uint32_t i = 0; i < l->n * s->dim; i++)
        l->values[i] = (float)below(w, 64) / 16.0f - 2.0f;
    embd__from_f32(l->rows, s->dtype, l->values, l->n * s->dim);
    for (uint32_t i = 0; i < l->n; i++) {
        float *state = l->states + (size_t)i * n;
        for (uint32_t f = 0; f < n; f++)
            state[f] = f < n_own ? (float)below(w, 16) / 8.0f : 0.0f;
        if (use_at > n_own)
            state[n_own] = (float)(1 + below(w, (uint32_t)step));
        if (n > use_at)
            state[use_at] = (float)(1 + below(w, (uint32_t)step));
        if (n > use_at + 2)
            state[use_at + 2] = (float)below(w, 5);
    }
}

static struct row_block block_of(const struct pair *table, const struct load *l)
{
    bool has_slots = table->schema.s.partition == EMBD_PARTITION_SLOT;
    return (struct row_block){.n_rows = l->n,
                              .n_candidates = l->n_candidates,
                              .keys = l->keys,
                              .slots = has_slots ? l->slots : NULL,
                              .rows = l->rows,
                              .states = table->model->state_floats > 0 ? l->states : NULL,
                              .candidate_keys = l->candidate_keys,
                              .candidate_slots = has_slots ? l->candidate_slots : NULL,
                              .candidate_counts = l->counts};
}

/* A load evicts nothing. */
static bool has_room(const struct model *model, const struct load *l)
{
    uint64_t n_rows = model->n_rows;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct model_key *k = model_find(model, l->keys[i], l->slots[i]);
        n_rows += k == NULL || !k->has_row;
    }
    return model->schema.on_full == EMBD_ON_FULL_GROW || n_rows <= model->schema.capacity;
}

static void load_model(struct model *model, const struct load *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        model_set_row(model, l->keys[i], l->slots[i], l->values + i * model->schema.dim,
                      l->states + i * model->state_floats);
    for (uint32_t i = 0; i < l->n_candidates; i++)
        model_set_candidate(model, l->candidate_keys[i], l->candidate_slots[i], l->counts[i]);
}

static void forget_keys(struct model *model, const struct load *l)
{
    const struct model_batch gone = {.n_keys = l->n_candidates,
                                     .n_rows = l->n_candidates,
                                     .keys = l->candidate_keys,
                                     .slots = l->candidate_slots};
    model_erase(model, &gone, NULL);
    seen.gone += l->n_candidates;
}

static void check(const struct op_load *load)
{
    const struct routed_place anywhere = {.n_shards = 1};
    struct embd__error e = {.status = EMBD_OK};
    if (check_block(load->table, &load->block, load->fields.is_gone, &anywhere, &e) != EMBD_OK ||
        check_states(load->table, &load->block, &e) != EMBD_OK)
        fail_msg("%s", e.text);
}

void deeds_load(struct world *w, struct pair *pair, struct table *table, uint64_t staged)
{
    static struct load l;
    struct op op = {.engine = NULL};
    struct model *model = pair->model;
    bool is_gone = one_in(w, 4), has_step = model->step == 0 || one_in(w, 3);
    uint64_t step = has_step ? model->step + 1 + below(w, 4) : model->step;
    draw_keys(w, pair, is_gone, &l);
    draw_rows(w, pair, step, &l);
    op_begin(&op, &w->engine, OP_LOAD);
    op.as.load = (struct op_load){
        .table = table,
        .block = block_of(pair, &l),
        .fields = {.is_gone = is_gone, .has_step = has_step, .step = step, .staged = staged}};
    check(&op.as.load);
    world_submit(w, &op);
    bool is_full = !has_room(model, &l);
    assert_int_equal(op.error.status, is_full ? EMBD_FULL : EMBD_OK);
    seen.full_loads += is_full;
    seen.steps_set += !is_full && has_step;
    if (!is_full && is_gone)
        forget_keys(model, &l);
    else if (!is_full)
        load_model(model, &l);
    if (!is_full)
        model->step = step;
    op_fini(&op);
}

void deed_load(struct world *w)
{
    uint32_t i = world_draw_table(w);
    if (i < TABLES)
        deeds_load(w, &w->tables[i], world_table(w, i), 0);
}

/* ---- streams ---- */

void deed_open_stream(struct world *w)
{
    struct op op = {.engine = NULL};
    bool is_journaled = one_in(w, 2), forgets = one_in(w, 4);
    uint32_t i = below(w, STREAMS), other = below(w, STREAMS);
    struct stream *stream = &w->streams[is_journaled][i];
    bool was_open = stream->is_open;
    op_begin(&op, &w->engine, OP_STREAM_OPEN);
    op.as.opening = (struct stream_opening){.stream = stream_id(i),
                                            .is_journaled = is_journaled,
                                            .principal = below(w, 3),
                                            .forgets = forgets,
                                            .forgotten = stream_id(other)};
    world_submit(w, &op);
    assert_int_equal(op.error.status, EMBD_OK);
    assert_int_equal(op.created, !was_open);
    if (!was_open && forgets)
        w->streams[is_journaled][other].is_open = false;
    if (!was_open)
        *stream = (struct stream){true, op.as.opening.principal, 0, 0};
    assert_int_equal(op.last, stream->last);
    op_fini(&op);
}

void deed_set_streams(struct world *w)
{
    struct op op = {.engine = NULL};
    struct push_stream list[STREAMS];
    bool is_journaled = one_in(w, 2);
    uint32_t n = 1 + below(w, 3), first = below(w, STREAMS);
    for (uint32_t i = 0; i < n; i++) {
        struct push_number id = stream_id((first + i) % STREAMS);
        struct stream *stream = &w->streams[is_journaled][id.stream];
        seen.replaced_streams += stream->is_open;
        *stream = (struct stream){true, below(w, 3), below(w, 9), ANY_TABLE};
        list[i] = (struct push_stream){id.high, id.low, stream->last, id.stream, stream->principal};
    }
    op_begin(&op, &w->engine, OP_STREAMS);
    op.as.streams = (struct op_streams){.list = list, .n = n, .is_journaled = is_journaled};
    world_submit(w, &op);
    assert_int_equal(op.error.status, EMBD_OK);
    op_fini(&op);
}
