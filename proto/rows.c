/* rows.c - rows in bulk. Which arrays a block has, and how long each is, depends on the schema and
 * two counts alone; that is said once, in embd__row_arrays. */
#include "proto/rows.h"

#include "proto/dtype.h"
#include "proto/schema.h"

#include <stddef.h>
#include <string.h>

/* Bins and files are little-endian and used in place. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "embd runs on little-endian machines");

static uint32_t slot_bytes(const embd_schema *schema)
{
    return schema->partition == EMBD_PARTITION_SLOT ? 2 : 0;
}

static uint64_t value_bytes(const embd_schema *schema)
{
    return embd__value_bytes(schema->dtype, schema->dim);
}

uint64_t embd__row_bytes(const embd_schema *schema)
{
    return 8 + slot_bytes(schema) + value_bytes(schema) + 4ull * embd__schema_state_floats(schema);
}

uint64_t embd__candidate_bytes(const embd_schema *schema)
{
    return 8 + slot_bytes(schema) + 4;
}

embd_schema embd__keys_schema(const embd_schema *schema)
{
    embd_schema keys = *schema;
    keys.dim = 0;
    keys.dtype = EMBD_DTYPE_F32;
    keys.optimizer.kind = EMBD_OPTIMIZER_SGD;
    return keys;
}

uint32_t embd__row_arrays(const embd_schema *schema, uint32_t n_rows, uint32_t n_candidates,
                          struct row_array out[ROW_BLOCK_ARRAYS])
{
    const struct row_array all[ROW_BLOCK_ARRAYS] = {
        {"keys", 8, offsetof(struct row_block, keys)},
        {"slots", slot_bytes(schema), offsetof(struct row_block, slots)},
        {"rows", value_bytes(schema), offsetof(struct row_block, rows)},
        {"states", 4ull * embd__schema_state_floats(schema), offsetof(struct row_block, states)},
        {"candidate keys", 8, offsetof(struct row_block, candidate_keys)},
        {"candidate slots", slot_bytes(schema), offsetof(struct row_block, candidate_slots)},
        {"candidate counts", 4, offsetof(struct row_block, candidate_counts)},
    };
    uint32_t n = 0;
    for (uint32_t i = 0; i < ROW_BLOCK_ARRAYS; i++) {
        if (all[i].bytes == 0)
            continue;
        out[n] = all[i];
        out[n++].bytes *= i < 4 ? n_rows : n_candidates;
    }
    return n;
}

/* The block's pointers have different types; their bytes are all the same. */
const void *embd__row_array_data(const struct row_block *block, const struct row_array *array)
{
    const void *data;
    memcpy(&data, (const char *)block + array->member, sizeof data);
    return data;
}

void embd__row_array_point(struct row_block *block, const struct row_array *array, const void *data)
{
    memcpy((char *)block + array->member, &data, sizeof data);
}

void embd__row_block_write(struct msg *m, const embd_schema *schema, const struct row_block *block)
{
    struct row_array arrays[ROW_BLOCK_ARRAYS];
    uint32_t n = embd__row_arrays(schema, block->n_rows, block->n_candidates, arrays);
    for (uint32_t i = 0; i < n; i++)
        embd__msg_bin(m, embd__row_array_data(block, &arrays[i]), arrays[i].bytes);
}

int embd__row_block_read(struct reader *r, const embd_schema *schema, uint32_t n_rows,
                         uint32_t n_candidates, struct row_block *out)
{
    struct row_array arrays[ROW_BLOCK_ARRAYS];
    uint32_t n = embd__row_arrays(schema, n_rows, n_candidates, arrays);
    memset(out, 0, sizeof *out);
    out->n_rows = n_rows;
    out->n_candidates = n_candidates;
    for (uint32_t i = 0; i < n; i++)
        embd__row_array_point(out, &arrays[i], embd__read_bin(r, arrays[i].what, arrays[i].bytes));
    return embd__reader_end(r);
}
