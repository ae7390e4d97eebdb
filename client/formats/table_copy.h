/* table_copy.h - all rows of one table out of a cluster, and into one: the door through which a
 * library beside libembd reaches what its public functions do not offer.
 *
 * libembd-hugectr comes in here and nowhere else. The functions are exported under a version that
 * names the release (libembd.map.in), so a library of another release does not load: they may
 * change with every release, and no program of a user's may call them.
 *
 * Functions return EMBD_OK or a negative status; the client's error then has the sentence. */
#ifndef EMBD_FORMATS_TABLE_COPY_H
#define EMBD_FORMATS_TABLE_COPY_H

#include "proto/message.h"
#include "proto/schema.h"

/* The client's error. Each public function clears it at its start. */
EMBD_API struct embd__error *embd__copy_error(embd_client *client);

/* ---- out of a cluster ---- */

struct table_read;

/* Begins one consistent cut of a table; changes wait for that moment alone. `schema_out` is valid
 * until the end, *n_rows_out is the rows of all shards. EMBD_UNKNOWN_TABLE, EMBD_BUSY. On failure
 * *out is NULL. */
EMBD_API int embd__copy_read_open(embd_client *client, const char *table, struct table_read **out,
                                  const struct table_schema **schema_out, uint64_t *n_rows_out);

/* The next rows, shard after shard: 1 and *block_out, valid until the next call; 0: the end, after
 * *n_rows_out rows. To be called every few seconds at least. */
EMBD_API int embd__copy_read_next(struct table_read *read, const struct row_block **block_out);

/* Frees; *pause_us_out is how long changes waited. The client's error stays as it is. */
EMBD_API void embd__copy_read_end(struct table_read *read, uint64_t *pause_us_out);

/* ---- into a cluster ---- */

struct table_fill;

/* Creates the table of `schema`, which must outlive the filling; one that exists must be empty and
 * of the same definition. EMBD_EXISTS names `source`, where rows come from. On failure *out is
 * NULL. */
EMBD_API int embd__copy_fill_open(embd_client *client, const embd_schema *schema,
                                  const char *source, struct table_fill **out);

/* Whether embd__copy_fill_open would find a table in its way: EMBD_EXISTS. Changes nothing. */
EMBD_API int embd__copy_fill_check(embd_client *client, const embd_schema *schema,
                                   const char *source);

/* Sends rows to the shards that own them, or keeps copies to send later. */
EMBD_API int embd__copy_fill_add(struct table_fill *fill, const struct row_block *block);

/* Sends what was kept. *n_rows_out is how many rows the table has then: a key that was added twice
 * counts once. */
EMBD_API int embd__copy_fill_flush(struct table_fill *fill, uint64_t *n_rows_out);

/* Sets the table's step counter on every shard. */
EMBD_API int embd__copy_fill_set_step(struct table_fill *fill, uint64_t step);

/* Frees. Where `status` is an error, drops the table that embd__copy_fill_open created; the
 * client's error stays as it is. */
EMBD_API void embd__copy_fill_end(struct table_fill *fill, int status);

#endif
