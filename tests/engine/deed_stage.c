/* deed_stage.c - tables are staged, loaded, and take the places of others, with the streams of
 * those that pushed to them. */
#include "tests/engine/deeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/engine/staged.h"

/* ---- staging ---- */

/* Mostly one that may take the place of the table of its name. */
static embd_schema draw_schema(struct world *w, uint32_t i)
{
    embd_schema s = deeds_draw_schema(w, i);
    if (!world_has(w, i) || one_in(w, 8))
        return s;
    s.durability = w->tables[i].schema.s.durability;
    if (s.durability != EMBD_DURABILITY_SNAPSHOT)
        s.create_on = EMBD_CREATE_ON_PUSH;
    return s;
}

static void submit_beside(struct world *w, enum op_kind kind, uint64_t id, const embd_schema *s)
{
    struct op op = {.engine = NULL};
    struct embd__error e = {.status = EMBD_OK};
    op_begin(&op, &w->engine, kind);
    if (kind == OP_STAGE) {
        op.as.stage = (struct op_stage){.id = id};
        assert_int_equal(embd__schema_copy(&op.as.stage.schema, s, &e), EMBD_OK);
    } else {
        op.as.unstaged = id;
    }
    world_submit(w, &op);
    assert_int_equal(op.error.status, EMBD_OK);
    if (kind == OP_STAGE)
        embd__schema_fini(&op.as.stage.schema);
    op_fini(&op);
}

/* A set of another loader begins and ends: nothing of the first is other than before. */
static void stage_beside(struct world *w)
{
    struct embd__error e = {.status = EMBD_OK};
    uint64_t id = UINT64_MAX / 2 + below(w, 3);
    embd_schema s = draw_schema(w, below(w, TABLES));
    if (embd__schema_check(&s, &e) != EMBD_OK)
        return;
    submit_beside(w, OP_STAGE, id, &s);
    assert_non_null(staged_find(&w->engine.tables, id, s.name, &e));
    submit_beside(w, OP_UNSTAGE, id, NULL);
    assert_null(staged_set(&w->engine.tables, id));
}

void deed_stage(struct world *w)
{
    struct op op = {.engine = NULL};
    struct embd__error e = {.status = EMBD_OK};
    uint32_t i = below(w, TABLES);
    bool is_new = w->staged_id == 0;
    if (one_in(w, 4))
        stage_beside(w);
    uint64_t id = is_new ? ++w->n_sets : w->staged_id;
    bool is_there = !is_new && w->staged[i].model != NULL;
    embd_schema s = draw_schema(w, i);
    op_begin(&op, &w->engine, OP_STAGE);
    op.as.stage = (struct op_stage){.id = id};
    if (is_there || embd__schema_check(&s, &e) != EMBD_OK ||
        embd__schema_copy(&op.as.stage.schema, &s, &e) != EMBD_OK) {
        assert_true(is_there);
        return;
    }
    world_submit(w, &op);
    assert_int_equal(op.error.status, EMBD_OK);
    w->staged_id = id;
    struct table *table = staged_find(&w->engine.tables, id, s.name, &e);
    assert_non_null(table);
    w->staged[i] = deeds_pair(w, table);
    embd__schema_fini(&op.as.stage.schema);
    op_fini(&op);
}

void deed_load_staged(struct world *w)
{
    struct embd__error e = {.status = EMBD_OK};
    uint32_t i = below(w, TABLES);
    if (w->staged[i].model != NULL)
        deeds_load(w, &w->staged[i],
                   staged_find(&w->engine.tables, w->staged_id, w->staged[i].schema.s.name, &e),
                   w->staged_id);
}

void deed_unstage(struct world *w)
{
    struct op op = {.engine = NULL};
    if (w->staged_id == 0 || !one_in(w, 4))
        return;
    bool is_other = one_in(w, 4);
    op_begin(&op, &w->engine, OP_UNSTAGE);
    op.as.unstaged = is_other ? UINT64_MAX : w->staged_id;
    world_submit(w, &op);
    assert_int_equal(op.error.status, EMBD_OK);
    op_fini(&op);
    if (is_other)
        return;
    world_unstage(w);
    w->staged_id = 0;
    seen.unstaged++;
}

/* ---- streams ---- */

/* As tests of the model: what a shard's streams become. */
struct back {
    uint32_t replaced, all; /* bits of tables */
    struct push_stream list[STREAMS];
    uint32_t n;
    bool brings_unknown;
};

static void draw_back(struct world *w, struct back *back)
{
    back->n = 0;
    back->brings_unknown = one_in(w, 2);
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct push_number id = stream_id(i);
        if (!one_in(w, 3))
            back->list[back->n++] =
                (struct push_stream){id.high, id.low, below(w, 9), i, below(w, 3)};
    }
}

static uint32_t tables_of(const struct stream *stream, const struct back *back)
{
    return (stream->tables & ANY_TABLE) != 0 ? back->all : stream->tables;
}

