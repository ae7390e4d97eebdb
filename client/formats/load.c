/* load.c - embd_load and embd_load_tables: fill a cluster of any size from a dump or snapshot
 * directory, bit for bit. Tables that replace others are loaded in replace.c.
 *
 * The happy path: open and verify the whole directory; make the definitions of the tables, where
 * fields of them are set (redefine.h); check that no table of the cluster is in the way, and that
 * followers are there for those that are replicated; create the tables; read the parts once more,
 * some in turns, sending each row to the shard that owns its key here, in blocks (scatter.h); set
 * the step counters, and last the pushers' streams. What can fail: the data (then nothing has
 * changed), a table in the way or a follower that is missing (likewise), or a shard while rows are
 * sent: the tables that this load created are then dropped again.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "proto/stored/partread.h"
#include "client/formats/load.h"
#include "client/formats/rebound.h"
#include "client/formats/check_empty.h"
#include "client/formats/followers_wanted.h"
#include "embd/admin.h"
#include "client/formats/verify_together.h"

#define TOGETHER 8u /* parts that are read in turns */

/* ---- before anything changes ---- */

/* NULL: it is as in the directory. */
static struct definition *definition_of(const struct load *l, const struct manifest_table *table)
{
    for (uint32_t i = 0; i < l->n_definitions; i++)
        if (l->definitions[i].table == table)
            return &l->definitions[i];
    return NULL;
}

/* Remembers the table when this load is the one to create it. */
static int plan_table(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    embd_schema schema = *embd__load_schema(l, table);
    if (table->step > LIMIT_STEP)
        return embd__error_set(l->e, EMBD_INVALID,
                               "%s: table '%s' has step %" PRIu64 ", the limit is %llu",
                               l->dir->path, schema.name, table->step, LIMIT_STEP);
    /* how a table is kept does not belong to its content */
    if (!embd__load_sets(l, "durability"))
        schema.durability = EMBD_DURABILITY_AUTO;
    int is_new = embd__check_empty(l->client, &schema, l->dir->path);
    if (is_new <= 0)
        return is_new;
    const char **grown = realloc(l->created, (l->n_created + 1) * sizeof *grown);
    if (!grown)
        return embd__error_set(l->e, EMBD_NO_MEMORY, "no memory for the list of tables");
    l->created = grown;
    l->created[l->n_created++] = table->schema.s.name;
    if (embd__durability_is_replicated(embd__load_schema(l, table)->durability))
        l->replicated = table->schema.s.name;
    if (!embd__load_sets(l, "capacity"))
        embd__rebound_begin(l, definition_of(l, table));
    return 0;
}

static int create_table(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    embd_schema schema = *embd__load_schema(l, table);
    int status = embd_table_create(l->client, &schema);
    bool is_other = status == EMBD_UNSUPPORTED || status == EMBD_EXISTS;
    /* Tables that are journaled at their source can be loaded without a journal, and the other way
     * round. */
    if (!is_other || embd__load_sets(l, "durability"))
        return status;
    schema.durability = EMBD_DURABILITY_AUTO;
    return embd_table_create(l->client, &schema);
}

/* Whether it is journaled here. */
static int see_kind(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    struct description here;
    int status = embd__admin_describe(l->client, 0, table->schema.s.name, &here);
    if (status)
        return status;
    l->kinds |=
        here.schema.s.durability == EMBD_DURABILITY_SNAPSHOT ? STREAMS_OTHER : STREAMS_JOURNALED;
    embd__schema_fini(&here.schema);
    return EMBD_OK;
}

/* ---- rows ---- */

/* On as many shards as there were, each has the rows of the one before it and gets its step. On
 * others, whose rows come from several, all get the greatest. */
static bool is_alike(const struct load *l)
{
    return embd__manifest_is_placed(&l->dir->shares[0].manifest, &l->client->placement) &&
           l->schema->partition == l->to->partition;
}

