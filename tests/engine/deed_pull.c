/* deed_pull.c - pulls, and the rows that they make: those of all parts of one table at once. */
#include "tests/engine/deeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/packed.h"
#include "server/engine/pull.h"
#include "tests/engine/request.h"

/* All keys of a pull for which one table makes rows. */
struct joined {
    struct model_batch in;
    uint32_t n_parts;
    bool may_drop; /* all parts ask for statuses */
    uint64_t keys[PARTS * KEYS_MOST];
    uint16_t slots[PARTS * KEYS_MOST];
    uint8_t statuses[PARTS * KEYS_MOST];
};

static bool makes_rows(const struct world *w, const struct request *r, uint32_t i)
{
    return w->tables[r->tables[i]].schema.s.create_on == EMBD_CREATE_ON_PULL &&
           !r->op.parts[i].in.zero_missing && r->batches[i].in.n_keys > 0;
}

static void append(struct joined *j, const struct model_batch *batch)
{
    for (uint32_t row = 0; row < batch->n_rows; row++) {
        uint32_t k = batch->offsets ? batch->offsets[row] : row,
                 end = batch->offsets ? batch->offsets[row + 1] : row + 1;
        for (; k < end; k++) {
            j->slots[j->in.n_keys] = batch->slots ? batch->slots[row] : 0;
            j->keys[j->in.n_keys++] = batch->keys[k];
        }
    }
}

static void join(const struct world *w, const struct request *r, uint32_t table, struct joined *j)
{
    j->n_parts = 0;
    j->may_drop = true;
    j->in = (struct model_batch){.keys = j->keys};
    for (uint32_t i = 0; i < r->n_parts; i++) {
        if (r->tables[i] != table || !makes_rows(w, r, i))
            continue;
        append(j, &r->batches[i].in);
        j->n_parts++;
        j->may_drop &= r->op.parts[i].in.want_status;
    }
    j->in.n_rows = j->in.n_keys;
    if (j->n_parts > 0 && w->tables[table].schema.s.partition == EMBD_PARTITION_SLOT)
        j->in.slots = j->slots;
}

/* The rows that the models make, and the statuses that parts get from that. */
static void make_rows(struct world *w, const struct request *r, uint32_t table, struct joined *j,
                      uint8_t statuses[PARTS][KEYS_MOST])
{
    struct model_counts counts;
    int status = model_insert(w->tables[table].model, &j->in, j->statuses, &counts);
    assert_int_equal(status, EMBD_OK);
    seen.rows_made += counts.n_inserted;
    seen.evicted += counts.n_evicted;
    seen.joined += j->n_parts > 1;
    for (uint32_t i = 0, at = 0; i < r->n_parts; i++) {
        if (r->tables[i] != table || !makes_rows(w, r, i))
            continue;
        memcpy(statuses[i], j->statuses + at, r->batches[i].in.n_keys);
        at += r->batches[i].in.n_keys;
    }
}

/* A store that answers in pieces is asked for several. */
static void take_rows(struct world *w, struct request *r, uint32_t i)
{
    const struct op_part *part = &r->op.parts[i];
    size_t row_bytes = embd__wire_row_bytes(part->in.dtype, w->tables[r->tables[i]].schema.s.dim);
    uint32_t count;
    for (uint32_t first = 0; first < part->in.n_rows; first += count) {
        uint32_t left = part->in.n_rows - first;
        count = one_in(w, 4) ? 1 + below(w, left) : left;
        pull_rows(&r->op, part, first, count, r->wire[i] + first * row_bytes);
    }
}

static void compare_values(const struct world *w, const struct request *r, uint32_t i,
                           float *expected)
{
    const struct part *in = &r->op.parts[i].in;
    uint32_t dim = w->tables[r->tables[i]].schema.s.dim;
    float values[ROWS_MOST * DIM_MOST];
    embd__rows_to_f32(values, r->wire[i], in->dtype, dim, in->n_rows);
    for (uint32_t row = 0; row < in->n_rows; row++)
        model_round_row(expected + row * dim, dim, in->dtype, NULL, 0);
    for (uint32_t v = 0; v < in->n_rows * dim; v++) {
        float e = expected[v];
        if (memcmp(&values[v], &e, sizeof e) != 0)
            fail_msg("part %u row %u column %u: engine %a, model %a", i, v / dim, v % dim,
                     (double)values[v], (double)e);
    }
}

static void compare(struct world *w, struct request *r)
{
    static struct joined joined[TABLES];
    static uint8_t statuses[PARTS][KEYS_MOST];
    float values[ROWS_MOST * DIM_MOST];
    int status = EMBD_OK;
    for (uint32_t t = 0; t < TABLES; t++) {
        join(w, r, t, &joined[t]);
        if (!joined[t].may_drop && model_foresee(w->tables[t].model, &joined[t].in) != EMBD_OK)
            status = EMBD_FULL;
    }
    assert_int_equal(r->op.error.status, status);
    seen.full_pulls += status == EMBD_FULL;
    for (uint32_t t = 0; t < TABLES && status == EMBD_OK; t++)
        if (joined[t].n_parts > 0)
            make_rows(w, r, t, &joined[t], statuses);
    for (uint32_t i = 0; i < r->n_parts && status == EMBD_OK; i++) {
        const struct part *in = &r->op.parts[i].in;
        model_pull(w->tables[r->tables[i]].model, &r->batches[i].in, in->zero_missing, in->scale,
                   values, makes_rows(w, r, i) ? NULL : statuses[i]);
        if (!pull_is_whole(&w->engine))
            take_rows(w, r, i);
        compare_values(w, r, i, values);
        request_compare_statuses(r, i, statuses[i]);
    }
}

void deed_pull(struct world *w)
{
    struct request r = {.stream = 0};
    request_draw_tables(w, &r, false);
    request_draw(w, &r, OP_PULL);
    world_submit(w, &r.op);
    compare(w, &r);
    request_done(&r);
    request_fini(&r);
}
