/* batch.c - the oracle's half of the tests. The model gives single rows; the sums over shards and
 * the roundings of the wire are written out here once more, plainly. */
#include "tests/client/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/route.h"

uint64_t batch_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ULL;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

float batch_random_float(uint64_t *state)
{
    return (float)(int32_t)(batch_random(state) >> 32) * 0x1p-31f;
}

static uint64_t random_key(const embd_schema *schema, uint32_t slot, uint64_t n_distinct,
                           uint64_t *state)
{
    uint64_t n = batch_random(state) % n_distinct;
    if (schema->slot_sizes != NULL)
        return n % schema->slot_sizes[slot];
    return n * 0x123456789abcdefULL - 1; /* all 64 bits; the largest value among them */
}

static uint64_t slot_start(const embd_schema *schema, uint32_t slot)
{
    uint64_t start = 0;
    for (uint32_t s = 0; schema->slot_sizes != NULL && s < slot; s++)
        start += schema->slot_sizes[s];
    return start;
}

void batch_make(struct batch *batch, const embd_schema *schema, uint64_t n_samples,
                uint64_t n_distinct, bool has_weights, uint64_t *state)
{
    batch->n_rows = n_samples * schema->slots;
    batch->n_keys = 0;
    batch->has_weights = has_weights;
    for (uint64_t r = 0; r < batch->n_rows; r++) {
        uint32_t slot = (uint32_t)(r % schema->slots);
        batch->offsets[r] = batch->n_keys;
        batch->row_slots[r] = (uint16_t)slot;
        for (uint64_t left = batch_random(state) % 6; left > 0; left--) {
            uint64_t i = batch->n_keys++;
            batch->keys[i] = random_key(schema, slot, n_distinct, state);
            batch->stored[i] = batch->keys[i] + slot_start(schema, slot);
            batch->weights[i] = batch_random_float(state) + 1.5f;
            batch->key_slots[i] = (uint16_t)slot;
            batch->key_rows[i] = (uint32_t)r;
        }
    }
    batch->offsets[batch->n_rows] = batch->n_keys;
    for (uint64_t r = 0; r <= batch->n_rows; r++)
        batch->offsets32[r] = (uint32_t)batch->offsets[r];
}

static struct model_batch as_single(const struct model *model, const struct batch *batch)
{
    bool has_slots = model->schema.partition == EMBD_PARTITION_SLOT;
    return (struct model_batch){.n_keys = (uint32_t)batch->n_keys,
                                .n_rows = (uint32_t)batch->n_keys,
                                .keys = batch->stored,
                                .slots = has_slots ? batch->key_slots : NULL};
}

static float divisor_of(const embd_schema *schema, const struct batch *batch, uint64_t r)
{
    uint64_t begin = batch->offsets[r], end = batch->offsets[r + 1];
    bool is_mean = schema->combiner == EMBD_COMBINER_MEAN;
    float sum = 0;
    if (!is_mean && schema->combiner != EMBD_COMBINER_SQRTN)
        return 1;
    for (uint64_t i = begin; i < end; i++) {
        float w = batch->has_weights ? batch->weights[i] : 1;
        sum += is_mean ? w : w * w;
    }
    if (sum == 0)
        return 1;
    return is_mean ? sum : sqrtf(sum);
}

/* to += (or =, for the first) row * weight */
static void add(float *to, const float *row, const float *weight, bool is_first, uint32_t dim)
{
    for (uint32_t c = 0; c < dim; c++) {
        float term = weight == NULL ? row[c] : row[c] * *weight;
        to[c] = is_first ? term : to[c] + term;
    }
}

/* The sum of the keys of row r on `shard`, in order; false: none there. n_shards 0: of all keys. */
static bool sum_on(const embd_schema *schema, const struct batch *batch, const float *rows,
                   uint64_t r, uint32_t shard, uint32_t n_shards, float *to)
{
    bool is_first = true;
    for (uint64_t i = batch->offsets[r]; i < batch->offsets[r + 1]; i++) {
        if (n_shards > 0 && embd__route(schema->partition, n_shards, batch->key_slots[i],
                                        batch->stored[i]) != shard)
            continue;
        add(to, rows + i * schema->dim, batch->has_weights ? &batch->weights[i] : NULL, is_first,
            schema->dim);
        is_first = false;
    }
    return !is_first;
}

static void expect_row(const embd_schema *schema, const struct batch *batch, const float *rows,
                       uint64_t r, bool by_rows, uint32_t n_shards, embd_dtype wire, float *to)
{
    uint32_t dim = schema->dim;
    float partial[EMBD_DIM_MAX], divisor = divisor_of(schema, batch, r);
    bool is_first = true;
    memset(to, 0, dim * sizeof *to);
    if (by_rows || n_shards == 1)
        sum_on(schema, batch, rows, r, 0, 0, to);
    for (uint32_t s = 0; !by_rows && n_shards > 1 && s < n_shards; s++)
        if (sum_on(schema, batch, rows, r, s, n_shards, partial)) {
            model_round_row(partial, dim, wire, NULL, 0);
            add(to, partial, NULL, is_first, dim);
            is_first = false;
        }
    for (uint32_t c = 0; c < dim && divisor != 1; c++)
        to[c] /= divisor;
    if (!by_rows && n_shards == 1)
        model_round_row(to, dim, wire, NULL, 0);
}

void batch_expect(struct model *model, const struct batch *batch, bool pooled, bool by_rows,
                  uint32_t n_shards, embd_dtype wire, bool zero_missing, float *values,
                  uint8_t *statuses)
{
    uint32_t dim = model->schema.dim;
    struct model_batch single = as_single(model, batch);
    float *rows = malloc((batch->n_keys + 1) * dim * sizeof *rows);
    bool creates = model->schema.create_on == EMBD_CREATE_ON_PULL && !zero_missing;
    if (creates)
        model_insert(model, &single, statuses, NULL);
    model_pull(model, &single, zero_missing, true, rows, creates ? NULL : statuses);
    if (!pooled || by_rows)
        for (uint64_t i = 0; i < batch->n_keys; i++)
            model_round_row(rows + i * dim, dim, wire, NULL, 0);
    if (!pooled)
        memcpy(values, rows, batch->n_keys * dim * sizeof *rows);
    for (uint64_t r = 0; pooled && r < batch->n_rows; r++)
        expect_row(&model->schema, batch, rows, r, by_rows, n_shards, wire, values + r * dim);
    free(rows);
}

int batch_push(struct model *model, const struct batch *batch, bool pooled, const float *values,
               uint8_t *statuses)
{
    struct model_batch b = as_single(model, batch);
    if (pooled) {
        b.n_rows = (uint32_t)batch->n_rows;
        b.offsets = batch->offsets32;
        b.slots = model->schema.partition == EMBD_PARTITION_SLOT ? batch->row_slots : NULL;
        b.weights = batch->has_weights ? batch->weights : NULL;
    }
    return model_push(model, &b, values, true, statuses, NULL);
}
