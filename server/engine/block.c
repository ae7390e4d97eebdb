/* block.c - see block.h. */
#include "server/engine/block.h"

#include <stdlib.h>
#include <string.h>

#include "proto/dtype.h"

#define ALIGN 64u

uint32_t block_rows_in(const embd_schema *schema, uint64_t bytes)
{
    uint64_t row = embd__row_bytes(schema), candidate = embd__candidate_bytes(schema);
    uint64_t n = bytes / (row > candidate ? row : candidate);
    return n < LIMIT_ROWS ? (uint32_t)n : LIMIT_ROWS;
}

static uint64_t take(uint64_t *total, uint64_t n, uint64_t bytes)
{
    uint64_t at = *total;
    *total += (n * bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* Where the arrays begin, or with memory NULL only how many bytes they take. */
static uint64_t point(const embd_schema *schema, uint64_t n, bool has_states, uint8_t *memory,
                      struct store_scan *scan)
{
    uint64_t total = 0,
             slot_bytes = schema->partition == EMBD_PARTITION_SLOT ? sizeof *scan->slots : 0;
    uint32_t state_floats = has_states ? embd__schema_state_floats(schema) : 0;
    uint64_t keys = take(&total, n, sizeof *scan->keys), slots = take(&total, n, slot_bytes);
    uint64_t value_bytes = embd__value_bytes(schema->dtype, schema->dim);
    uint64_t rows = take(&total, n, value_bytes);
    uint64_t states = take(&total, n, state_floats * sizeof *scan->states);
    uint64_t candidate_keys = take(&total, n, sizeof *scan->candidate_keys);
    uint64_t candidate_slots = take(&total, n, slot_bytes);
    uint64_t counts = take(&total, n, sizeof *scan->candidate_counts);
    if (memory == NULL)
        return total;
    *scan = (struct store_scan){
        .keys = (uint64_t *)(void *)(memory + keys),
        .slots = slot_bytes ? (uint16_t *)(void *)(memory + slots) : NULL,
        .rows = value_bytes ? memory + rows : NULL,
        .states = state_floats ? (float *)(void *)(memory + states) : NULL,
        .candidate_keys = (uint64_t *)(void *)(memory + candidate_keys),
        .candidate_slots = slot_bytes ? (uint16_t *)(void *)(memory + candidate_slots) : NULL,
        .candidate_counts = (uint32_t *)(void *)(memory + counts),
    };
    return total;
}

uint64_t block_bytes_of(const embd_schema *schema, uint32_t max_rows, bool has_states)
{
    return point(schema, max_rows, has_states, NULL, NULL);
}

void block_point(const embd_schema *schema, uint32_t max_rows, bool has_states, void *memory,
                 struct store_scan *scan)
{
    point(schema, max_rows, has_states, memory, scan);
}

void *block_new(const embd_schema *schema, uint32_t max_rows, struct store_scan *scan)
{
    void *memory = aligned_alloc(ALIGN, block_bytes_of(schema, max_rows, true));
    if (memory != NULL)
        block_point(schema, max_rows, true, memory, scan);
    return memory;
}

struct row_block block_of(const struct store_scan *scan)
{
    return (struct row_block){
        .n_rows = scan->n_rows,
        .n_candidates = scan->n_candidates,
        .keys = scan->keys,
        .slots = scan->slots,
        .rows = scan->rows,
        .states = scan->states,
        .candidate_keys = scan->candidate_keys,
        .candidate_slots = scan->candidate_slots,
        .candidate_counts = scan->candidate_counts,
    };
}
