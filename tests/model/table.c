/* table.c - what pull, push, insert and erase do. A pull reads. The others first look up the keys
 * they name, each once, decide which of them get a row, and then change these. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model/inside.h"

/* ---- pull ---- */

/* The row's value, or what stands for it where there is none. */
static embd_key_status read_key(const struct model *model, uint64_t key, uint32_t slot,
                                bool zero_missing, float *w)
{
    const struct model_key *k = model_find(model, key, slot);
    if (k && k->has_row) {
        memcpy(w, k->w, model->schema.dim * sizeof *w);
        return EMBD_KEY_HIT;
    }
    if (zero_missing)
        memset(w, 0, model->schema.dim * sizeof *w);
    else
        model_first_value(model, key, slot, w);
    return EMBD_KEY_MISSING;
}

/* to = row for the first, to += row for others. */
static void add(float *to, const float *row, float weight, bool is_first, uint32_t dim)
{
    for (uint32_t c = 0; c < dim; c++)
        to[c] = is_first ? row[c] * weight : to[c] + row[c] * weight;
}

/* The sum of row r's keys of one part, in their order. false: it has none. */
static bool sum_part(const struct model *model, const struct model_batch *batch, uint32_t r,
                     uint32_t part, bool zero_missing, float *sum, uint8_t *statuses)
{
    float w[EMBD_DIM_MAX];
    bool is_first = true;
    for (uint32_t i = model_row_begin(batch, r); i < model_row_end(batch, r); i++) {
        if (model->part_of && model->part_of(model, batch->keys[i]) != part)
            continue;
        embd_key_status status =
            read_key(model, batch->keys[i], model_row_slot(batch, r), zero_missing, w);
        if (statuses)
            statuses[i] = (uint8_t)status;
        add(sum, w, batch->weights ? batch->weights[i] : 1, is_first, model->schema.dim);
        is_first = false;
    }
    return !is_first;
}

void model_pull(struct model *model, const struct model_batch *batch, bool zero_missing,
                bool divide, float *values, uint8_t *statuses)
{
    uint32_t dim = model->schema.dim, n_parts = model->part_of ? model->n_parts : 1;
    float part_sum[EMBD_DIM_MAX];
    memset(values, 0, (size_t)batch->n_rows * dim * sizeof *values);
    for (uint32_t r = 0; r < batch->n_rows; r++, values += dim) {
        bool is_first = true;
        for (uint32_t part = 0; part < n_parts; part++)
            if (sum_part(model, batch, r, part, zero_missing, part_sum, statuses)) {
                add(values, part_sum, 1, is_first, dim);
                is_first = false;
            }
        float by = divide ? model_divisor(model, batch, r) : 1;
        for (uint32_t c = 0; c < dim; c++)
            values[c] /= by;
    }
}

/* ---- requests that change something ---- */

static struct model_request begin(struct model *model, const struct model_batch *batch)
{
    size_t bytes = (batch->n_keys + 1) * sizeof(struct model_key *);
    struct model_request request = {.named = malloc(bytes), .distinct = malloc(bytes)};
    model->request++;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        for (uint32_t i = model_row_begin(batch, r); i < model_row_end(batch, r); i++) {
            struct model_key *k = model_see(model, batch->keys[i], model_row_slot(batch, r));
            request.named[i] = k;
            if (k->request == model->request)
                continue;
            k->request = model->request;
            k->index = request.n_distinct++;
            request.distinct[k->index] = k;
        }
    model_decide_candidates(model, &request);
    return request;
}

static void end(struct model_request *request)
{
    free(request->named);
    free(request->distinct);
}

static void tell(const struct model_request *request, const struct model_batch *batch,
                 uint8_t *statuses)
{
    for (uint32_t i = 0; i < batch->n_keys && statuses; i++)
        statuses[i] = (uint8_t)request->named[i]->status;
}

/* What becomes of each key, and which rows go so that others can come. Free the array. */
static struct model_counts judge(struct model *model, const struct model_request *request,
                                 struct model_key ***victims_out, uint32_t *n_victims_out)
{
    struct model_counts counts = model_judge(model, request, model_room(model));
    *n_victims_out = 0;
    *victims_out = model_choose_victims(model, counts.n_full, n_victims_out);
    return model_judge(model, request, model_room(model) + *n_victims_out);
}

/* Rows for the keys that get one, of other keys' where there is no room. A request without statuses
 * changes nothing where not every key that should have a row gets it. */
static int admit(struct model *model, const struct model_request *request,
                 const struct model_batch *batch, uint8_t *statuses,
                 struct model_counts *counts_out)
{
    uint32_t n_victims;
    struct model_key **victims;
    struct model_counts counts = judge(model, request, &victims, &n_victims);
    bool is_refused = counts.n_full > 0 && statuses == NULL;
    counts.n_evicted = is_refused ? 0 : n_victims;
    if (counts_out)
        *counts_out = counts;
    model->lost.evicted[model->schema.on_full] += counts.n_evicted;
    for (uint32_t i = 0; i < counts.n_evicted; i++)
        model_become(model, victims[i], false, 0);
    free(victims);
    if (model->forgets && !is_refused)
        model_forget_candidates(model);
    for (uint32_t i = 0; i < request->n_distinct && !is_refused; i++) {
        struct model_key *k = request->distinct[i];
        if (k->status == EMBD_KEY_INSERTED)
            model_make_row(model, k);
        if (k->status == EMBD_KEY_FILTERED)
            model_become(model, k, false, k->sights + 1);
    }
    tell(request, batch, statuses);
    if (!is_refused)
        model_advance_clock(model);
    return is_refused ? EMBD_FULL : EMBD_OK;
}

