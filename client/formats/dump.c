/* dump.c - embd_dump: one consistent cut of one or all tables, into a new directory on this
 * machine.
 *
 * The happy path: stage DIR.tmp-PID; shard 0's server makes a cut of all shards; ask which tables
 * are in it; scan every shard of every table in blocks and append them to TABLE.SHARD.part; let the
 * cut go; sync the files, write manifest.json, and rename to DIR. Changes wait for the moment of
 * the cut only. What can fail: a shard, memory for the rows that change meanwhile, or the disk. The
 * staged directory is then removed; DIR itself appears complete or never. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "client/formats/cut_reading.h"
#include "embd/admin.h"
#include "proto/stored/durable.h"
#include "proto/partfile.h"
#include "proto/stored/ticker.h"

/* More files than this are synced one by one, so as not to run out of descriptors. */
#define OPEN_FILES_MAX 256

struct dump {
    embd_client *client;
    struct embd__error *e; /* the client's */
    const char *only;      /* table, or NULL: all */
    uint32_t n_shards;
    char *staged; /* directory being written; NULL: none */
    struct manifest manifest;
    struct durable_file *files; /* [n_tables * n_shards], table by table */
    struct cut_reading cut;
    struct ticker ticker;
    embd_dump_report report;
};

/* ---- what to dump ---- */

/* Shard 0's tables are all there are: no table is made on some shards alone within a cut. */
static int add_table(void *arg, uint32_t shard, const struct cut_table *found)
{
    struct dump *d = arg;
    struct manifest *manifest = &d->manifest;
    struct manifest_table *grown =
        realloc(manifest->tables, (manifest->n_tables + 1) * sizeof *grown);
    (void)shard;
    if (grown)
        manifest->tables = grown;
    struct manifest_part *parts = calloc(d->n_shards, sizeof *parts);
    if (!grown || !parts) {
        free(parts);
        return embd__error_set(d->e, EMBD_NO_MEMORY, "no memory for the list of tables");
    }
    struct manifest_table *table = &grown[manifest->n_tables++];
    *table = (struct manifest_table){.parts = parts, .n_parts = 0};
    snprintf(table->schema.s.name, sizeof table->schema.s.name, "%s", found->name);
    return 0;
}

static struct manifest_table *find_table(struct dump *d, const char *name)
{
    for (uint32_t i = 0; i < d->manifest.n_tables; i++)
        if (!strcmp(d->manifest.tables[i].schema.s.name, name))
            return &d->manifest.tables[i];
    return NULL;
}

/* Enters one shard's rows of a table into the manifest. */
static int add_part(void *arg, uint32_t shard, const struct cut_table *found)
{
    struct dump *d = arg;
    struct manifest_table *table = find_table(d, found->name);
    if (!table || table->n_parts != shard)
        return embd__error_set(d->e, EMBD_PROTOCOL, "%s: table '%s' is in the cut, and not in %s's",
                               embd_shard_address(d->client, shard), found->name,
                               embd_shard_address(d->client, table ? shard - 1 : 0));
    struct manifest_part *part = &table->parts[table->n_parts++];
    *part = (struct manifest_part){
        .shard = shard, .rows = found->rows, .candidates = found->candidates, .step = found->step};
    snprintf(part->file, sizeof part->file, "%s.%" PRIu32 ".part", found->name, shard);
    if (found->step > table->step)
        table->step = found->step;
    d->report.rows += found->rows;
    return 0;
}

/* All shards must agree on the schema. While there is a cut no table is dropped. */
static int describe(struct dump *d, struct manifest_table *table, uint32_t shard)
{
    struct description description;
    if (embd__admin_describe(d->client, shard, table->schema.s.name, &description))
        return d->e->status;
    if (shard == 0) {
        table->schema = description.schema;
        return EMBD_OK;
    }
    const char *differs = embd__schema_fixed_difference(&table->schema.s, &description.schema.s);
    embd__schema_fini(&description.schema);
    if (!differs)
        return EMBD_OK;
    return embd__error_set(d->e, EMBD_PROTOCOL, "%s: table '%s' differs in %s from %s's",
                           embd_shard_address(d->client, shard), table->schema.s.name, differs,
                           embd_shard_address(d->client, 0));
}

