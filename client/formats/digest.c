/* digest.c - embd_digest and embd_digest_directory: what tables hold, as numbers to compare.
 *
 * The happy path of a cluster: a cut of all shards, as for a dump; scan each shard of each table,
 * and add the rows to its digest. Of a directory: read its part files. Increments are refused: a
 * row may be in several of a chain, and only a load knows which one counts. */
#include <stdlib.h>
#include <string.h>

#include "client/formats/admin.h"
#include "client/formats/cut_reading.h"
#include "embd/admin.h"
#include "proto/digest.h"
#include "proto/stored/dumpdir.h"
#include "proto/stored/partread.h"
#include "proto/stored/ticker.h"

typedef int visit_digest(void *arg, const embd_table_digest *table);

struct digesting {
    visit_digest *visit;
    void *arg;
    struct embd__error *e;
    struct ticker ticker;
    struct digest *digest; /* of the table at hand */
    uint64_t step;
};

static int digesting_begin(struct digesting *d, embd_progress *progress, void *told, uint64_t rows)
{
    embd__ticker_begin(&d->ticker, progress, told, rows);
    d->digest = malloc(sizeof *d->digest);
    return d->digest ? EMBD_OK : embd__error_set(d->e, EMBD_NO_MEMORY, "no memory for a digest");
}

static void begin_table(struct digesting *d)
{
    *d->digest = (struct digest){0};
    d->step = 0;
}

static int add_block(struct digesting *d, const embd_schema *schema, const struct row_block *block)
{
    embd__digest_add(d->digest, schema, block);
    return embd__ticker_add(&d->ticker, block->n_rows, 0, d->e);
}

static int end_table(const struct digesting *d, const char *name)
{
    const embd_table_digest table = {.name = name,
                                     .rows = d->digest->rows,
                                     .candidates = d->digest->candidates,
                                     .step = d->step,
                                     .digest = embd__digest_sum(d->digest),
                                     .parts = d->digest->parts};
    return d->visit(d->arg, &table);
}

/* ---- of a cluster ---- */

struct cut_digest {
    struct digesting d;
    embd_client *client;
    struct cut_reading cut;
    char (*names)[EMBD_NAME_MAX + 1]; /* [n_names] of shard 0's tables, in the cut */
    uint32_t n_names;
    uint64_t rows;
    const char *name; /* of the table whose step is looked for */
};

static int add_name(void *arg, uint32_t shard, const struct cut_table *found)
{
    struct cut_digest *c = arg;
    char(*grown)[EMBD_NAME_MAX + 1] = realloc(c->names, (c->n_names + 1) * sizeof *grown);
    (void)shard;
    if (!grown)
        return embd__error_set(c->d.e, EMBD_NO_MEMORY, "no memory for the list of tables");
    c->names = grown;
    memcpy(grown[c->n_names++], found->name, sizeof *grown);
    return EMBD_OK;
}

static int add_rows(void *arg, uint32_t shard, const struct cut_table *found)
{
    struct cut_digest *c = arg;
    (void)shard;
    c->rows += found->rows;
    return EMBD_OK;
}

static int take_step(void *arg, uint32_t shard, const struct cut_table *found)
{
    struct cut_digest *c = arg;
    (void)shard;
    if (!strcmp(found->name, c->name) && found->step > c->d.step)
        c->d.step = found->step;
    return EMBD_OK;
}

static int list_names(struct cut_digest *c)
{
    int status = embd__cut_tables(c->client, &c->cut, 0, add_name, c);
    for (uint32_t s = 0; s < embd_shard_count(c->client) && status == EMBD_OK; s++)
        status = embd__cut_tables(c->client, &c->cut, s, add_rows, c);
    return status;
}

static int digest_shard(struct cut_digest *c, uint32_t shard, const embd_schema *schema)
{
    struct scan_block scan = {0};
    while (!scan.is_done) {
        if (embd__cut_renew(c->client, &c->cut) ||
            embd__admin_scan(c->client, shard, c->cut.job.id, schema, scan.next, &scan))
            return c->d.e->status;
        int status = add_block(&c->d, schema, &scan.block);
        embd__answer_free(scan.answer);
        if (status)
            return status;
    }
    return embd__cut_tables(c->client, &c->cut, shard, take_step, c);
}

