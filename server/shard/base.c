/* base.c - a journal begins anew: with requests that make what the journaled tables hold now, instead
 * of all that ever changed them.
 *
 * The happy path: for each journaled table a table_create and loads of all its rows, then one request
 * with the writers; the journal takes them as its base and drops what was before. Requests are built
 * as a client would, and scanned as a server does, so that a replay handles them like all others. */
#include "base.h"

#include <stdlib.h>

#include "block.h"
#include "commit.h"
#include "journal.h"
#include "own_frame.h"

#define BLOCK_BYTES (8u << 20)

struct base {
    struct shard *shard;
    struct msg msg;
    struct own_frame own;
    struct embd__error *e;
};

/* What is in b->msg becomes a record. */
static int add(struct base *b)
{
    if (own_frame_scan(&b->own, &b->msg, b->e) != EMBD_OK)
        return b->e->status;
    return journal_base_add(b->shard->journal, &b->own.frame, b->e);
}

static int add_create(struct base *b, const embd_schema *schema)
{
    embd__msg_request(&b->msg, 0, METHOD_TABLE_CREATE);
    embd__msg_map(&b->msg, 1);
    embd__msg_str(&b->msg, "schema");
    embd__schema_write(&b->msg, schema);
    return add(b);
}

static int add_block(struct base *b, const embd_schema *schema, const struct row_block *block,
                     uint64_t step)
{
    embd__msg_request(&b->msg, 0, METHOD_LOAD);
    embd__msg_map(&b->msg, 4);
    embd__msg_field_str(&b->msg, "table", schema->name);
    embd__msg_field_uint(&b->msg, "rows", block->n_rows);
    embd__msg_field_uint(&b->msg, "candidates", block->n_candidates);
    embd__msg_field_uint(&b->msg, "step", step);
    embd__row_block_write(&b->msg, schema, block);
    return add(b);
}

/* A table without rows gets one block: it has the step. */
static int add_rows(struct base *b, const struct table *table)
{
    const struct store_ops *ops = b->shard->tables.ops;
    const embd_schema *schema = &table->schema.s;
    struct store_scan scan;
    struct store_stats stats;
    uint32_t max_rows = block_rows_in(schema, BLOCK_BYTES);
    void *memory = block_new(schema, max_rows, &scan);
    if (memory == NULL)
        return embd__error_set(b->e, EMBD_NO_MEMORY, "no memory for the base of table '%s'",
                               schema->name);
    ops->stats(table->store, &stats);
    for (uint64_t cursor = 0; cursor != UINT64_MAX && b->e->status == EMBD_OK;) {
        if (ops->scan(table->store, &cursor, max_rows, &scan, b->e) != EMBD_OK)
            break;
        struct row_block block = block_of(&scan);
        add_block(b, schema, &block, stats.steps);
    }
    free(memory);
    return b->e->status;
}

static int add_writers(struct base *b)
{
    const struct writers *writers = &b->shard->journaled_writers;
    struct push_writer *list = malloc((writers->n + 1) * sizeof *list);
    if (list == NULL)
        return embd__error_set(b->e, EMBD_NO_MEMORY, "no memory for a list of %u writers",
                               writers->n);
    uint32_t n = writers_list(writers, list);
    embd__msg_request(&b->msg, 0, METHOD_WRITERS);
    embd__msg_map(&b->msg, 1);
    embd__msg_field_uint(&b->msg, "writers", n);
    embd__msg_bin(&b->msg, list, n * sizeof *list);
    add(b);
    free(list);
    return b->e->status;
}

static int write_base(struct base *b)
{
    const struct tables *tables = &b->shard->tables;
    if (journal_base_begin(b->shard->journal, b->e) != EMBD_OK)
        return b->e->status;
    for (uint32_t i = 0; i < tables->n && b->e->status == EMBD_OK; i++) {
        const struct table *table = tables->by_name[i];
        if (commit_is_kept(table) && add_create(b, &table->schema.s) == EMBD_OK)
            add_rows(b, table);
    }
    if (b->e->status == EMBD_OK && add_writers(b) == EMBD_OK)
        journal_base_end(b->shard->journal, b->e);
    return b->e->status;
}

int base_make(struct shard *shard, struct embd__error *e)
{
    if (shard->journal == NULL || shard->n_journaled > 0 || !journal_wants_base(shard->journal))
        return EMBD_OK;
    return base_make_now(shard, e);
}

int base_make_now(struct shard *shard, struct embd__error *e)
{
    struct base *b = malloc(sizeof *b);
    if (b == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a journal's base");
    b->shard = shard;
    b->e = e;
    embd__msg_init(&b->msg);
    if (write_base(b) != EMBD_OK)
        journal_base_abort(shard->journal);
    embd__msg_fini(&b->msg);
    free(b);
    return e->status;
}
