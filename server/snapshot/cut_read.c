/* cut_read.c - see cut_read.h.
 *
 * The happy path: cut_read_begin freezes the tables; cut_read_scan answers which there are, and
 * then their rows, a block a request, each once and in order; a table thaws with its last block. Of
 * a digest (proto/digest.h) each request adds a block to it, and the last one answers it: rows stay
 * here. What can fail: memory for the rows that pushes change meanwhile; then the scan says so, and
 * pushes never notice. */
#include "server/snapshot/cut_read.h"

#include <stdlib.h>
#include <string.h>

#include "proto/digest.h"
#include "server/engine/block.h"
#include "server/service/compacting.h"
#include "server/snapshot/cut.h"

/* One table of it. */
struct read_table {
    struct table *table;
    uint64_t rows, candidates, step; /* at the cut */
    uint64_t cursor;                 /* blocks that were fetched */
    struct digest *digest;           /* of these; NULL: rows are fetched */
    bool is_over;
};

/* Owner: the shard's thread. */
struct cut_read {
    uint64_t id, position; /* position: of the journal, at the cut */
    const struct shard_session *owner;
    uint32_t n;
    struct read_table tables[]; /* [n] */
};

/* ---- beginning ---- */

static int freeze(struct shard *shard, struct cut_read *cut, struct table *table,
                  struct embd__error *e)
{
    const struct store_ops *ops = shard->engine.tables.ops;
    struct store_cut whole = {.id = 0};
    struct store_stats stats;
    if (tables_freeze(&shard->engine.tables, table, &whole, e) != EMBD_OK)
        return e->status;
    ops->stats(table->store, &stats);
    cut->tables[cut->n++] = (struct read_table){
        .table = table, .rows = stats.rows, .candidates = stats.candidates, .step = stats.steps};
    return EMBD_OK;
}

static int freeze_all(struct shard *shard, struct cut_read *cut, const char *only,
                      struct embd__error *e)
{
    const struct tables *tables = &shard->engine.tables;
    if (only[0] != '\0' && tables_find(tables, only, e) == NULL)
        return e->status;
    for (uint32_t i = 0; i < tables->n && e->status == EMBD_OK; i++)
        if (only[0] == '\0' || strcmp(tables->by_name[i]->schema.s.name, only) == 0)
            freeze(shard, cut, tables->by_name[i], e);
    return e->status;
}

static int check(struct call *call)
{
    struct embd__error *e = &call->error;
    if (!call->request->session->holds)
        return embd__error_set(e, EMBD_INVALID,
                               "snapshot cut: this connection holds nothing; hold first");
    if (cut_is_writing(call->shard))
        return embd__error_set(e, EMBD_BUSY, "a snapshot is still being written");
    if (cut_is_read(call->shard))
        return embd__error_set(e, EMBD_BUSY, "another dump is still being read");
    return EMBD_OK;
}

int cut_read_begin(struct call *call, uint64_t id, const char *table)
{
    struct shard *shard = call->shard;
    if (check(call) != EMBD_OK || moving_refuse_cut(shard, "dump", &call->error) != EMBD_OK)
        return call->error.status;
    compacting_give_up(shard);
    mark_give_way(shard);
    subscribers_give_way(shard);
    struct cut_read *cut = calloc(1, sizeof *cut + shard->engine.tables.n * sizeof cut->tables[0]);
    if (cut == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for a cut");
    cut->id = id;
    cut->position = shard->commit.applied.position;
    cut->owner = call->request->session;
    shard->cut_read = cut;
    if (freeze_all(shard, cut, table, &call->error) != EMBD_OK)
        cut_read_end(shard);
    return call->error.status;
}

/* ---- reading ---- */

static int list_tables(struct call *call, const struct cut_read *cut)
{
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 1);
    embd__msg_str(m, "tables");
    embd__msg_array(m, cut->n);
    for (uint32_t i = 0; i < cut->n; i++) {
        const struct read_table *t = &cut->tables[i];
        embd__msg_map(m, 4);
        embd__msg_field_str(m, "table", t->table->schema.s.name);
        embd__msg_field_uint(m, "rows", t->rows);
        embd__msg_field_uint(m, "candidates", t->candidates);
        embd__msg_field_uint(m, "step", t->step);
    }
    return EMBD_OK;
}

static struct read_table *find(struct call *call, struct cut_read *cut, const char *name)
{
    for (uint32_t i = 0; i < cut->n; i++)
        if (strcmp(cut->tables[i].table->schema.s.name, name) == 0)
            return &cut->tables[i];
    embd__error_set(&call->error, EMBD_UNKNOWN_TABLE, "the cut has no table '%s'", name);
    return NULL;
}

