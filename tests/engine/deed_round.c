/* deed_round.c - pushes of a job's workers, which become one step whatever the order they come in.
 * The models get one batch, put together here in the order of the workers. */
#include "tests/engine/deeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/engine/check.h"
#include "tests/engine/request.h"

enum { WORKERS = JOBS + 1 }; /* job j has j + 2 of them */

/* One part of all workers. */
struct merged {
    struct model_batch in;
    bool wants_statuses, has_scores;
    uint32_t keys_at[WORKERS];
    uint64_t keys[WORKERS * KEYS_MOST];
    uint32_t offsets[WORKERS * ROWS_MOST + 1];
    uint16_t slots[WORKERS * ROWS_MOST];
    float weights[WORKERS * KEYS_MOST], scores[WORKERS * KEYS_MOST];
    float grads[WORKERS * ROWS_MOST * DIM_MOST];
    uint8_t statuses[WORKERS * KEYS_MOST];
};

/* ---- what the models say ---- */

static void append(struct merged *m, const struct model_batch *in, const float *grads, uint32_t dim,
                   uint32_t n_workers)
{
    uint32_t key = m->in.n_keys, row = m->in.n_rows;
    for (uint32_t k = 0; k < in->n_keys; k++) {
        m->keys[key + k] = in->keys[k];
        m->weights[key + k] = in->weights ? in->weights[k] : 1.0f;
        m->scores[key + k] = in->scores ? in->scores[k] : -INFINITY;
    }
    for (uint32_t r = 0; r < in->n_rows; r++) {
        m->offsets[row + r + 1] = key + (in->offsets ? in->offsets[r + 1] : r + 1);
        m->slots[row + r] = in->slots ? in->slots[r] : 0;
    }
    for (uint32_t g = 0; g < in->n_rows * dim; g++)
        m->grads[row * dim + g] = grads[g] / (float)n_workers;
    m->has_scores |= in->scores != NULL;
    m->in.n_keys += in->n_keys;
    m->in.n_rows += in->n_rows;
}

static void merge(const struct world *w, const struct request *pushes, uint32_t n_workers,
                  uint32_t i, struct merged *m)
{
    const embd_schema *s = &w->tables[pushes[0].tables[i]].schema.s;
    m->wants_statuses = m->has_scores = false;
    m->in = (struct model_batch){.keys = m->keys, .offsets = m->offsets, .weights = m->weights};
    m->offsets[0] = 0;
    for (uint32_t k = 0; k < n_workers; k++) {
        m->keys_at[k] = m->in.n_keys;
        append(m, &pushes[k].batches[i].in, pushes[k].grads[i], s->dim, n_workers);
        m->wants_statuses |= pushes[k].op.parts[i].in.want_status;
    }
    m->in.scores = m->has_scores ? m->scores : NULL;
    m->in.slots = s->partition == EMBD_PARTITION_SLOT ? m->slots : NULL;
}

static void compare_part(struct world *w, const struct request *pushes, uint32_t n_workers,
                         uint32_t i, struct merged *m)
{
    struct model *model = w->tables[pushes[0].tables[i]].model;
    struct model_counts counts;
    model->lr = pushes[0].op.parts[i].in.lr;
    int status =
        model_push(model, &m->in, m->grads, false, m->wants_statuses ? m->statuses : NULL, &counts);
    assert_int_equal(status, EMBD_OK);
    for (uint32_t k = 0; k < n_workers; k++) {
        const struct op_part *part = &pushes[k].op.parts[i];
        assert_int_equal(part->step, model->step);
        assert_int_equal(part->n_inserted, counts.n_inserted);
        assert_int_equal(part->n_full, counts.n_full);
        assert_int_equal(part->n_filtered, counts.n_filtered);
        assert_int_equal(part->n_evicted, counts.n_evicted);
        request_compare_statuses(&pushes[k], i, m->statuses + m->keys_at[k]);
    }
    seen.evicted += counts.n_evicted;
}

static void compare(struct world *w, const struct request *pushes, uint32_t n_workers)
{
    static struct merged merged[PARTS];
    int status = EMBD_OK;
    for (uint32_t i = 0; i < pushes[0].n_parts; i++) {
        merge(w, pushes, n_workers, i, &merged[i]);
        if (!merged[i].wants_statuses &&
            model_foresee(w->tables[pushes[0].tables[i]].model, &merged[i].in) != EMBD_OK)
            status = EMBD_FULL;
    }
    for (uint32_t k = 0; k < n_workers; k++)
        assert_int_equal(pushes[k].op.error.status, status);
    for (uint32_t i = 0; i < pushes[0].n_parts && status == EMBD_OK; i++)
        compare_part(w, pushes, n_workers, i, &merged[i]);
    seen.rounds += status == EMBD_OK;
    seen.full += status == EMBD_FULL;
}

