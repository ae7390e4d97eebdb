/* admin.h - the admin requests that dump and load are made of (proto/PROTOCOL.md).
 *
 * Each returns EMBD_OK or a negative status; the client's error then names the shard and the cause.
 */
#ifndef EMBD_FORMATS_ADMIN_H
#define EMBD_FORMATS_ADMIN_H

#include "client/core/request.h"
#include "proto/schema.h"

/* embd__request_begin for an admin request: it fails at once if there is no admin socket to connect
 * to, since no waiting helps, instead of at the deadline. */
struct msg *embd__admin_begin(embd_client *client, enum method method);

/* After the last field and bin of an answer were read: frees it and gives what was wrong with it a
 * name. */
int embd__admin_end(embd_client *client, uint32_t shard, enum method method, struct answer *answer);

struct description {
    uint64_t step, rows, candidates;
    struct table_schema schema;
};

/* One shard's view of a table; embd__schema_fini(&out->schema) frees. EMBD_UNKNOWN_TABLE. */
int embd__admin_describe(embd_client *client, uint32_t shard, const char *table,
                         struct description *out);

/* The answer to one scan request. */
struct scan_block {
    struct answer *answer; /* owns what `block` points to; embd__answer_free */
    struct row_block block;
    uint64_t next; /* cursor of the next request */
    bool is_done;
    uint64_t step;
};

/* The next rows of a table in the cut, from cursor 0 on; perhaps none, while more are on their way.
 * On failure there is nothing to free. */
int embd__admin_scan(embd_client *client, uint32_t shard, uint64_t cut, const embd_schema *schema,
                     uint64_t cursor, struct scan_block *out);

/* Writes rows to a shard, or removes keys there; they must be routed to it. `staged`: the id of the
 * set of staged tables that it is in; 0: it is in none. */
int embd__admin_load(embd_client *client, uint32_t shard, const embd_schema *schema,
                     uint64_t staged, const struct row_block *block);
/* The same as a message that is sent by other means: behind embd__admin_begin or the like. The
 * block stays until it is sent. */
void embd__admin_load_write(struct msg *m, const embd_schema *schema, uint64_t staged,
                            const struct row_block *block);
int embd__admin_set_step(embd_client *client, uint32_t shard, const embd_schema *schema,
                         uint64_t staged, uint64_t step);

#endif