static int digest_table(struct cut_digest *c, const char *name)
{
    struct description description;
    if (embd__admin_describe(c->client, 0, name, &description))
        return c->d.e->status;
    int status = EMBD_OK;
    begin_table(&c->d);
    c->name = name;
    for (uint32_t s = 0; s < embd_shard_count(c->client) && status == EMBD_OK; s++)
        status = digest_shard(c, s, &description.schema.s);
    embd__schema_fini(&description.schema);
    return status ? status : end_table(&c->d, name);
}

static int digest_cut(struct cut_digest *c, embd_progress *progress, void *told)
{
    int stop = list_names(c);
    if (stop == EMBD_OK)
        stop = digesting_begin(&c->d, progress, told, c->rows);
    for (uint32_t i = 0; i < c->n_names && !stop; i++)
        stop = digest_table(c, c->names[i]);
    return stop ? stop : embd__ticker_end(&c->d.ticker, c->d.e);
}

EMBD_API int embd_digest(embd_client *client, const char *table, visit_digest *visit, void *arg,
                         embd_progress *progress, void *progress_arg)
{
    struct cut_digest c = {.client = client,
                           .d = {.visit = visit, .arg = arg, .e = embd__client_error(client)}};
    *c.d.e = (struct embd__error){0};
    int stop = embd__cut_open(client, table, &c.cut);
    if (stop == EMBD_OK) {
        stop = digest_cut(&c, progress, progress_arg);
        embd__cut_close(client, &c.cut);
    }
    free(c.names);
    free(c.d.digest);
    return embd__error_keep(c.d.e, stop);
}

/* ---- of a directory ---- */

struct dir_digest {
    struct digesting d;
    const struct dump_dir *dir;
};

static int digest_part(struct digesting *d, const struct dump_share *share,
                       const struct manifest_part *part, const embd_schema *schema)
{
    struct part_reader reader;
    struct row_block block;
    if (embd__partread_open(&reader, share->path, part, schema, d->e))
        return d->e->status;
    int more = 0;
    while ((more = embd__partread_next(&reader, &block, d->e)) > 0)
        if (add_block(d, schema, &block))
            break;
    embd__partread_close(&reader);
    if (part->step > d->step)
        d->step = part->step;
    return d->e->status;
}

static int digest_stored(void *arg, const struct manifest_table *found)
{
    struct dir_digest *s = arg;
    begin_table(&s->d);
    s->d.step = found->step;
    for (uint32_t i = 0; i < s->dir->n_shares; i++) {
        const struct dump_share *share = &s->dir->shares[i];
        const struct manifest_table *here = embd__dumpdir_table(share, found->schema.s.name);
        for (uint32_t j = 0; here && j < here->n_parts; j++)
            if (digest_part(&s->d, share, &here->parts[j], &here->schema.s))
                return s->d.e->status;
    }
    return end_table(&s->d, found->schema.s.name);
}

static int check_whole(const struct dump_dir *dir, const char *table, struct embd__error *e)
{
    if (dir->shares[0].manifest.base.id != 0)
        return embd__error_set(e, EMBD_INVALID,
                               "%s has only what changed since its base; load it, and take the "
                               "digest of the cluster",
                               dir->path);
    if (table && !embd__dumpdir_find(dir, table))
        return embd__error_set(e, EMBD_UNKNOWN_TABLE, "%s holds no table '%s'", dir->path, table);
    return embd__dumpdir_complete(dir, e);
}

EMBD_API int embd_digest_directory(const char *dir, const char *table, visit_digest *visit,
                                   void *arg, embd_progress *progress, void *progress_arg)
{
    struct embd__error e = {0};
    struct dump_dir opened;
    struct dir_digest s = {.d = {.visit = visit, .arg = arg, .e = &e}, .dir = &opened};
    embd_dump_report totals;
    int stop = embd__dumpdir_open(dir, &opened, &e);
    if (stop != EMBD_OK)
        return embd__error_keep(&e, stop);
    embd__dumpdir_totals(&opened, table, &totals);
    stop = check_whole(&opened, table, &e);
    if (stop == EMBD_OK)
        stop = digesting_begin(&s.d, progress, progress_arg, totals.rows);
    if (stop == EMBD_OK)
        stop = embd__dumpdir_each(&opened, table, digest_stored, &s);
    if (stop == EMBD_OK)
        stop = embd__ticker_end(&s.d.ticker, &e);
    embd__dumpdir_fini(&opened);
    free(s.d.digest);
    return embd__error_keep(&e, stop);
}
