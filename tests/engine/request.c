/* request.c - see request.h. */
#include "tests/engine/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/packed.h"
#include "server/engine/check.h"
#include "server/engine/unpack.h"

static bool fits(struct world *w, const struct request *r, uint32_t table, bool are_different)
{
    for (uint32_t i = 0; i < r->n_parts && are_different; i++)
        if (r->tables[i] == table)
            return false;
    return r->n_parts == 0 || one_in(w, 16) ||
           world_is_journaled(w, table) == world_is_journaled(w, r->tables[0]);
}

void request_draw_tables(struct world *w, struct request *r, bool are_different)
{
    uint32_t n = one_in(w, 3) ? 1 + below(w, PARTS) : 1;
    r->n_parts = 0;
    for (uint32_t tries = 0; r->n_parts < n && tries < 2 * PARTS; tries++) {
        uint32_t table = world_draw_table(w);
        if (table < TABLES && fits(w, r, table, are_different))
            r->tables[r->n_parts++] = table;
    }
}

static void draw_gradients(struct world *w, struct request *r, uint32_t i, struct part *part)
{
    uint32_t dim = w->tables[r->tables[i]].schema.s.dim;
    for (uint32_t g = 0; g < part->n_rows * dim; g++)
        r->grads[i][g] = dice_float(&w->dice) * 1.3f;
    embd__rows_from_f32(r->wire[i], part->dtype, r->grads[i], dim, part->n_rows);
    for (uint32_t row = 0; row < part->n_rows; row++)
        model_round_row(r->grads[i] + row * dim, dim, part->dtype, NULL, 0);
    part->grads = r->wire[i];
    part->grads_bytes = part->n_rows * embd__wire_row_bytes(part->dtype, dim);
}

static void draw_part(struct world *w, struct request *r, uint32_t i, enum op_kind kind)
{
    struct pair *table = &w->tables[r->tables[i]];
    const embd_schema *s = &table->schema.s;
    struct batch *batch = &r->batches[i];
    bool is_raw = s->combiner == EMBD_COMBINER_CONCAT || kind == OP_ERASE || one_in(w, 3);
    uint32_t n_rows = one_in(w, 12) ? below(w, ROWS_MOST + 1) : below(w, 6);
    batch_draw(table, batch, n_rows, ROW_KEYS, is_raw, one_in(w, 3));
    struct part *part = &r->op.parts[i].in;
    *part = (struct part){.table = world_table(w, r->tables[i])->id,
                          .dtype =
                              kind == OP_ERASE ? EMBD_DTYPE_F32 : (embd_dtype)below(w, PART_DTYPES),
                          .n_keys = batch->in.n_keys,
                          .n_rows = batch->in.n_rows,
                          .want_status = one_in(w, 3),
                          .zero_missing = kind == OP_PULL && one_in(w, 6),
                          .scale = kind == OP_PULL && one_in(w, 2),
                          .keys = batch->in.keys,
                          .offsets = batch->in.offsets,
                          .slots = batch->in.slots,
                          .weights = batch->in.weights};
    if (kind == OP_PUSH) {
        part->lr = one_in(w, 3) ? 0.001f + 0.4f * (float)below(w, 3) : 0.0f;
        part->scores = batch->in.scores = batch->scores = pair_draw_scores(table, part->n_keys);
        draw_gradients(w, r, i, part);
    }
}

void request_draw(struct world *w, struct request *r, enum op_kind kind)
{
    struct op *op = &r->op;
    struct embd__error e = {.status = EMBD_OK};
    op_begin(op, &w->engine, kind);
    assert_int_equal(op_size_parts(op, r->n_parts, &e), EMBD_OK);
    for (uint32_t i = 0; i < r->n_parts; i++) {
        draw_part(w, r, i, kind);
        const struct part *in = &op->parts[i].in;
        if (check_part(&w->engine.tables, in, i, &op->parts[i].table, &e) != EMBD_OK ||
            (kind == OP_PUSH && check_grads(op->parts[i].table, in, i, 0, &e) != EMBD_OK))
            fail_msg("%s", e.text);
        op->parts[i].values = kind == OP_PULL ? r->wire[i] : NULL;
    }
    assert_int_equal(kind == OP_PUSH ? unpack_push(op, LIMIT_PUSH_BYTES, &e) : EMBD_OK, EMBD_OK);
    assert_int_equal(op_size_statuses(op, &e), EMBD_OK);
}

void request_done(struct request *r)
{
    for (uint32_t i = 0; i < r->n_parts; i++)
        batch_free(&r->batches[i]);
    r->n_parts = 0;
}

void request_fini(struct request *r)
{
    op_fini(&r->op);
}

bool request_is_mixed(const struct world *w, const struct request *r)
{
    for (uint32_t i = 1; i < r->n_parts; i++)
        if (world_is_journaled(w, r->tables[i]) != world_is_journaled(w, r->tables[0]))
            return true;
    return false;
}

void request_compare_statuses(const struct request *r, uint32_t part, const uint8_t *expected)
{
    const struct op_part *p = &r->op.parts[part];
    assert_int_equal(p->statuses != NULL, p->in.want_status);
    if (p->statuses != NULL && p->in.n_keys > 0)
        assert_memory_equal(p->statuses, expected, p->in.n_keys);
}
