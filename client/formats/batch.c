/* batch.c - rows on their way to one shard, gathered until a block is full. */
#include <stdlib.h>
#include <string.h>

#include "client/formats/batch.h"
#include "proto/dtype.h"
#include "proto/schema.h"

#define ALIGN 64u

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Takes `bytes` from the front of what is left of the allocation. */
static void *cut(uint8_t **next, uint64_t bytes)
{
    void *piece = *next;
    *next += padded(bytes);
    return piece;
}

int embd__batch_open(struct batch *batch, const embd_schema *schema, uint64_t bytes,
                     struct embd__error *e)
{
    uint64_t row_bytes = embd__row_bytes(schema), fit = bytes / row_bytes;
    uint64_t n = fit < 1 ? 1 : fit > LIMIT_KEYS ? LIMIT_KEYS : fit;
    uint64_t total = n * (row_bytes + embd__candidate_bytes(schema)) + 7 * ALIGN;
    uint64_t value_bytes = embd__value_bytes(schema->dtype, schema->dim);
    uint64_t state_bytes = embd__schema_state_floats(schema) * sizeof(float);
    uint8_t *next = aligned_alloc(ALIGN, padded(total));
    bool has_slots = schema->partition == EMBD_PARTITION_SLOT;
    if (!next)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu rows on their way",
                               (unsigned long long)n);
    *batch = (struct batch){.capacity = (uint32_t)n, .memory = next};
    batch->keys = cut(&next, n * sizeof *batch->keys);
    batch->slots = has_slots ? cut(&next, n * sizeof *batch->slots) : NULL;
    batch->rows = cut(&next, n * value_bytes);
    batch->states = state_bytes ? cut(&next, n * state_bytes) : NULL;
    batch->candidate_keys = cut(&next, n * sizeof *batch->candidate_keys);
    batch->candidate_slots = has_slots ? cut(&next, n * sizeof *batch->candidate_slots) : NULL;
    batch->candidate_counts = cut(&next, n * sizeof *batch->candidate_counts);
    return EMBD_OK;
}

void embd__batch_close(struct batch *batch)
{
    free(batch->memory);
    *batch = (struct batch){0};
}

void embd__batch_add_row(struct batch *batch, const embd_schema *schema,
                         const struct row_block *block, uint32_t i)
{
    size_t value_bytes = embd__value_bytes(schema->dtype, schema->dim), to = batch->n_rows++;
    size_t n_state = embd__schema_state_floats(schema);
    batch->keys[to] = block->keys[i];
    if (batch->slots)
        batch->slots[to] = block->slots[i];
    memcpy(batch->rows + to * value_bytes, (const uint8_t *)block->rows + i * value_bytes,
           value_bytes);
    if (batch->states)
        memcpy(batch->states + to * n_state, block->states + i * n_state, n_state * sizeof(float));
}

void embd__batch_add_candidate(struct batch *batch, const struct row_block *block, uint32_t i)
{
    uint32_t to = batch->n_candidates++;
    batch->candidate_keys[to] = block->candidate_keys[i];
    if (batch->candidate_slots)
        batch->candidate_slots[to] = block->candidate_slots[i];
    batch->candidate_counts[to] = block->candidate_counts[i];
}

struct row_block embd__batch_block(const struct batch *b)
{
    return (struct row_block){
        .n_rows = b->n_rows,
        .n_candidates = b->n_candidates,
        .keys = b->keys,
        .slots = b->slots,
        .rows = b->rows,
        .states = b->states,
        .candidate_keys = b->candidate_keys,
        .candidate_slots = b->candidate_slots,
        .candidate_counts = b->candidate_counts,
    };
}