static uint64_t step_there(const struct load *l, uint32_t shard)
{
    const struct dump_share *share;
    return embd__chain_part(l->dir, l->schema->name, shard, &share)->step;
}

/* Of the shard that rows of that one go to. */
static uint64_t step_of(const struct load *l, uint32_t shard)
{
    uint64_t greatest = 0;
    if (is_alike(l))
        return step_there(l, shard);
    for (uint32_t i = 0; i < l->dir->shares[0].manifest.n_shards; i++)
        greatest = step_there(l, i) > greatest ? step_there(l, i) : greatest;
    return greatest;
}

/* A block that stays as it is is sent from where it was read to. */
static int load_block(struct load *l, struct part_reader *reader, const struct row_block *block,
                      uint64_t step)
{
    struct row_block piece;
    if (l->redefining.is_same)
        return embd__scatter_lent(&l->scatter, block, &reader->arrays, &reader->arrays_capacity);
    embd__redefine_begin(&l->redefining, block, step);
    while (embd__redefine_next(&l->redefining, &piece, l->e) > 0)
        if (embd__scatter_block(&l->scatter, &piece))
            break;
    return l->e->status;
}

/* The part of one shard. */
struct loading_part {
    uint64_t step, at;
    struct part_reader reader;
    bool is_open;
};

static int open_part(struct load *l, uint32_t dir, uint32_t shard, struct loading_part *p)
{
    const struct dump_share *share;
    const struct manifest_part *part =
        embd__chain_part(&l->chain.dirs[dir], l->schema->name, shard, &share);
    *p = (struct loading_part){.step = step_of(l, shard)};
    p->is_open = embd__partread_open(&p->reader, share->path, part, l->schema, l->e) == EMBD_OK;
    return l->e->status;
}

static void close_part(struct load *l, struct loading_part *p)
{
    l->ticker.bytes_done += p->reader.at - p->at;
    embd__partread_close(&p->reader);
    p->is_open = false;
}

/* Its next block; then the part may be closed. */
static int load_next(struct load *l, struct loading_part *p, bool is_last)
{
    struct row_block block;
    if (embd__partread_next(&p->reader, &block, l->e) <= 0) {
        close_part(l, p);
        return l->e->status;
    }
    if (!is_last)
        embd__block_drop_candidates(&block);
    if (load_block(l, &p->reader, &block, p->step) ||
        embd__ticker_add(&l->ticker, block.n_rows, p->reader.at - p->at, l->e))
        return l->e->status;
    p->at = p->reader.at;
    return EMBD_OK;
}

/* ---- one table ---- */

/* From the last of the chain that has all rows of the shard on. */
static uint32_t first_dir(const struct load *l, uint32_t shard)
{
    const struct dump_share *share;
    const char *table = l->schema->name;
    uint32_t first = l->chain.n - 1;
    while (first > 0 && embd__chain_part(&l->chain.dirs[first], table, shard, &share)->has_changes)
        first--;
    return first;
}

/* Parts of some shards, block by block in turns, so that the shards here have work at once. */
static int load_together(struct load *l, uint32_t dir, uint32_t shard, uint32_t n)
{
    struct loading_part parts[TOGETHER] = {{.is_open = false}};
    bool is_last = dir + 1 == l->chain.n, goes_on = true;
    for (uint32_t i = 0; i < n && !l->e->status; i++)
        if (first_dir(l, shard + i) <= dir)
            open_part(l, dir, shard + i, &parts[i]);
    while (goes_on && !l->e->status) {
        goes_on = false;
        for (uint32_t i = 0; i < n && !l->e->status; i++)
            goes_on = (parts[i].is_open && load_next(l, &parts[i], is_last) == EMBD_OK) || goes_on;
    }
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].is_open)
            close_part(l, &parts[i]);
    return l->e->status;
}

/* One directory of the chain after the other: its rows replace those before. Increments have blocks
 * of two kinds, whose order counts, and go shard by shard. */
