/* rows.h - rows of a table by their keys, as the servers store them, with their optimizer state:
 * for rows that were trained elsewhere, for a look at single ones, for exports.
 *
 * Keys are stored keys: in tables with slot_sizes they have the offset of their slot, as dumps have
 * them. A call sends as many requests as it needs, shard after shard. */
#ifndef EMBD_ROWS_H
#define EMBD_ROWS_H

#include "embd/embd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys and their rows; the arrays are the caller's. */
typedef struct embd_rows {
    uint32_t struct_bytes; /* sizeof(embd_rows) */
    embd_dtype dtype;      /* of `values`: EMBD_DTYPE_F32, or the table's own, which is exact */
    embd_table *table;
    uint64_t n_keys;
    const uint64_t *keys;  /* [n_keys], in any order; one may occur more than once */
    const uint16_t *slots; /* [n_keys], tables with partition slot; else NULL */
    void *values;          /* [n_keys][dim] of dtype. get: output, zeros where there is no row */
    float *states;         /* [n_keys][embd_table_state_floats], or NULL: get does not ask for them,
                              put gives rows the state of a new row */
    uint8_t *statuses;     /* get: [n_keys], EMBD_KEY_HIT or EMBD_KEY_MISSING, or NULL */
} embd_rows;

/* An initializer: embd_rows rows = EMBD_ROWS(.table = items). */
#define EMBD_ROWS(...)                                                                             \
    {                                                                                              \
        .struct_bytes = sizeof(embd_rows), __VA_ARGS__                                             \
    }

/* Floats that stand beside a row of the table: PROTOCOL.md, "Rows in bulk", says which. */
EMBD_API uint32_t embd_table_state_floats(const embd_table *table);

/* Reads rows. Makes none, and counts for neither admit_after nor eviction; what a row of
 * lazy_global still owes is not paid. Each row is of one moment, rows of several requests may be of
 * several. After an error the arrays have some of the rows. Blocks.
 *   EMBD_INVALID         struct_bytes, dtype; slots that are missing, given or too high; a key
 *                        beyond its slot's size
 *   EMBD_UNKNOWN_TABLE   the table was dropped
 *   EMBD_UNKNOWN_METHOD  the servers are of an earlier version
 *   EMBD_PROTOCOL        the table was created anew with another definition: open it again
 *   EMBD_NO_MEMORY       others as embd_ping */
EMBD_API int embd_get(embd_client *client, const embd_rows *rows);

/* Writes rows, replacing those that there are; a key without a row gets one, whatever admit_after
 * says. Of equal keys the last row counts. It is no step of the table. A request has up to 4 MiB,
 * and its shard applies it whole or not at all; after an error other requests may have been
 * applied. A put has no number: repeated after an error it writes the same rows, over what was
 * pushed between. *inserted_out, or NULL: how many rows there were not before. Blocks.
 *   as embd_get, and
 *   EMBD_NOT_FINITE   a value or state is NaN or infinite and the table does not admit them
 *   EMBD_FULL         no room: nothing is evicted for a put */
EMBD_API int embd_put(embd_client *client, const embd_rows *rows, uint64_t *inserted_out);

#ifdef __cplusplus
}
#endif
#endif
