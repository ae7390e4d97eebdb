/* batch.c - see batch.h. */
#include "tests/server/batch.h"

#include "proto/convert.h"
#include "proto/route.h"

uint64_t batch_random(struct batch *batch)
{
    batch->random = batch->random * 6364136223846793005u + 1442695040888963407u;
    return batch->random >> 33;
}

void batch_fill(struct batch *batch, const embd_schema *schema)
{
    uint32_t k = 0;
    batch->n_rows = schema->combiner == EMBD_COMBINER_CONCAT ? BATCH_KEYS / 2 : BATCH_ROWS;
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        uint32_t n =
            schema->combiner == EMBD_COMBINER_CONCAT ? 1 : (uint32_t)(batch_random(batch) % 5);
        if (schema->combiner != EMBD_COMBINER_CONCAT)
            batch->offsets[r] = k;
        for (uint32_t i = 0; i < n; i++)
            batch->keys[k++] = batch_random(batch) % 1000;
        batch->slots[r] = (uint16_t)(batch_random(batch) % schema->slots);
    }
    if (schema->combiner != EMBD_COMBINER_CONCAT)
        batch->offsets[batch->n_rows] = k;
    batch->n_keys = k;
    for (uint32_t i = 0; i < k; i++)
        batch->weights[i] = (float)(batch_random(batch) % 16) / 8.0f;
    for (uint32_t i = 0; i < batch->n_rows * schema->dim; i++)
        batch->grads[i] = ((float)(batch_random(batch) % 64) - 32.0f) / 16.0f;
}

struct part batch_part(struct batch *batch, const embd_schema *schema, embd_dtype dtype,
                       bool weighted)
{
    uint64_t n = (uint64_t)batch->n_rows * schema->dim;
    embd__from_f32(batch->wire, dtype, batch->grads, n);
    return (struct part){
        .table = embd__table_id(schema->name),
        .dtype = dtype,
        .n_keys = batch->n_keys,
        .n_rows = batch->n_rows,
        .want_status = true,
        .keys = batch->keys,
        .offsets = schema->combiner == EMBD_COMBINER_CONCAT ? NULL : batch->offsets,
        .slots = schema->partition == EMBD_PARTITION_SLOT ? batch->slots : NULL,
        .weights = weighted ? batch->weights : NULL,
        .grads = batch->wire,
        .grads_bytes = n * embd__dtype_bytes(dtype),
    };
}

struct model_batch batch_model(const struct batch *batch, const embd_schema *schema, bool weighted)
{
    return (struct model_batch){
        .n_keys = batch->n_keys,
        .n_rows = batch->n_rows,
        .keys = batch->keys,
        .offsets = schema->combiner == EMBD_COMBINER_CONCAT ? NULL : batch->offsets,
        .slots = schema->partition == EMBD_PARTITION_SLOT ? batch->slots : NULL,
        .weights = weighted ? batch->weights : NULL,
    };
}
