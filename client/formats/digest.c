/* digest.c - embd_digest and embd_digest_directory: what tables hold, as numbers to compare.
 *
 * The happy path of a cluster: a cut of all shards, as for a dump; each shard scans each table
 * block by block, and answers the digest of its rows with the last one. A server of an earlier
 * version knows no digests: its rows are fetched. Of a directory: read its part files. Increments
 * are refused: a row may be in several of a chain, and only a load knows which one counts. */
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "client/formats/cut_reading.h"
#include "embd/admin.h"
#include "proto/digest.h"
#include "proto/partfile.h"
#include "proto/stored/dumpdir.h"
#include "proto/stored/partread.h"
#include "proto/stored/ticker.h"

#define DIGEST_BYTES (1u << 20) /* of rows a request: read and summed in about a millisecond */

typedef int visit_digest(void *arg, const embd_table_digest *table);

struct digesting {
    visit_digest *visit;
    void *arg;
    struct embd__error *e;
    struct ticker ticker;
    struct digest *digest; /* of the table at hand */
    uint64_t step;
    uint64_t *positions; /* [n_positions] of the shards' journals; NULL: not known */
    uint32_t n_positions;
    uint64_t counted[EMBD_DIGEST_PARTS]; /* of the shards before the one at hand */
    uint32_t shards[EMBD_DIGEST_PARTS];
};

static int digesting_begin(struct digesting *d, embd_progress *progress, void *told, uint64_t rows)
{
    embd__ticker_begin(&d->ticker, progress, told, rows);
    d->digest = malloc(sizeof *d->digest);
    return d->digest ? EMBD_OK : embd__error_set(d->e, EMBD_NO_MEMORY, "no memory for a digest");
}

static int positions_begin(struct digesting *d, uint32_t n_shards)
{
    d->n_positions = n_shards;
    d->positions = calloc(n_shards, sizeof *d->positions);
    return d->positions ? EMBD_OK : embd__error_set(d->e, EMBD_NO_MEMORY, "no memory for a digest");
}

static void begin_table(struct digesting *d)
{
    *d->digest = (struct digest){0};
    d->step = 0;
    memset(d->counted, 0, sizeof d->counted);
    for (uint32_t i = 0; i < EMBD_DIGEST_PARTS; i++)
        d->shards[i] = EMBD_DIGEST_NO_SHARD;
}

static void end_shard(struct digesting *d, uint32_t shard)
{
    for (uint32_t i = 0; i < EMBD_DIGEST_PARTS; i++) {
        if (d->digest->counts[i] != d->counted[i])
            d->shards[i] = d->counted[i] == 0 ? shard : EMBD_DIGEST_NO_SHARD;
        d->counted[i] = d->digest->counts[i];
    }
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
                                     .parts = d->digest->parts,
                                     .part_rows = d->digest->counts,
                                     .part_shards = d->shards,
                                     .positions = d->positions,
                                     .n_positions = d->positions ? d->n_positions : 0};
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
    const char *only; /* of the tables of a mark; NULL: all */
    bool is_by_rows;  /* a server knows no digests */
};

/* The answer to one request for a digest. */
struct digest_answer {
    uint64_t rows, candidates, next, step, position;
    bool is_done;
};