static void roll_one(struct stream *stream, const struct back *back,
                     const struct push_stream *entry)
{
    bool comes = entry != NULL && (stream->is_open ? stream->tables == 0 : back->brings_unknown);
    if (comes)
        *stream = (struct stream){true, entry->principal, entry->last, back->replaced};
    uint32_t own = tables_of(stream, back);
    if (!stream->is_open)
        return;
    seen.brought += comes;
    seen.kept += (own & back->replaced) == 0;
    if ((own & back->replaced) == 0)
        return;
    bool is_rolled = entry != NULL && (own & ~back->replaced) == 0;
    stream->last = is_rolled ? entry->last : stream->last;
    stream->is_open = is_rolled;
    seen.rolled += is_rolled && !comes;
    seen.forgotten_with_tables += !is_rolled;
}

static void roll_back(struct world *w, bool is_journaled, const struct back *back)
{
    for (uint32_t i = 0; i < STREAMS && back->replaced != 0; i++) {
        const struct push_stream *entry = NULL;
        for (uint32_t k = 0; k < back->n; k++)
            entry = back->list[k].stream == i ? &back->list[k] : entry;
        roll_one(&w->streams[is_journaled][i], back, entry);
    }
}

/* ---- replacing ---- */

static bool is_fit(const struct world *w)
{
    bool is_fit = true;
    for (uint32_t i = 0; i < TABLES; i++)
        if (w->staged[i].model != NULL && world_has(w, i))
            is_fit = is_fit && (w->staged[i].schema.s.durability == EMBD_DURABILITY_SNAPSHOT) ==
                                   !world_is_journaled(w, i);
    return is_fit;
}

static void replace_models(struct world *w, struct back back[2])
{
    for (uint32_t i = 0; i < TABLES; i++) {
        if (w->staged[i].model == NULL)
            continue;
        if (world_has(w, i))
            model_free(w->tables[i].model);
        w->tables[i] = w->staged[i];
        w->staged[i] = (struct pair){.model = NULL};
        back[world_is_journaled(w, i)].replaced |= 1u << i;
    }
    for (uint32_t i = 0; i < TABLES; i++)
        if (world_has(w, i))
            back[world_is_journaled(w, i)].all |= 1u << i;
}

static void submit_step(struct world *w, enum op_kind kind, const struct op_replace *replace,
                        bool fits)
{
    struct op op = {.engine = NULL};
    op_begin(&op, &w->engine, kind);
    op.as.replace = *replace;
    world_submit(w, &op);
    assert_int_equal(op.error.status, fits ? EMBD_OK : EMBD_INVALID);
    op_fini(&op);
}

/* The shard promises it; what it keeps of that, and a start finds, is what it makes then. False: it
 * is withdrawn. */
static bool prepare(struct world *w, struct op_replace *replace)
{
    const struct prepared *prepared = &w->engine.prepared;
    bool is_kept = staged_is_journaled(&w->engine.tables, replace->id);
    const struct prepared *found = is_kept ? &w->copy.engine.prepared : prepared;
    replace->decision = ++w->n_decisions;
    replace->step = REPLACE_PREPARED;
    submit_step(w, OP_PREPARE, replace, true);
    assert_true(found->id == replace->id && found->decision == replace->decision);
    assert_int_equal(found->back[1].n, replace->back[1].n);
    bool is_made = !one_in(w, 3);
    seen.prepared++;
    seen.not_made += !is_made;
    replace->step = is_made ? REPLACE_DONE : REPLACE_WITHDRAWN;
    replace->back[0] = prepared->back[0];
    replace->back[1] = found->back[1];
    if (is_made)
        return true;
    submit_step(w, OP_PREPARE, replace, true);
    assert_true(prepared->id == 0 && found->id == 0);
    return false;
}

static void check_made(const struct world *w, const struct op_replace *replace, bool is_kept)
{
    const struct engine *engines[] = {&w->engine, is_kept ? &w->copy.engine : &w->engine};
    for (int i = 0; i < 2 && replace->decision != 0; i++)
        assert_true(engines[i]->prepared.id == 0 && engines[i]->decided == replace->decision);
}

void deed_replace(struct world *w)
{
    struct back back[2] = {{.n = 0}, {.n = 0}};
    if (w->staged_id == 0)
        return;
    bool fits = is_fit(w), is_kept = staged_is_journaled(&w->engine.tables, w->staged_id);
    struct op_replace replace = {.id = w->staged_id};
    for (int kind = 0; kind < 2; kind++) {
        draw_back(w, &back[kind]);
        replace.back[kind] = (struct rollback){.list = back[kind].list,
                                               .n = back[kind].n,
                                               .brings_unknown = back[kind].brings_unknown};
    }
    if (fits && one_in(w, 2) && !prepare(w, &replace))
        return;
    submit_step(w, OP_REPLACE, &replace, fits);
    seen.unfit += !fits;
    seen.replaced += fits;
    if (!fits)
        return;
    check_made(w, &replace, is_kept);
    replace_models(w, back);
    roll_back(w, false, &back[0]);
    roll_back(w, true, &back[1]);
    w->staged_id = 0;
}
