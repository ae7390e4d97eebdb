/* scan.c - rows out of the shard, block by block, for dumps: of a cut that a coordinator has made
 * (cut_read.h), or under a hold, so that all blocks show one cut. */
#include <stdlib.h>

#include "server/engine/block.h"
#include "server/service/following.h"
#include "server/service/state.h"
#include "server/snapshot/cut_read.h"

#define SCAN_BYTES (8u << 20) /* of rows, at most and by default */

struct scan {
    struct cut_scan of_cut; /* id 0: of the tables as they are, under a hold */
    char name[EMBD_NAME_MAX + 1];
    struct table *table;
    embd_schema schema; /* of the blocks: the table's, or that of its keys */
    uint64_t cursor, bytes;
    uint64_t mark; /* of a follower: which digests it is to compare; 0: none */
};

/* A cursor means something to the store only: so only 0 and what the last scan gave are taken. */
static int check_cursor(struct call *call, const struct scan *scan)
{
    const struct shard_session *session = call->request->session;
    if (scan->cursor == 0)
        return EMBD_OK;
    if (session->scan_table == scan->table->id && session->scan_cursor == scan->cursor)
        return EMBD_OK;
    return embd__error_set(
        &call->error, EMBD_INVALID,
        "scan cursor: %llu is not where the last scan of '%s' on this connection ended",
        (unsigned long long)scan->cursor, scan->table->schema.s.name);
}

static int read_scan(struct call *call, struct scan *scan)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "scan");
    scan->mark = embd__field_uint(&f, "mark", 1, UINT64_MAX - 1, 0);
    scan->of_cut.id = embd__field_uint(&f, "cut", 1, UINT64_MAX, 0);
    embd__field_str(&f, "table", scan->name, sizeof scan->name,
                    scan->of_cut.id != 0 || scan->mark != 0 ? "" : NULL);
    scan->cursor = embd__field_uint(&f, "cursor", 0, UINT64_MAX, 0);
    scan->bytes = embd__field_uint(&f, "bytes", 1, SCAN_BYTES, SCAN_BYTES);
    bool keys_only = embd__field_bool(&f, "keys", false);
    scan->of_cut.is_digest = embd__field_bool(&f, "digest", false);
    if (call_end(call, &f) != EMBD_OK || scan->mark != 0)
        return call->error.status;
    if (scan->of_cut.id != 0) {
        scan->of_cut.table = scan->name;
        scan->of_cut.cursor = scan->cursor;
        scan->of_cut.bytes = scan->bytes;
        return EMBD_OK;
    }
    if (scan->of_cut.is_digest)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "scan digest: only of a cut, and 'cut' is absent");
    if (!call->request->session->holds)
        return embd__error_set(
            &call->error, EMBD_INVALID,
            "scan: this connection holds nothing; hold first, and scan within its timeout_ms");
    if (moving_refuse_cut(call->shard, "scan", &call->error) != EMBD_OK)
        return call->error.status;
    scan->table = tables_find(&call->shard->engine.tables, scan->name, &call->error);
    if (scan->table == NULL)
        return call->error.status;
    const embd_schema *schema = &scan->table->schema.s;
    scan->schema = keys_only ? embd__keys_schema(schema) : *schema;
    return check_cursor(call, scan);
}

static int scan_rows(struct call *call, struct scan *scan, struct store_scan *out)
{
    const embd_schema *schema = &scan->schema;
    uint32_t max_rows = block_rows_in(schema, scan->bytes);
    if (max_rows == 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "scan bytes: %llu, one row of table '%s' has %llu",
                               (unsigned long long)scan->bytes, schema->name,
                               (unsigned long long)embd__row_bytes(schema));
    call->work->memory = block_new(schema, max_rows, out);
    if (call->work->memory == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory to scan %u rows", max_rows);
    return call->shard->engine.tables.ops->scan(scan->table->store, &scan->cursor, max_rows, out,
                                                &call->error);
}

static void write_answer(struct call *call, const struct scan *scan, const struct store_scan *out)
{
    struct msg *m = call->answer;
    struct row_block block = block_of(out);
    struct store_stats stats;
    call->shard->engine.tables.ops->stats(scan->table->store, &stats);
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "rows", block.n_rows);
    embd__msg_field_uint(m, "candidates", block.n_candidates);
    embd__msg_field_uint(m, "next", scan->cursor);
    embd__msg_field_bool(m, "done", scan->cursor == UINT64_MAX);
    embd__msg_field_uint(m, "step", stats.steps);
    embd__row_block_write(m, &scan->schema, &block);
}

int handle_scan(struct call *call)
{
    struct scan scan;
    struct store_scan out;
    if (read_scan(call, &scan) != EMBD_OK)
        return call->error.status;
    if (scan.mark != 0)
        return following_mark_scan(call, scan.mark);
    if (scan.of_cut.id != 0 && scan.of_cut.id == call->shard->mark.id)
        return mark_scan(call, &scan.of_cut);
    if (scan.of_cut.id != 0)
        return cut_read_scan(call, &scan.of_cut);
    if (scan_rows(call, &scan, &out) != EMBD_OK)
        return call->error.status;
    struct shard_session *session = call->request->session;
    session->scan_table = scan.cursor == UINT64_MAX ? 0 : scan.table->id;
    session->scan_cursor = scan.cursor;
    write_answer(call, &scan, &out);
    return EMBD_OK;
}
