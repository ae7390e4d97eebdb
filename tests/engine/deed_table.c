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
    embd_optimizer_init(&o, (embd_optimizer_kind)below(w, EMBD_OPTIMIZER_COUNTER_ADAGRAD + 1),
                        0.05f);
    o.update = o.kind > EMBD_OPTIMIZER_FTRL ? EMBD_UPDATE_LOCAL : (embd_update)below(w, 3);
    if (o.update == EMBD_UPDATE_LAZY_GLOBAL && o.kind != EMBD_OPTIMIZER_ADAM)
        o.update = EMBD_UPDATE_LOCAL;
    o.scaler = one_in(w, 3) ? 1024.0f : 1.0f;
    o.initial_accumulator = one_in(w, 2) ? 0.1f : 0.0f;
    o.l1 = 0.001f * (float)below(w, 4);
    o.l2 = 0.01f;
    o.beta = 0.5f;
    return o;
}

/* Where the optimizer allows it. */
static void draw_regularization(struct world *w, embd_schema *s)
{
    embd_schema drawn = *s;
    embd_regularization *r = &drawn.regularization;
    if (!one_in(w, 3))
        return;
    r->clip_value = one_in(w, 3) ? 0.5f : 0.0f;
    r->clip_norm = one_in(w, 3) ? 0.75f : 0.0f;
    r->weight_decay = one_in(w, 2) ? 0.0625f : 0.0f;
    r->decay = (embd_decay)below(w, 3);
    r->max_norm = one_in(w, 3) ? 0.25f : 0.0f;
    r->lr_decay = one_in(w, 3) ? 0.5f : 0.0f;
    r->counter_halflife = one_in(w, 2) ? 3.0f : 0.0f;
    if (one_in(w, 3))
        r->weight_min = -0.02f;
    if (embd_schema_check(&drawn) == EMBD_OK)
        *s = drawn;
}

static void draw_limits(struct world *w, embd_schema *s)
{
    s->admit_after = below(w, 4);
    if (one_in(w, 3))
        return;
    s->on_full = (embd_on_full)(EMBD_ON_FULL_ERROR + below(w, 5));
    s->capacity = 3 + below(w, 30);
    s->ttl = 1 + below(w, 6);
    if (s->on_full == EMBD_ON_FULL_EVICT_TTL && one_in(w, 2)) {
        s->ttl_seconds = s->ttl;
        s->ttl = 0;
    }
    s->lfu_half_life = below(w, 5);
    s->lfu_occurrences = one_in(w, 2);
}

/* The first two would have the same id. */
static const char *const names[TABLES] = {"good_53", "evil_1720fa9", "table2", "table3", "table4"};

embd_schema deeds_draw_schema(struct world *w, uint32_t table)
{
    embd_schema s;
    embd_schema_init(&s);
    snprintf(s.name, sizeof s.name, "%s", names[table]);
    s.dim = 1 + below(w, DIM_MOST);
    s.slots = 1 + below(w, 3);
    s.partition = (embd_partition)below(w, 3);
    s.combiner = (embd_combiner)below(w, 4);
    s.dtype = pair_dtypes[below(w, PAIR_DTYPES)];
    s.optimizer = draw_optimizer(w);
    if (model_has_codes(s.dtype))
        s.optimizer.update = EMBD_UPDATE_LOCAL;
    s.seed = dice_next(&w->dice);
    if (s.dtype != EMBD_DTYPE_F32 && one_in(w, 2))
        s.rounding = s.optimizer.update == EMBD_UPDATE_GLOBAL || one_in(w, 2)
                         ? EMBD_ROUNDING_MASTER
                         : EMBD_ROUNDING_STOCHASTIC;
    s.initializer.kind = one_in(w, 2) ? EMBD_INITIALIZER_UNIFORM : EMBD_INITIALIZER_NORMAL;
    if (s.initializer.kind == EMBD_INITIALIZER_NORMAL)
        s.initializer.a = 0.25f, s.initializer.b = 0.5f;
    if (one_in(w, 4)) {
        s.slots = 3;
        s.slot_sizes = slot_sizes;
        s.initializer.kind = EMBD_INITIALIZER_UNIFORM_SLOT;
    }
    draw_regularization(w, &s);
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
    if (embd__schema_copy(&op.as.create.schema, &s, &e) != EMBD_OK ||
        embd__schema_check(&op.as.create.schema.s, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    world_submit(w, &op);
    assert_int_equal(op.error.status, differs ? EMBD_EXISTS : EMBD_OK);
    assert_int_equal(op.created, !is_there);
    seen.unequal += differs;
    if (!is_there)
        w->tables[i] = deeds_pair(w, op.table);
    embd__schema_fini(&op.as.create.schema);
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