static int add_name(void *arg, uint32_t shard, const struct cut_table *found)
{
    struct cut_digest *c = arg;
    if (c->only && strcmp(c->only, found->name))
        return EMBD_OK;
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

static void read_answer(struct cut_digest *c, struct answer *answer, struct digest_answer *out)
{
    struct fields f;
    embd__read_fields(&f, &answer->reader, "scan");
    out->rows = embd__field_uint(&f, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
    out->candidates = embd__field_uint(&f, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
    out->next = embd__field_uint(&f, "next", 0, UINT64_MAX, FIELD_REQUIRED);
    out->is_done = embd__field_bool(&f, "done", false);
    out->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    out->position = embd__field_uint(&f, "position", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) == EMBD_OK && out->is_done)
        embd__digest_read(&answer->reader, c->d.digest);
}

/* Has the shard add the next block to its digest. */
static int ask(struct cut_digest *c, uint32_t shard, const char *table, uint64_t cursor,
               struct digest_answer *out)
{
    struct answer *answer;
    struct msg *m = embd__admin_begin(c->client, METHOD_SCAN);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "cut", c->cut.job.id);
    embd__msg_field_str(m, "table", table);
    embd__msg_field_uint(m, "cursor", cursor);
    embd__msg_field_uint(m, "bytes", DIGEST_BYTES);
    embd__msg_field_bool(m, "digest", true);
    int status = embd__request(c->client, shard, LISTENER_ADMIN, &answer);
    if (status != EMBD_OK)
        return status;
    read_answer(c, answer, out);
    if (c->d.e->status == EMBD_OK && !out->is_done && out->next == cursor)
        embd__error_set(c->d.e, EMBD_PROTOCOL, "scan cursor: it does not move on");
    return embd__admin_end(c->client, shard, METHOD_SCAN, answer);
}

/* A server that does not know the field has refused the request, and changed nothing. */
static bool knows_none(struct cut_digest *c, uint64_t cursor)
{
    struct embd__error *e = c->d.e;
    if (cursor > 0 || e->status != EMBD_INVALID || strstr(e->text, "'digest'") == NULL)
        return false;
    *e = (struct embd__error){0};
    c->is_by_rows = true;
    free(c->d.positions);
    c->d.positions = NULL;
    return true;
}

static void add_answer(struct cut_digest *c, uint32_t shard, const struct digest_answer *answer)
{
    c->d.digest->rows += answer->rows;
    c->d.digest->candidates += answer->candidates;
    if (answer->step > c->d.step)
        c->d.step = answer->step;
    if (c->d.positions)
        c->d.positions[shard] = answer->position;
}

/* The shard digests its rows itself. */
static int digest_there(struct cut_digest *c, uint32_t shard, const char *table)
{
    struct digest_answer answer = {.next = 0};
    while (!answer.is_done) {
        uint64_t cursor = answer.next;
        if (embd__cut_renew(c->client, &c->cut))
            return c->d.e->status;
        if (ask(c, shard, table, cursor, &answer))
            return knows_none(c, cursor) ? EMBD_OK : c->d.e->status;
        add_answer(c, shard, &answer);
        if (embd__ticker_add(&c->d.ticker, answer.rows, 0, c->d.e))
            return c->d.e->status;
    }
    return EMBD_OK;
}

static int digest_rows(struct cut_digest *c, uint32_t shard, const embd_schema *schema)
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

static int digest_shard(struct cut_digest *c, uint32_t shard, const embd_schema *schema)
{
    int status = c->is_by_rows ? EMBD_OK : digest_there(c, shard, schema->name);
    if (status == EMBD_OK && c->is_by_rows)
        status = digest_rows(c, shard, schema);
    end_shard(&c->d, shard);
    return status;
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
    if (stop == EMBD_OK)
        stop = positions_begin(&c->d, embd_shard_count(c->client));
    for (uint32_t i = 0; i < c->n_names && !stop; i++)
        stop = digest_table(c, c->names[i]);
    return stop ? stop : embd__ticker_end(&c->d.ticker, c->d.e);
}

static void fini(struct cut_digest *c)
{
    free(c->names);
    free(c->d.digest);
    free(c->d.positions);
}

EMBD_API int embd_digest(embd_client *client, const char *table, visit_digest *visit, void *arg,
                         embd_progress *progress, void *progress_arg)
{
    struct cut_digest c = {.client = client,
                           .d = {.visit = visit, .arg = arg, .e = embd__client_error(client)}};
    *c.d.e = (struct embd__error){0};
    embd__client_catch_up(client);
    int stop = embd__cut_open(client, table, &c.cut);
    if (stop == EMBD_OK) {
        stop = digest_cut(&c, progress, progress_arg);
        embd__cut_close(client, &c.cut);
    }
    fini(&c);
    return embd__error_keep(c.d.e, stop);
}

/* The shards have these digests already. */
EMBD_API int embd_digest_mark(embd_client *client, uint64_t mark, const char *table,
                              visit_digest *visit, void *arg)
{
    struct cut_digest c = {.client = client,
                           .only = table,
                           .cut = {.job.id = mark, .is_mark = true},
                           .d = {.visit = visit, .arg = arg, .e = embd__client_error(client)}};
    *c.d.e = (struct embd__error){0};
    int stop = digest_cut(&c, NULL, NULL);
    if (stop == EMBD_OK && table && c.n_names == 0)
        stop = embd__error_set(c.d.e, EMBD_UNKNOWN_TABLE, "the mark has no table '%s'", table);
    fini(&c);
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