static int load_parts(struct load *l)
{
    uint32_t n_shards = l->dir->shares[0].manifest.n_shards;
    for (uint32_t dir = 0; dir < l->chain.n; dir++) {
        uint32_t most = dir == 0 ? TOGETHER : 1;
        for (uint32_t shard = 0; shard < n_shards; shard += most) {
            uint32_t n = n_shards - shard < most ? n_shards - shard : most;
            if (load_together(l, dir, shard, n))
                return l->e->status;
        }
        if (embd__scatter_finish(&l->scatter))
            return l->e->status;
    }
    return EMBD_OK;
}

static int load_steps(struct load *l)
{
    for (uint32_t shard = 0; shard < l->n_shards; shard++)
        if (embd__admin_set_step(l->client, shard, l->to, l->staged, step_of(l, shard)))
            return l->e->status;
    return EMBD_OK;
}

int embd__load_table(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    l->schema = &table->schema.s;
    l->to = embd__load_schema(l, table);
    int status = embd__redefine_open(&l->redefining, &table->schema, l->to, l->e);
    if (status == EMBD_OK)
        status = embd__scatter_open(&l->scatter, l->client, l->to, l->staged);
    if (status == EMBD_OK)
        status = embd__scatter_widen(&l->scatter);
    if (status == EMBD_OK)
        status = load_parts(l);
    embd__scatter_close(&l->scatter);
    embd__redefine_close(&l->redefining);
    return status == EMBD_OK ? load_steps(l) : status;
}

/* ---- which tables ---- */

static bool wants(const struct load *l, const char *table)
{
    bool is_named = l->n_tables == 0;
    for (uint32_t i = 0; i < l->n_tables; i++)
        is_named = is_named || strcmp(l->tables[i], table) == 0;
    return is_named;
}

struct each {
    struct load *load;
    int (*fn)(void *arg, const struct manifest_table *table);
};

static int visit(void *arg, const struct manifest_table *table)
{
    const struct each *each = arg;
    return wants(each->load, table->schema.s.name) ? each->fn(each->load, table) : 0;
}

int embd__load_each(struct load *l, int (*fn)(void *arg, const struct manifest_table *table))
{
    struct each each = {l, fn};
    return embd__dumpdir_each(l->dir, NULL, visit, &each);
}

static int count_unwanted(void *arg, const struct manifest_table *table)
{
    const struct load *l = arg;
    return !wants(l, table->schema.s.name);
}

bool embd__load_has_all(struct load *l)
{
    return embd__scope_is_all(&l->dir->shares[0].manifest.scope) &&
           embd__dumpdir_each(l->dir, NULL, count_unwanted, l) == 0;
}

static int add_totals(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    embd_dump_report one;
    embd__chain_totals(&l->chain, table->schema.s.name, &one);
    l->totals.rows += one.rows;
    l->totals.bytes += one.bytes;
    return 0;
}

/* ---- definitions ---- */

const embd_schema *embd__load_schema(const struct load *l, const struct manifest_table *table)
{
    const struct definition *d = definition_of(l, table);
    return d != NULL ? &d->schema : &table->schema.s;
}

bool embd__load_sets(const struct load *l, const char *field)
{
    for (uint32_t i = 0; i < l->n_set; i++)
        if (strcmp(l->set[i].field, field) == 0)
            return true;
    return false;
}

static int define(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    struct definition *grown =
        realloc(l->definitions, (l->n_definitions + 1) * sizeof *l->definitions);
    if (!grown)
        return embd__error_set(l->e, EMBD_NO_MEMORY, "no memory for the definitions of tables");
    l->definitions = grown;
    grown[l->n_definitions] = (struct definition){.table = table};
    return embd__redefine_schema(&table->schema, l->set, l->n_set,
                                 &grown[l->n_definitions++].schema, l->e);
}

/* ---- the phases ---- */

