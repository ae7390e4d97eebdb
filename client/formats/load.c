/* load.c - embd_load: fills a cluster of any size from a dump or snapshot directory, bit for bit.
 *
 * The happy path: open and verify the whole directory; check that no table of the cluster is in the
 * way; create the tables; read the parts once more, sending each row to the shard that owns its key
 * here, in blocks; set the step counters last. A block whose rows all belong to one shard (as in a
 * cluster of the size it was taken from) is sent as it lies in the file; otherwise rows are
 * gathered per shard. What can fail: the data (then nothing has changed), a table in the way
 * (likewise), or a shard while rows are sent: the tables that this load created are then dropped
 * again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "batch.h"
#include "partread.h"
#include "route.h"
#include "verify.h"

/* For rows gathered per shard, all shards together; a shard's share is at most one block. */
#define GATHER_BYTES (256u << 20)

struct load {
    embd_client *client;
    struct embd__error *e; /* the client's */
    const char *only;
    struct dump_dir dir;
    uint32_t n_shards;
    struct ticker ticker;
    const char **created; /* [n_created] names in `dir` */
    uint32_t n_created;
    /* The table being filled. */
    const embd_schema *schema;
    struct batch *batches; /* [n_shards] */
};

/* ---- before anything changes ---- */

/* What stands under the table's name on one shard: 1 nothing, 0 an empty table of this definition,
 * negative otherwise. */
static int look_at(struct load *l, const struct manifest_table *table, uint32_t shard)
{
    struct description found;
    const char *name = table->schema.s.name;
    int status = embd__admin_describe(l->client, shard, name, &found);
    if (status == EMBD_UNKNOWN_TABLE) {
        *l->e = (struct embd__error){0};
        return 1;
    }
    if (status)
        return status;
    const char *differs = embd__schema_difference(&found.schema.s, &table->schema.s);
    uint64_t rows = found.rows + found.candidates;
    embd__schema_fini(&found.schema);
    if (differs)
        return embd__error_set(l->e, EMBD_EXISTS,
                               "%s: table '%s' exists with another %s than in %s; drop it first",
                               embd_shard_address(l->client, shard), name, differs, l->dir.path);
    if (rows)
        return embd__error_set(l->e, EMBD_EXISTS,
                               "%s: table '%s' holds %" PRIu64
                               " rows; only an empty table is loaded, drop it first",
                               embd_shard_address(l->client, shard), name, rows);
    return 0;
}

/* Remembers the table when this load is the one to create it. */
static int plan_table(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    bool is_new = true;
    for (uint32_t shard = 0; shard < l->n_shards; shard++) {
        int found = look_at(l, table, shard);
        if (found < 0)
            return found;
        is_new = is_new && found;
    }
    if (!is_new)
        return 0;
    const char **grown = realloc(l->created, (l->n_created + 1) * sizeof *grown);
    if (!grown)
        return embd__error_set(l->e, EMBD_NO_MEMORY, "no memory for the list of tables");
    l->created = grown;
    l->created[l->n_created++] = table->schema.s.name;
    return 0;
}

static int create_table(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    return embd_table_create(l->client, &table->schema.s);
}

/* ---- rows ---- */

static int flush(struct load *l, uint32_t shard)
{
    struct batch *batch = &l->batches[shard];
    if (batch->n_rows == 0 && batch->n_candidates == 0)
        return EMBD_OK;
    struct row_block block = embd__batch_block(batch);
    batch->n_rows = batch->n_candidates = 0;
    return embd__admin_load(l->client, shard, l->schema, &block);
}

static int flush_all(struct load *l)
{
    for (uint32_t shard = 0; shard < l->n_shards; shard++)
        if (flush(l, shard))
            return l->e->status;
    return EMBD_OK;
}

static uint32_t owner(const struct load *l, const uint64_t *keys, const uint16_t *slots, uint32_t i)
{
    return embd__route(l->schema->partition, l->n_shards, slots ? slots[i] : 0, keys[i]);
}

/* The shard that owns every row and candidate of the block, or n_shards. */
static uint32_t only_owner(const struct load *l, const struct row_block *b)
{
    uint32_t shard = b->n_rows ? owner(l, b->keys, b->slots, 0)
                               : owner(l, b->candidate_keys, b->candidate_slots, 0);
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (owner(l, b->keys, b->slots, i) != shard)
            return l->n_shards;
    for (uint32_t i = 0; i < b->n_candidates; i++)
        if (owner(l, b->candidate_keys, b->candidate_slots, i) != shard)
            return l->n_shards;
    return shard;
}

/* The batch of a shard, with room for one more row and candidate; NULL: the error is set. */
static struct batch *room(struct load *l, uint32_t shard)
{
    struct batch *batch = &l->batches[shard];
    uint64_t bytes = GATHER_BYTES / l->n_shards;
    if (bytes > PARTFILE_BLOCK_BYTES)
        bytes = PARTFILE_BLOCK_BYTES;
    if (!batch->memory && embd__batch_open(batch, l->schema, bytes, l->e))
        return NULL;
    bool is_full = batch->n_rows == batch->capacity || batch->n_candidates == batch->capacity;
    return is_full && flush(l, shard) ? NULL : batch;
}

