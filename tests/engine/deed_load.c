/* deed_load.c - rows with given values: loads, and puts. */
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

struct load {
    uint32_t n, n_candidates;
    uint64_t keys[ROWS_MOST], candidate_keys[ROWS_MOST];
    uint16_t slots[ROWS_MOST], candidate_slots[ROWS_MOST];
    uint32_t counts[ROWS_MOST];
    float values[ROWS_MOST * DIM_MOST], states[ROWS_MOST * (2 * DIM_MOST + 8)];
    _Alignas(8) uint8_t rows[ROWS_MOST * (DIM_MOST * 4 + 8)];
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
            l->counts[at] = is_gone ? 0 : 1 + below(w, admit_after + 1);
    }
    batch_free(&batch);
}

/* Values and states; the steps in states are those of a table that was pushed `step` times. */
static void draw_rows(struct world *w, const struct pair *table, uint64_t step, struct load *l)
{
    const embd_schema *s = &table->schema.s;
    uint32_t n = table->model->state_floats, n_own = table->model->optimizer_floats;
    uint32_t use_at = table->model->use_at, master_at = table->model->master_at;
    for (uint32_t i = 0; i < l->n * s->dim; i++)
        l->values[i] = (float)below(w, 64) / 16.0f - 2.0f;
    for (uint32_t i = 0; i < l->n; i++)
        embd__row_from_f32(l->rows + i * embd__value_bytes(s->dtype, s->dim), s->dtype,
                           l->values + i * s->dim, s->dim);
    for (uint32_t i = 0; i < l->n; i++) {
        float *state = l->states + (size_t)i * n;
        for (uint32_t f = 0; f < n; f++)
            state[f] = f < n_own ? (float)below(w, 16) / 8.0f : 0.0f;
        if (master_at > n_own)
            state[n_own] = (float)(1 + below(w, (uint32_t)step));
        for (uint32_t f = master_at; f < use_at; f++)
            state[f] = (float)below(w, 64) / 17.0f - 2.0f;
        if (n > use_at)
            state[use_at] = (float)(1 + below(w, (uint32_t)step));
        if (n > use_at + 2)
            state[use_at + 2] = (float)below(w, 5);
        if (s->on_full == EMBD_ON_FULL_EVICT_SCORE)
            state[use_at + 2] = 1.5f - (float)below(w, 4);
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
    bool is_bounded = model->schema.on_full != EMBD_ON_FULL_GROW && model->schema.capacity != 0;
    return !is_bounded || n_rows <= model->schema.capacity;
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
    uint64_t erased = model->lost.erased; /* no request erased these */
    model_erase(model, &gone, NULL);
    model->lost.erased = erased;
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

/* ---- puts ---- */

/* As load_model, of rows alone. Returns how many there were not. */
static uint64_t put_model(struct model *model, const struct load *l, bool has_states)
{
    uint64_t n_before = model->n_rows;
    for (uint32_t i = 0; i < l->n; i++) {
        const float *w = l->values + i * model->schema.dim;
        if (has_states)
            model_set_row(model, l->keys[i], l->slots[i], w, l->states + i * model->state_floats);
        else
            model_put_row(model, l->keys[i], l->slots[i], w);
    }
    return model->n_rows - n_before;
}

static void check_put(const struct op_put *put, uint64_t step)
{
    const struct routed_place anywhere = {.n_shards = 1};
    struct embd__error e = {.status = EMBD_OK};
    if (check_keyed(put->table, &put->block, "put", &anywhere, &e) != EMBD_OK ||
        check_put_rows(put->table, &put->block, step, step, &e) != EMBD_OK)
        fail_msg("%s", e.text);
}

/* As pushers_look. */
static int look_put(const struct stream *stream, uint64_t number)
{
    if (number == 0)
        return EMBD_OK;
    if (!stream->is_open)
        return EMBD_FORGOTTEN;
    return number <= stream->last ? PUSH_AGAIN : number == stream->last + 1 ? EMBD_OK : EMBD_GAP;
}

/* Of half of them: the next number of a stream that pushes take too, one that was, or one too
 * early. NULL: none. */
static struct stream *draw_put_number(struct world *w, uint32_t table, struct op *op)
{
    uint32_t i = below(w, STREAMS);
    struct stream *stream = &w->streams[world_is_journaled(w, table)][i];
    if (one_in(w, 2))
        return NULL;
    op->number = stream_id(i);
    uint32_t kind = below(w, 6);
    op->number.sequence = kind == 0 && stream->last > 0 ? stream->last
                          : kind == 1                   ? stream->last + 2
                                                        : stream->last + 1;
    return stream;
}

/* What the model says, and then has. */
static void take_put(struct model *model, const struct load *l, const struct op *op,
                     struct stream *stream, uint32_t table)
{
    bool has_states = op->as.put.block.states != NULL;
    int status = stream != NULL ? look_put(stream, op->number.sequence) : EMBD_OK;
    assert_int_equal(op->is_again, status == PUSH_AGAIN);
    seen.puts_again += status == PUSH_AGAIN;
    seen.puts_refused += status < EMBD_OK;
    if (status == EMBD_OK && !has_room(model, l)) {
        status = EMBD_FULL;
        seen.full_puts++;
    }
    assert_int_equal(op->error.status, status == PUSH_AGAIN ? EMBD_OK : status);
    if (status != EMBD_OK)
        return;
    if (op->as.put.step > 0)
        model->step = op->as.put.step;
    seen.put_steps += op->as.put.step > 0;
    assert_int_equal(op->as.put.n_inserted, put_model(model, l, has_states));
    seen.put += l->n;
    seen.put_without_states += has_states ? 0 : l->n;
    if (stream == NULL)
        return;
    stream->last++;
    stream->tables |= 1u << table;
    seen.puts_numbered++;
}

/* Those of no table's step are not put. */
void deed_put(struct world *w)
{
    static struct load l;
    struct op op = {.engine = NULL};
    uint32_t i = world_draw_table(w);
    if (i == TABLES)
        return;
    struct pair *pair = &w->tables[i];
    struct model *model = pair->model;
    bool has_states = model->step > 0 && one_in(w, 2);
    uint64_t step = one_in(w, 4) ? model->step + 1 + below(w, 3) : 0;
    draw_keys(w, pair, false, &l);
    l.n_candidates = 0;
    draw_rows(w, pair, model->step > 0 ? model->step : 1, &l);
    op_begin(&op, &w->engine, OP_PUT);
    op.as.put =
        (struct op_put){.table = world_table(w, i), .block = block_of(pair, &l), .step = step};
    if (!has_states)
        op.as.put.block.states = NULL;
    check_put(&op.as.put, model->step);
    struct stream *stream = draw_put_number(w, i, &op);
    world_submit(w, &op);
    take_put(model, &l, &op, stream, i);
    op_fini(&op);
}