int model_insert(struct model *model, const struct model_batch *batch, uint8_t *statuses,
                 struct model_counts *counts_out)
{
    struct model_request request = begin(model, batch);
    int status = admit(model, &request, batch, statuses, counts_out);
    end(&request);
    return status;
}

int model_foresee(struct model *model, const struct model_batch *batch)
{
    struct model_key **victims;
    uint32_t n_victims;
    struct model_request request = begin(model, batch);
    struct model_counts counts = judge(model, &request, &victims, &n_victims);
    free(victims);
    end(&request);
    return counts.n_full > 0 ? EMBD_FULL : EMBD_OK;
}

uint32_t model_erase(struct model *model, const struct model_batch *batch, uint8_t *statuses)
{
    uint64_t n_before = model->n_rows;
    struct model_request request = begin(model, batch);
    for (uint32_t i = 0; i < request.n_distinct; i++) {
        struct model_key *k = request.distinct[i];
        k->status = k->has_row ? EMBD_KEY_EVICTED : EMBD_KEY_MISSING;
        model_become(model, k, false, 0);
    }
    tell(&request, batch, statuses);
    end(&request);
    model->lost.erased += n_before - model->n_rows;
    return (uint32_t)(n_before - model->n_rows);
}

/* ---- push ---- */

/* One step of each row that was named, with the sum of its gradients in the order of the batch. */
static void step_named(struct model *model, const struct model_request *request,
                       const struct model_batch *batch, const float *grads, bool divide)
{
    uint32_t dim = model->schema.dim;
    float g[EMBD_DIM_MAX];
    struct model_sum *sums = calloc((size_t)request->n_distinct * dim + 1, sizeof *sums);
    for (uint32_t r = 0; r < batch->n_rows; r++, grads += dim) {
        float by = divide ? model_divisor(model, batch, r) : 1;
        for (uint32_t i = model_row_begin(batch, r); i < model_row_end(batch, r); i++) {
            struct model_sum *sum = sums + (size_t)request->named[i]->index * dim;
            float weight = (batch->weights ? batch->weights[i] : 1) / by;
            for (uint32_t c = 0; c < dim; c++)
                model_sum_add(&sum[c], grads[c] * weight);
        }
    }
    for (uint32_t i = 0; i < request->n_distinct; i++) {
        struct model_key *k = request->distinct[i];
        for (uint32_t c = 0; c < dim; c++)
            g[c] = model_sum_of(&sums[(size_t)i * dim + c]) / model->schema.optimizer.scaler;
        if (!k->has_row)
            continue;
        model_step_row(model, k, g);
        model_note_use(model, k, sums[(size_t)i * dim].n);
    }
    free(sums);
}

/* The largest score of each key; of one that gets none -inf. */
static void score_named(struct model *model, const struct model_request *request,
                        const struct model_batch *batch)
{
    float *scores = malloc((request->n_distinct + 1) * sizeof *scores);
    for (uint32_t d = 0; d < request->n_distinct; d++)
        scores[d] = -INFINITY;
    for (uint32_t i = 0; i < batch->n_keys; i++) {
        uint32_t d = request->named[i]->index;
        scores[d] = batch->scores[i] > scores[d] ? batch->scores[i] : scores[d];
    }
    for (uint32_t d = 0; d < request->n_distinct; d++)
        if (request->distinct[d]->has_row)
            model_note_score(model, request->distinct[d], scores[d]);
    free(scores);
}

/* update = global: the rows that were not named, with a gradient of 0. For the other optimizers
 * such a step changes nothing. */
static void step_others(struct model *model)
{
    static const float zeros[EMBD_DIM_MAX];
    embd_optimizer_kind kind = model->schema.optimizer.kind;
    if (kind != EMBD_OPTIMIZER_MOMENTUM && kind != EMBD_OPTIMIZER_NESTEROV &&
        kind != EMBD_OPTIMIZER_ADAM && kind != EMBD_OPTIMIZER_RMSPROP)
        return;
    for (uint64_t i = 0; i < model->n_keys; i++)
        if (model->keys[i]->has_row && model->keys[i]->request != model->request)
            model_step_row(model, model->keys[i], zeros);
}

int model_push(struct model *model, const struct model_batch *batch, const float *grads,
               bool divide, uint8_t *statuses, struct model_counts *counts_out)
{
    struct model_request request = begin(model, batch);
    int status = admit(model, &request, batch, statuses, counts_out);
    if (status == EMBD_OK) {
        model->step++;
        step_named(model, &request, batch, grads, divide);
        if (batch->scores)
            score_named(model, &request, batch);
        if (model->schema.optimizer.update == EMBD_UPDATE_GLOBAL)
            step_others(model);
    }
    end(&request);
    return status;
}