static int describe_table(struct dump *d, struct manifest_table *table)
{
    if (table->n_parts != d->n_shards)
        return embd__error_set(d->e, EMBD_PROTOCOL, "%s: has no table '%s' in the cut",
                               embd_shard_address(d->client, table->n_parts), table->schema.s.name);
    for (uint32_t shard = 0; shard < d->n_shards; shard++)
        if (describe(d, table, shard))
            return d->e->status;
    return EMBD_OK;
}

static int list_tables(struct dump *d)
{
    if (embd__cut_tables(d->client, &d->cut, 0, add_table, d))
        return d->e->status;
    for (uint32_t shard = 0; shard < d->n_shards; shard++)
        if (embd__cut_tables(d->client, &d->cut, shard, add_part, d))
            return d->e->status;
    return EMBD_OK;
}

static int describe_all(struct dump *d)
{
    if (list_tables(d))
        return d->e->status;
    for (uint32_t i = 0; i < d->manifest.n_tables; i++)
        if (describe_table(d, &d->manifest.tables[i]))
            return d->e->status;
    size_t n_files = (size_t)d->manifest.n_tables * d->n_shards;
    d->files = calloc(n_files ? n_files : 1, sizeof *d->files);
    if (!d->files)
        return embd__error_set(d->e, EMBD_NO_MEMORY, "no memory for %zu part files", n_files);
    return EMBD_OK;
}

/* ---- parts ---- */

static int write_block(struct dump *d, struct durable_file *file, const embd_schema *schema,
                       const struct row_block *block)
{
    uint8_t header[PARTFILE_BLOCK_HEADER_BYTES];
    struct msg_piece pieces[PARTFILE_BLOCK_PIECES];
    uint32_t n = embd__partfile_block(schema, block, header, pieces);
    return embd__durable_write(file, pieces, n, d->e);
}

static int write_scan(struct dump *d, struct durable_file *file, const embd_schema *schema,
                      const struct row_block *block)
{
    uint64_t before = file->bytes;
    if (block->n_rows == 0 && block->n_candidates == 0)
        return EMBD_OK;
    if (write_block(d, file, schema, block))
        return d->e->status;
    return embd__ticker_add(&d->ticker, block->n_rows, file->bytes - before, d->e);
}

static int scan_part(struct dump *d, const embd_schema *schema, struct manifest_part *part,
                     struct durable_file *file)
{
    struct scan_block scan = {0};
    uint64_t rows = 0, candidates = 0;
    while (!scan.is_done) {
        if (embd__cut_renew(d->client, &d->cut) ||
            embd__admin_scan(d->client, part->shard, d->cut.job.id, schema, scan.next, &scan))
            return d->e->status;
        int status = write_scan(d, file, schema, &scan.block);
        embd__answer_free(scan.answer);
        if (status)
            return status;
        rows += scan.block.n_rows;
        candidates += scan.block.n_candidates;
    }
    if (rows == part->rows && candidates == part->candidates)
        return EMBD_OK;
    return embd__error_set(d->e, EMBD_PROTOCOL,
                           "%s: table '%s' has %" PRIu64 " rows and %" PRIu64
                           " candidates, but a scan gave %" PRIu64 " and %" PRIu64,
                           embd_shard_address(d->client, part->shard), schema->name, part->rows,
                           part->candidates, rows, candidates);
}

static int finish_part(struct dump *d, struct manifest_part *part, struct durable_file *file)
{
    if (file->fd < 0)
        return EMBD_OK;
    if (embd__durable_finish(file, d->e))
        return d->e->status;
    part->bytes = file->bytes;
    part->xxh3 = file->xxh3;
    d->report.bytes += file->bytes;
    return EMBD_OK;
}

static int write_part(struct dump *d, const embd_schema *schema, struct manifest_part *part,
                      struct durable_file *file)
{
    uint8_t header[PARTFILE_HEADER_BYTES];
    struct row_block end = {0};
    if (embd__durable_create(file, d->staged, part->file, d->e))
        return d->e->status;
    embd__partfile_header(header, schema, part->shard);
    if (embd__durable_write(file, &(struct msg_piece){header, sizeof header}, 1, d->e) ||
        scan_part(d, schema, part, file) || write_block(d, file, schema, &end))
        return d->e->status;
    bool sync_now = (uint64_t)d->manifest.n_tables * d->n_shards > OPEN_FILES_MAX;
    return sync_now ? finish_part(d, part, file) : EMBD_OK;
}

