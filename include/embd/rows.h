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
 * says. Of equal keys the last row counts. It does not count as a step of the table. A request has
 * up to 4 MiB, and its shard applies it whole or not at all; after an error other requests may have
 * been applied. The client numbers requests as it does pushes: they are sent again until the
 * deadline, whatever happens to servers, and applied once, in the order of the client's calls.
 * *inserted_out, or NULL: how many rows there were not before, without those of requests whose
 * first answer was lost. Blocks.
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
 *                        or the table was created again or restored. Begin again
 *   EMBD_TOO_LARGE       more than `capacity` keys share a place in the table's index, which
 *                        happens only to keys that were chosen for it: 131072 always suffice
 *   EMBD_NO_MEMORY       others as embd_get */
EMBD_API int embd_list_keys(embd_client *client, embd_key_list *list);

/* ---- what changes ---- */

/* The changes of a table since the last round, on all shards. Belongs to its client, whose thread
 * uses it. */
typedef struct embd_changes embd_changes;

/* Some of a round. The arrays are the handle's, until the next call with it. A key is in `keys`
 * once a round, however often it was pushed to; one that is in `gone_keys` too has a row again. */
typedef struct embd_changes_part {
    uint32_t struct_bytes; /* sizeof(embd_changes_part) */
    uint32_t shard;        /* whose rows these are */
    uint32_t n_rows, n_gone;
    const uint64_t *keys;       /* [n_rows] */
    const uint16_t *slots;      /* [n_rows], tables with partition slot; else NULL */
    const float *values;        /* [n_rows][dim] */
    const uint64_t *gone_keys;  /* [n_gone] that were erased or evicted */
    const uint16_t *gone_slots; /* [n_gone], as slots */
    uint64_t step;              /* of the table on this shard, at the cut that the round is of */
    uint64_t wire_bytes;        /* of all parts so far: keys, slots and rows as they travelled */
    uint8_t is_first;       /* a round begins: what came of one that has no end does not count */
    uint8_t is_shard_first; /* this shard's share of it begins: likewise */
    uint8_t has_all;        /* the round has all rows of the table: forget what there was */
    uint8_t is_last;        /* with these the receiver equals each shard at its `step` */
    uint8_t padding[4];
} embd_changes_part;

/* An initializer: embd_changes_part part = EMBD_CHANGES_PART; */
#define EMBD_CHANGES_PART                                                                          \
    {                                                                                              \
        .struct_bytes = sizeof(embd_changes_part)                                                  \
    }

/* Prepares to ask. `dtype` is that of rows on their way: F32 is exact for all tables but coded ones
 * as these are; F16 and I8 round, and take a half and a quarter of the bytes. The first round has
 * all rows; with from_now it has none, and those after it what changed since. *changes_out is freed
 * by embd_changes_close. Does not block.
 *   EMBD_INVALID     dtype
 *   EMBD_NO_MEMORY */
EMBD_API int embd_changes_open(embd_client *client, embd_table *table, embd_dtype dtype,
                               bool from_now, embd_changes **changes_out);

/* The next part: of shard 0, then 1, and so on; after is_last the next call begins the next round.
 * Call it at least every 30 seconds: servers forget subscribers that ask nothing for 60. Apply
 * gone_keys, then rows, part after part. Where a server was started again, or does not know any
 * more what changed, a round with has_all begins by itself. A part that was lost, doubled, swapped
 * or changed on its way is EMBD_PROTOCOL, and the next call begins with all rows. Blocks.
 *   EMBD_BUSY           a snapshot, dump or compaction has the table frozen until the deadline, or
 *                       another subscriber's round: call again
 *   EMBD_FULL           the table has 7 subscriptions on a shard, the token 8, or the shard 16
 *   EMBD_UNSUPPORTED    rows of the table change without a push to them: lazy_global, or the decay
 *                       decoupled_global
 *   EMBD_PROTOCOL       as above
 *   EMBD_UNKNOWN_TABLE, EMBD_UNKNOWN_METHOD   others as embd_get */
EMBD_API int embd_changes_next(embd_changes *changes, embd_changes_part *part);

/* Servers forget the subscription. NULL is allowed; before embd_close. */
EMBD_API void embd_changes_close(embd_changes *changes);

#ifdef __cplusplus
}
#endif
#endif