static int check_names(struct load *l)
{
    for (uint32_t i = 0; i < l->n_tables; i++)
        if (!embd__dumpdir_find(l->dir, l->tables[i]))
            return embd__error_set(l->e, EMBD_UNKNOWN_TABLE, "%s: has no table '%s'", l->dir->path,
                                   l->tables[i]);
    return EMBD_OK;
}

int embd__load_open(struct load *l, const char *dir, embd_progress *progress, void *arg)
{
    *l->e = (struct embd__error){0};
    embd__client_catch_up(l->client);
    l->n_shards = embd_shard_count(l->client);
    if (embd__chain_open(dir, &l->chain, l->e))
        return l->e->status;
    l->is_open = true;
    l->dir = embd__chain_last(&l->chain);
    if (check_names(l) || embd__dumpdir_complete(l->dir, l->e) || embd__load_each(l, define))
        return l->e->status;
    if (l->n_tables == 0)
        embd__chain_totals(&l->chain, NULL, &l->totals);
    else
        embd__load_each(l, add_totals);
    embd__ticker_begin(&l->ticker, progress, arg, l->totals.rows);
    for (uint32_t i = 0; i < l->n_tables && !l->e->status; i++)
        embd__verify_together(&l->chain, l->tables[i], &l->ticker, l->e);
    if (l->n_tables == 0)
        embd__verify_together(&l->chain, NULL, &l->ticker, l->e);
    return l->e->status;
}

int embd__load_end(struct load *l, int status, embd_dump_report *report_out)
{
    if (status == EMBD_OK && report_out)
        *report_out = l->totals;
    if (l->is_open)
        embd__chain_fini(&l->chain);
    free(l->created);
    free(l->definitions);
    return embd__error_keep(l->e, status);
}

/* After a failure, keeping its error. What cannot be dropped stays, with the rows it got. */
static void undo(struct load *l)
{
    struct embd__error kept = *l->e;
    for (uint32_t i = 0; i < l->n_created; i++)
        embd_table_drop(l->client, l->created[i]);
    *l->e = kept;
}

static int rebound(void *arg, const struct manifest_table *table)
{
    struct load *l = arg;
    const struct definition *d = definition_of(l, table);
    return d != NULL ? embd__rebound_end(l, d) : EMBD_OK;
}

static int fill(struct load *l, embd_progress *progress, void *arg)
{
    embd__ticker_begin(&l->ticker, progress, arg, l->totals.rows);
    /* Streams here that the directory has too are set, so tables that were named bring none: a
     * stream may have pushed to others. */
    bool brings_streams = l->n_tables == 0 && embd__load_has_all(l);
    int status = embd__load_each(l, create_table);
    if (status == EMBD_OK)
        status = embd__load_each(l, embd__load_table);
    if (status == EMBD_OK)
        status = embd__load_each(l, rebound);
    if (status == EMBD_OK && brings_streams)
        status = embd__load_each(l, see_kind);
    if (status == EMBD_OK && brings_streams)
        status = embd__streams_load(l->client, l->dir, l->kinds, NULL);
    if (status == EMBD_OK)
        status = embd__ticker_end(&l->ticker, l->e);
    if (status)
        undo(l);
    return status;
}

int embd__load_new(struct load *l, const char *dir, embd_progress *progress, void *arg)
{
    int status = embd__load_open(l, dir, progress, arg);
    if (status == EMBD_OK)
        status = embd__load_each(l, plan_table);
    if (status == EMBD_OK && l->replicated != NULL)
        status = embd__followers_await(l->client, l->replicated);
    return status == EMBD_OK ? fill(l, progress, arg) : status;
}

EMBD_API int embd_load(embd_client *client, const char *table, const char *dir,
                       embd_progress *progress, void *arg, embd_dump_report *report_out)
{
    struct load l = {.client = client,
                     .e = embd__client_error(client),
                     .tables = &table,
                     .n_tables = table != NULL};
    return embd__load_end(&l, embd__load_new(&l, dir, progress, arg), report_out);
}