static void write_block(struct call *call, const struct read_table *t,
                        const struct store_scan *scan)
{
    struct msg *m = call->answer;
    struct row_block block = block_of(scan);
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "rows", block.n_rows);
    embd__msg_field_uint(m, "candidates", block.n_candidates);
    embd__msg_field_uint(m, "next", t->cursor);
    embd__msg_field_bool(m, "done", t->is_over);
    embd__msg_field_uint(m, "step", t->step);
    embd__row_block_write(m, &t->table->schema.s, &block);
}

/* The sums come with the last answer, which owns them then. */
static void write_digest(struct call *call, struct read_table *t, uint64_t position,
                         const struct store_scan *scan)
{
    struct msg *m = call->answer;
    const struct row_block block = block_of(scan);
    embd__digest_add(t->digest, &t->table->schema.s, &block);
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 6);
    embd__msg_field_uint(m, "rows", block.n_rows);
    embd__msg_field_uint(m, "candidates", block.n_candidates);
    embd__msg_field_uint(m, "next", t->cursor);
    embd__msg_field_bool(m, "done", t->is_over);
    embd__msg_field_uint(m, "step", t->step);
    embd__msg_field_uint(m, "position", position);
    if (!t->is_over)
        return;
    free(call->work->memory);
    call->work->memory = t->digest;
    embd__digest_write(m, t->digest);
    t->digest = NULL;
}

/* A table's rows are fetched, or its digest is made, from its first block to the last. */
static int check_kind(struct call *call, struct read_table *t, bool is_digest)
{
    if (t->cursor > 0 && is_digest != (t->digest != NULL))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "scan digest: %s, the blocks of table '%s' before were read %s",
                               is_digest ? "true" : "false", t->table->schema.s.name,
                               is_digest ? "as rows" : "for a digest");
    if (!is_digest) { /* the first block for a digest was refused */
        free(t->digest);
        t->digest = NULL;
        return EMBD_OK;
    }
    if (t->digest == NULL)
        t->digest = calloc(1, sizeof *t->digest);
    return t->digest != NULL
               ? EMBD_OK
               : embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for a digest");
}

/* A block that was lost on its way cannot be had again. */
static int check_cursor(struct call *call, const struct read_table *t, uint64_t cursor)
{
    if (!t->is_over && cursor == t->cursor)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "scan cursor: %llu; of table '%s' %llu blocks of the cut were read%s, "
                           "each can be read once",
                           (unsigned long long)cursor, t->table->schema.s.name,
                           (unsigned long long)t->cursor, t->is_over ? ", which are all" : "");
}

static int scan_rows(struct call *call, const struct cut_read *cut, struct read_table *t,
                     uint64_t bytes)
{
    const struct store_ops *ops = call->shard->engine.tables.ops;
    const embd_schema *schema = &t->table->schema.s;
    struct store_scan scan;
    bool is_last = false;
    uint32_t max_rows = block_rows_in(schema, bytes);
    call->work->memory = block_new(schema, max_rows + (max_rows == 0), &scan);
    if (call->work->memory == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory to scan %u rows", max_rows);
    if (ops->scan_frozen(t->table->store, max_rows + (max_rows == 0), &scan, &is_last,
                         &call->error) != EMBD_OK)
        return call->error.status;
    t->cursor++;
    t->is_over = is_last;
    if (is_last)
        ops->thaw(t->table->store);
    if (t->digest != NULL)
        write_digest(call, t, cut->position, &scan);
    else
        write_block(call, t, &scan);
    return EMBD_OK;
}

int cut_read_scan(struct call *call, const struct cut_scan *scan)
{
    struct cut_read *cut = call->shard->cut_read;
    if (cut == NULL || cut->id != scan->id)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "scan: the cut %016llx has ended, or was never made here",
                               (unsigned long long)scan->id);
    if (scan->table[0] == '\0')
        return list_tables(call, cut);
    struct read_table *t = find(call, cut, scan->table);
    if (t == NULL || check_cursor(call, t, scan->cursor) != EMBD_OK ||
        check_kind(call, t, scan->is_digest) != EMBD_OK)
        return call->error.status;
    return scan_rows(call, cut, t, scan->bytes);
}

/* ---- the end ---- */

void cut_read_end(struct shard *shard)
{
    struct cut_read *cut = shard->cut_read;
    if (cut == NULL)
        return;
    for (uint32_t i = 0; i < cut->n; i++) {
        free(cut->tables[i].digest);
        if (!cut->tables[i].is_over)
            shard->engine.tables.ops->thaw(cut->tables[i].table->store);
    }
    shard->cut_read = NULL;
    free(cut);
}

void cut_read_drop(struct shard *shard, const struct table *table)
{
    for (uint32_t i = 0; shard->cut_read != NULL && i < shard->cut_read->n; i++)
        if (shard->cut_read->tables[i].table == table) {
            cut_read_end(shard);
            return;
        }
}

void cut_read_leave(struct shard *shard, const struct shard_session *session)
{
    if (shard->cut_read != NULL && shard->cut_read->owner == session)
        cut_read_end(shard);
}