/* Calls `step` for every part of every table. */
static int each_part(struct dump *d, int (*step)(struct dump *, const embd_schema *,
                                                 struct manifest_part *, struct durable_file *))
{
    for (uint32_t i = 0; i < d->manifest.n_tables; i++)
        for (uint32_t shard = 0; shard < d->n_shards; shard++) {
            struct manifest_table *table = &d->manifest.tables[i];
            size_t file = (size_t)i * d->n_shards + shard;
            if (step(d, &table->schema.s, &table->parts[shard], &d->files[file]))
                return d->e->status;
        }
    return EMBD_OK;
}

/* ---- the phases ---- */

static int write_parts(struct dump *d, embd_progress *progress, void *arg)
{
    if (embd__cut_open(d->client, d->only, &d->cut))
        return d->e->status;
    d->report.pause_us = d->cut.job.pause_us;
    if (describe_all(d) == EMBD_OK) {
        embd__ticker_begin(&d->ticker, progress, arg, d->report.rows);
        each_part(d, write_part);
    }
    embd__cut_close(d->client, &d->cut);
    return d->e->status;
}

static int write_manifest(struct dump *d)
{
    struct durable_file file = {.fd = -1};
    char *json = embd__manifest_write(&d->manifest);
    if (!json)
        return embd__error_set(d->e, EMBD_NO_MEMORY, "no memory for the manifest");
    if (embd__durable_create(&file, d->staged, "manifest.json", d->e) == EMBD_OK &&
        embd__durable_write(&file, &(struct msg_piece){json, strlen(json)}, 1, d->e) == EMBD_OK)
        embd__durable_finish(&file, d->e);
    embd__durable_fini(&file);
    free(json);
    return d->e->status;
}

static int finish_each(struct dump *d, const embd_schema *schema, struct manifest_part *part,
                       struct durable_file *file)
{
    (void)schema;
    return finish_part(d, part, file);
}

static int finish(struct dump *d, const char *dir)
{
    if (each_part(d, finish_each) || write_manifest(d) || embd__ticker_end(&d->ticker, d->e))
        return d->e->status;
    return embd__durable_publish(d->staged, dir, d->e);
}

static void fini(struct dump *d)
{
    size_t n_files = d->files ? (size_t)d->manifest.n_tables * d->n_shards : 0;
    for (size_t i = 0; i < n_files; i++)
        embd__durable_fini(&d->files[i]);
    free(d->files);
    embd__manifest_fini(&d->manifest);
    free(d->staged);
}

EMBD_API int embd_dump(embd_client *client, const char *table, const char *dir,
                       embd_progress *progress, void *arg, embd_dump_report *report_out)
{
    struct dump d = {.client = client, .e = embd__client_error(client), .only = table};
    *d.e = (struct embd__error){0};
    embd__client_catch_up(client);
    d.n_shards = embd_shard_count(client);
    d.manifest.n_shards = d.n_shards;
    struct placement *placement = malloc(sizeof *placement);
    if (placement == NULL)
        return embd__error_keep(
            d.e, embd__error_set(d.e, EMBD_NO_MEMORY, "no memory for the manifest of a dump"));
    *placement = client->placement;
    d.manifest.placement = placement;
    snprintf(d.manifest.kind, sizeof d.manifest.kind, "dump");
    snprintf(d.manifest.embd_version, sizeof d.manifest.embd_version, "%s", embd_version());
    int status = embd__durable_stage(dir, &d.staged, d.e);
    if (status == EMBD_OK && (status = write_parts(&d, progress, arg)) == EMBD_OK)
        status = finish(&d, dir);
    if (status && d.staged)
        embd__durable_discard(d.staged);
    if (status == EMBD_OK && report_out)
        *report_out = d.report;
    fini(&d);
    return embd__error_keep(d.e, status);
}