/* ---- a round ---- */

static struct push_round round_of(const struct world *w, uint32_t job, uint32_t worker)
{
    struct push_round round = {
        .worker = worker, .n_workers = job + 2, .clock = w->clocks[job], .lease_ms = LEASE_MAX_MS};
    snprintf(round.job, sizeof round.job, "job%u", job);
    return round;
}

static int enter(struct world *w, struct request *r, const struct push_round *round)
{
    struct embd__error e = {.status = EMBD_OK};
    struct op *replaced = NULL;
    for (uint32_t i = 0; i < r->n_parts; i++) {
        struct op_part *part = &r->op.parts[i];
        assert_int_equal(check_part(&w->engine.tables, &part->in, i, &part->table, &e), EMBD_OK);
    }
    int status = round_enter(&r->op, round, false, w->now_ns++, &replaced, &e);
    assert_null(replaced);
    return status;
}

static void count_end(struct op *op)
{
    op->is_again = true; /* no push of a round is; here: it was told */
}

/* One step has one rate: a push with another one is refused, and nothing waits that did not. */
static void enter_with_another_rate(struct world *w, struct request *r,
                                    const struct push_round *round)
{
    float *lr = &r->op.parts[r->n_parts - 1].in.lr, was = *lr;
    uint32_t n_waiting = w->engine.rounds.n_waiting;
    *lr = was + 0.5f;
    assert_int_equal(enter(w, r, round), EMBD_INVALID);
    assert_int_equal(w->engine.rounds.n_waiting, n_waiting);
    *lr = was;
    seen.other_rates++;
}

/* All enter, in a drawn order; some of them twice, since they went before. */
static void enter_all(struct world *w, struct request *pushes, uint32_t job)
{
    uint32_t n = job + 2, first = below(w, n), by = one_in(w, 2) ? 1 : n - 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (first + i * by) % n;
        struct push_round round = round_of(w, job, k);
        assert_null(round_take(&w->engine, w->now_ns, NULL, NULL));
        pushes[k].op.done = count_end;
        if (i > 0 && one_in(w, 4))
            enter_with_another_rate(w, &pushes[k], &round);
        assert_int_equal(enter(w, &pushes[k], &round), EMBD_OK);
        if (one_in(w, 8)) {
            round_forget(&pushes[k].op, w->now_ns);
            assert_null(round_take(&w->engine, w->now_ns, NULL, NULL));
            assert_int_equal(enter(w, &pushes[k], &round), EMBD_OK);
            seen.withdrawn++;
        }
    }
}

static void make_step(struct world *w, struct request *pushes, uint32_t n_workers)
{
    struct round_step *step = round_take(&w->engine, w->now_ns, NULL, NULL);
    assert_non_null(step);
    assert_int_equal(step->n_members, n_workers);
    world_submit(w, &step->op);
    round_spread(step);
    assert_null(w->engine.steps);
    for (uint32_t k = 0; k < n_workers; k++)
        assert_true(pushes[k].op.is_again);
}

void deed_round(struct world *w)
{
    static struct request pushes[WORKERS];
    uint32_t job = below(w, JOBS), n = job + 2;
    request_draw_tables(w, &pushes[0], true);
    for (uint32_t k = 0; k < n; k++) {
        pushes[k].n_parts = pushes[0].n_parts > 2 ? 2 : pushes[0].n_parts;
        memcpy(pushes[k].tables, pushes[0].tables, sizeof pushes[k].tables);
        request_draw(w, &pushes[k], OP_PUSH);
        for (uint32_t i = 0; i < pushes[0].n_parts; i++)
            pushes[k].op.parts[i].in.lr = pushes[0].op.parts[i].in.lr;
    }
    struct push_round round = round_of(w, job, 0);
    if (request_is_mixed(w, &pushes[0])) {
        assert_int_equal(enter(w, &pushes[0], &round), EMBD_INVALID);
        seen.mixed++;
    } else if (pushes[0].n_parts > 0) {
        enter_all(w, pushes, job);
        make_step(w, pushes, n);
        compare(w, pushes, n);
        if (one_in(w, 4)) {
            assert_int_equal(enter(w, &pushes[0], &round), EMBD_INVALID);
            seen.late++;
        }
        w->clocks[job]++;
    }
    for (uint32_t k = 0; k < n; k++) {
        request_done(&pushes[k]);
        request_fini(&pushes[k]);
    }
}
