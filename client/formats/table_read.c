/* table_read.c - all rows of one table, as one cut.
 *
 * The happy path: shard 0's server makes the cut (cut_reading.h); describe the table on every
 * shard, scan shard after shard, and end the cut with the last row. What can fail: a shard; shards
 * that disagree about the table; a scan with more or fewer rows than the shards announced, which is
 * useless. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "client/formats/cut_reading.h"
#include "client/formats/table_copy.h"

struct table_read {
    embd_client *client;
    struct embd__error *e; /* the client's */
    struct table_schema schema;
    uint64_t n_rows, n_read;  /* promised by the shards, and handed out */
    uint32_t n_shards, shard; /* being scanned; n_shards: all were */
    struct scan_block scan;
    struct cut_reading cut;
    bool has_cut; /* it still exists */
};

struct embd__error *embd__copy_error(embd_client *client)
{
    return embd__client_error(client);
}

/* Takes shard 0's definition; the others must have the same. */
static int describe_shard(struct table_read *r, const char *table, uint32_t shard)
{
    struct description description;
    if (embd__admin_describe(r->client, shard, table, &description))
        return r->e->status;
    if (shard == 0) {
        r->schema = description.schema;
        return EMBD_OK;
    }
    const char *differs = embd__schema_fixed_difference(&r->schema.s, &description.schema.s);
    embd__schema_fini(&description.schema);
    if (!differs)
        return EMBD_OK;
    return embd__error_set(r->e, EMBD_PROTOCOL, "%s: table '%s' differs in %s from %s's",
                           embd_shard_address(r->client, shard), table, differs,
                           embd_shard_address(r->client, 0));
}

static int count_rows(void *arg, uint32_t shard, const struct cut_table *table)
{
    struct table_read *r = arg;
    (void)shard;
    r->n_rows += table->rows;
    return 0;
}

static int describe(struct table_read *r, const char *table)
{
    for (uint32_t shard = 0; shard < r->n_shards; shard++)
        if (embd__cut_tables(r->client, &r->cut, shard, count_rows, r))
            return r->e->status;
    for (uint32_t shard = 0; shard < r->n_shards; shard++)
        if (describe_shard(r, table, shard))
            return r->e->status;
    return EMBD_OK;
}

int embd__copy_read_open(embd_client *client, const char *table, struct table_read **out,
                         const struct table_schema **schema_out, uint64_t *n_rows_out)
{
    struct embd__error *e = embd__client_error(client);
    struct table_read *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read table '%s'", table);
    r->client = client;
    r->e = e;
    embd__client_catch_up(client);
    r->n_shards = embd_shard_count(client);
    if (embd__cut_open(client, table, &r->cut)) {
        free(r);
        return e->status;
    }
    r->has_cut = true;
    if (describe(r, table)) {
        uint64_t pause_us;
        embd__copy_read_end(r, &pause_us);
        return e->status;
    }
    *out = r;
    *schema_out = &r->schema;
    *n_rows_out = r->n_rows;
    return EMBD_OK;
}

/* ---- rows ---- */

static void free_block(struct table_read *r)
{
    if (r->scan.answer)
        embd__answer_free(r->scan.answer);
    r->scan.answer = NULL;
}

/* The next block of the shard, which may be empty. */
static int scan(struct table_read *r)
{
    uint64_t cursor = r->scan.next;
    free_block(r);
    if (embd__cut_renew(r->client, &r->cut))
        return r->e->status;
    int status =
        embd__admin_scan(r->client, r->shard, r->cut.job.id, &r->schema.s, cursor, &r->scan);
    if (status) {
        r->scan.answer = NULL; /* freed */
        return status;
    }
    r->n_read += r->scan.block.n_rows;
    if (r->n_read <= r->n_rows)
        return EMBD_OK;
    return embd__error_set(r->e, EMBD_PROTOCOL,
                           "table '%s' has %" PRIu64 " rows, but a scan gave more",
                           r->schema.s.name, r->n_rows);
}

static void close_cut(struct table_read *r)
{
    if (r->has_cut)
        embd__cut_close(r->client, &r->cut);
    r->has_cut = false;
}

static int check_end(struct table_read *r)
{
    close_cut(r);
    if (r->n_read == r->n_rows)
        return 0;
    return embd__error_set(r->e, EMBD_PROTOCOL,
                           "table '%s' has %" PRIu64 " rows, but a scan gave %" PRIu64,
                           r->schema.s.name, r->n_rows, r->n_read);
}

int embd__copy_read_next(struct table_read *r, const struct row_block **block_out)
{
    while (r->shard < r->n_shards) {
        if (r->scan.is_done) {
            r->shard++;
            free_block(r);
            r->scan = (struct scan_block){0};
            continue;
        }
        if (scan(r))
            return r->e->status;
        *block_out = &r->scan.block;
        if (r->scan.block.n_rows)
            return 1;
    }
    return check_end(r);
}

void embd__copy_read_end(struct table_read *r, uint64_t *pause_us_out)
{
    free_block(r);
    close_cut(r);
    *pause_us_out = r->cut.job.pause_us;
    embd__schema_fini(&r->schema);
    free(r);
}
