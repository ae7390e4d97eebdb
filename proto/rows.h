/* rows.h - the arrays of a row block as a list, in their one order: messages and part files walk it
 * alike. */
#ifndef EMBD_PROTO_ROWS_H
#define EMBD_PROTO_ROWS_H

#include "proto/message.h"

#define ROW_BLOCK_ARRAYS 7

/* One array that exists for a schema. */
struct row_array {
    const char *what; /* "rows" */
    uint64_t bytes;   /* of the whole array */
    size_t member;    /* offset of its pointer in struct row_block */
};

/* Fills `out` for a block of this many rows and candidates; returns the number of arrays of the
 * schema. */
uint32_t embd__row_arrays(const embd_schema *schema, uint32_t n_rows, uint32_t n_candidates,
                          struct row_array out[ROW_BLOCK_ARRAYS]);

const void *embd__row_array_data(const struct row_block *block, const struct row_array *array);
void embd__row_array_point(struct row_block *block, const struct row_array *array,
                           const void *data);

#endif