static int scatter(struct load *l, const struct row_block *b)
{
    for (uint32_t i = 0; i < b->n_rows; i++) {
        struct batch *batch = room(l, owner(l, b->keys, b->slots, i));
        if (!batch)
            return l->e->status;
        embd__batch_add_row(batch, l->schema, b, i);
    }
    for (uint32_t i = 0; i < b->n_candidates; i++) {
        struct batch *batch = room(l, owner(l, b->candidate_keys, b->candidate_slots, i));
        if (!batch)
            return l->e->status;
        embd__batch_add_candidate(batch, b, i);
    }
    return EMBD_OK;
}

static int load_block(struct load *l, const struct row_block *block)
{
    uint32_t shard = only_owner(l, block);
    return shard < l->n_shards ? embd__admin_load(l->client, shard, l->schema, block)
                               : scatter(l, block);
}

static int load_part(struct load *l, const struct dump_share *share,
                     const struct manifest_part *part)
{
    struct part_reader reader;
    struct row_block block;
    if (embd__partread_open(&reader, share->path, part, l->schema, l->e))
        return l->e->status;
    uint64_t at = 0;
    while (embd__partread_next(&reader, &block, l->e) > 0) {
        if (load_block(l, &block) ||
            embd__ticker_add(&l->ticker, block.n_rows, reader.at - at, l->e))
            break;
        at = reader.at;
    }
    l->ticker.bytes_done += reader.at - at;
    embd__partread_close(&reader);
    return l->e->status;
}

/* ---- one table ---- */

static int load_parts(struct load *l, uint64_t *step_out)
{
    *step_out = 0;
    for (uint32_t i = 0; i < l->dir.n_shares; i++) {
        const struct dump_share *share = &l->dir.shares[i];
        const struct manifest_table *table = embd__dumpdir_table(share, l->schema->name);
        for (uint32_t j = 0; table && j < table->n_parts; j++)
            if (load_part(l, share, &table->parts[j]))
                return l->e->status;
        if (table && table->step > *step_out)
            *step_out = table->step;
    }
    return flush_all(l);
}

static int load_table(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    uint64_t step;
    l->schema = &table->schema.s;
    l->batches = calloc(l->n_shards, sizeof *l->batches);
    if (!l->batches)
        return embd__error_set(l->e, EMBD_NO_MEMORY, "no memory to load table '%s'",
                               l->schema->name);
    int status = load_parts(l, &step);
    for (uint32_t shard = 0; shard < l->n_shards; shard++) {
        embd__batch_close(&l->batches[shard]);
        if (status == EMBD_OK)
            status = embd__admin_set_step(l->client, shard, l->schema, step);
    }
    free(l->batches);
    return status;
}

/* ---- the phases ---- */

static int check(struct load *l, embd_progress *progress, void *arg)
{
    embd_dump_report totals;
    if (l->only && !embd__dumpdir_find(&l->dir, l->only))
        return embd__error_set(l->e, EMBD_UNKNOWN_TABLE, "%s: there is no table '%s' in it",
                               l->dir.path, l->only);
    if (embd__dumpdir_complete(&l->dir, l->e))
        return l->e->status;
    embd__dumpdir_totals(&l->dir, l->only, &totals);
    embd__ticker_begin(&l->ticker, progress, arg, totals.rows);
    if (embd__verify_parts(&l->dir, l->only, &l->ticker, l->e))
        return l->e->status;
    return embd__dumpdir_each(&l->dir, l->only, plan_table, l);
}

/* After a failure, keeping its error. What cannot be dropped stays, with the rows it got. */
static void undo(struct load *l)
{
    struct embd__error kept = *l->e;
    for (uint32_t i = 0; i < l->n_created; i++)
        embd_table_drop(l->client, l->created[i]);
    *l->e = kept;
}

static int fill(struct load *l, embd_progress *progress, void *arg, embd_dump_report *report)
{
    embd__dumpdir_totals(&l->dir, l->only, report);
    embd__ticker_begin(&l->ticker, progress, arg, report->rows);
    int status = embd__dumpdir_each(&l->dir, l->only, create_table, l);
    if (status == EMBD_OK)
        status = embd__dumpdir_each(&l->dir, l->only, load_table, l);
    if (status == EMBD_OK)
        status = embd__ticker_end(&l->ticker, l->e);
    if (status)
        undo(l);
    return status;
}

EMBD_API int embd_load(embd_client *client, const char *table, const char *dir,
                       embd_progress *progress, void *arg, embd_dump_report *report_out)
{
    struct load l = {.client = client, .e = embd__client_error(client), .only = table};
    embd_dump_report report;
    *l.e = (struct embd__error){0};
    l.n_shards = embd_shard_count(client);
    if (embd__dumpdir_open(dir, &l.dir, l.e))
        return l.e->status;
    int status = check(&l, progress, arg);
    if (status == EMBD_OK)
        status = fill(&l, progress, arg, &report);
    if (status == EMBD_OK && report_out)
        *report_out = report;
    embd__dumpdir_fini(&l.dir);
    free(l.created);
    return status;
}
