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

/* Keys and their rows; the arrays are the caller's. Values of I8 and E4M3 are [n_keys] of an f32
 * scale, dim bytes, and zeros up to a multiple of four bytes. */
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
    uint64_t step;         /* put: sets how many pushes the table has had on all shards, which
                              optimizers such as adam count; no fewer than it had; 0: as it is */
} embd_rows;

/* Where a list of a table's keys is. The arrays are the caller's. */
typedef struct embd_key_list {
    uint32_t struct_bytes; /* sizeof(embd_key_list) */
    uint32_t capacity;     /* of the arrays, 1 or more; 65536 suits most tables */
    embd_table *table;
    uint64_t *keys;  /* [capacity], output */
    uint16_t *slots; /* [capacity], output: tables with partition slot; else NULL */
    uint32_t n_keys; /* output: how many the last call gave */
    uint32_t shard;  /* this and the next two: where it goes on, zero to begin */
    uint64_t cursor;
    uint64_t scan;
    uint8_t is_done; /* output: there are no more */
    uint8_t padding[7];
} embd_key_list;

/* An initializer: embd_key_list list = EMBD_KEY_LIST(.table = items). */
#define EMBD_KEY_LIST(...)                                                                         \
    {                                                                                              \
        .struct_bytes = sizeof(embd_key_list), __VA_ARGS__                                         \
    }

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
 *   EMBD_BUSY            other requests use all of the server's frame_memory: try again
 *   EMBD_NO_MEMORY       others as embd_ping */
EMBD_API int embd_get(embd_client *client, const embd_rows *rows);

/* Writes rows, replacing those that there are; a key without a row gets one, whatever admit_after
 * says. Of equal keys the last row counts. It is no step of the table. A request has up to 4 MiB,
 * and its shard applies it whole or not at all; after an error other requests may have been
 * applied. The client numbers requests as it does pushes: they are sent again until the deadline,
 * whatever happens to servers, and applied once, in the order of the client's calls. *inserted_out,
 * or NULL: how many rows there were not before, without those of requests whose first answer was
 * lost. Blocks.
 *   as embd_get, and
 *   EMBD_NOT_FINITE   a value or state is NaN or infinite and the table does not admit them; a
 *                     finite f32 is infinite in the table's f16 or bf16: then nothing was sent
 *   EMBD_FULL         no room: nothing is evicted for a put
 *   EMBD_UNANSWERED   it was sent and not answered: it may or may not have been applied
 *   EMBD_GAP, EMBD_FORGOTTEN   the shard has lost acknowledged pushes: as embd_push */
EMBD_API int embd_put(embd_client *client, const embd_rows *rows, uint64_t *inserted_out);

/* The next keys of the table that have a row, shard after shard; call it until is_done, and use
 * n_keys keys after each call. 0 keys before the end are possible. The keys have no order, and
 * those that wait for admission are not among them.
 *
 * The table may change between two calls. A key that has a row from the first call to the last is
 * listed: once by servers with the store `host`, once or more by those with GPUs if rows went
 * meanwhile. A key that gets or loses its row meanwhile is listed or not. Rows of listed keys:
 * embd_get, whose statuses tell which are gone. Blocks.
 *   EMBD_INVALID         struct_bytes, capacity 0; slots that are missing or given; a place that
 *                        no call left, or that is not of this table: a server was started again,
 *                        or the table was created or restored anew. Begin again
 *   EMBD_TOO_LARGE       more than `capacity` keys share a place in the table's index, which
 *                        happens only to keys that were chosen for it: 131072 always suffice
 *   EMBD_NO_MEMORY       others as embd_get */
EMBD_API int embd_list_keys(embd_client *client, embd_key_list *list);

#ifdef __cplusplus
}
#endif
#endif
