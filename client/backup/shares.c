/* shares.c - see shares.h. */
#include "client/backup/shares.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embd/embd.h"
#include "proto/stored/dumpdir.h"

/* ---- parts ---- */

static struct manifest_table *find(struct manifest *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_tables; i++)
        if (strcmp(m->tables[i].schema.s.name, name) == 0)
            return &m->tables[i];
    return NULL;
}

static void *grown(void *list, size_t n, size_t more, size_t bytes, struct embd__error *e)
{
    void *out = realloc(list, (n + more + 1) * bytes);
    if (out == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the manifests of a backup");
    return out;
}

/* The table's parts go there. */
static int add_parts(struct manifest_table *to, const struct manifest_table *from,
                     struct embd__error *e)
{
    struct manifest_part *parts = grown(to->parts, to->n_parts, from->n_parts, sizeof *parts, e);
    if (parts == NULL)
        return e->status;
    memcpy(parts + to->n_parts, from->parts, from->n_parts * sizeof *parts);
    to->parts = parts;
    to->n_parts += from->n_parts;
    to->step = from->step > to->step ? from->step : to->step;
    return EMBD_OK;
}

/* The whole table goes there. */
static int move_table(struct manifest *to, struct manifest *from, uint32_t i, struct embd__error *e)
{
    struct manifest_table *tables = grown(to->tables, to->n_tables, 1, sizeof *tables, e);
    if (tables == NULL)
        return e->status;
    to->tables = tables;
    tables[to->n_tables++] = from->tables[i];
    from->tables[i] = from->tables[--from->n_tables];
    return EMBD_OK;
}

static int add_streams(struct manifest *to, const struct manifest *from, struct embd__error *e)
{
    struct manifest_streams *streams =
        grown(to->streams, to->n_streams, from->n_streams, sizeof *streams, e);
    if (streams == NULL)
        return e->status;
    memcpy(streams + to->n_streams, from->streams, from->n_streams * sizeof *streams);
    to->streams = streams;
    to->n_streams += from->n_streams;
    return EMBD_OK;
}

static int add(struct manifest *to, struct manifest *from, struct embd__error *e)
{
    for (uint32_t i = from->n_tables; i-- > 0 && e->status == EMBD_OK;) {
        struct manifest_table *there = find(to, from->tables[i].schema.s.name);
        if (there != NULL)
            add_parts(there, &from->tables[i], e);
        else
            move_table(to, from, i, e);
    }
    return e->status == EMBD_OK ? add_streams(to, from, e) : e->status;
}

/* Of the first shards alone: what the others have stays behind. */
static void keep_first(struct manifest *m, uint32_t n_kept)
{
    for (uint32_t i = 0; i < m->n_tables; i++) {
        struct manifest_table *table = &m->tables[i];
        uint32_t n = 0;
        for (uint32_t j = 0; j < table->n_parts; j++)
            if (table->parts[j].shard < n_kept)
                table->parts[n++] = table->parts[j];
        table->n_parts = n;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_streams; i++)
        if (m->streams[i].shard < n_kept)
            m->streams[n++] = m->streams[i];
    m->n_streams = n;
}

/* ---- what it is upon, and whose keys ---- */

static int set_base(struct manifest *m, const char *dir, struct embd__error *e)
{
    char path[8192];
    struct dump_dir base;
    if (m->base.id == 0)
        return EMBD_OK;
    snprintf(path, sizeof path, "%s/%s", dir, m->base.name);
    if (embd__dumpdir_open(path, &base, e) != EMBD_OK)
        return e->status;
    m->base.xxh3 = base.shares[0].manifest.xxh3;
    embd__dumpdir_fini(&base);
    return EMBD_OK;
}

static void write_placement(const struct placement *p, char *out, size_t bytes)
{
    size_t n = 0;
    *out = '\0';
    for (uint32_t v = 0, of = 0; p != NULL && v < PLACEMENT_VSHARDS; v += of, of = 0) {
        while (v + of < PLACEMENT_VSHARDS && p->of_vshard[v + of] == p->of_vshard[v])
            of++;
        if (v == 0)
            n = (size_t)snprintf(out, bytes, "%" PRIu64 ":base=%u,", p->version, p->base);
        if (n < bytes)
            n += (size_t)snprintf(out + n, bytes - n, "%s%u=%u", v == 0 ? "" : ",", p->of_vshard[v],
                                  of);
    }
}

/* ---- all ---- */

static char *join(struct dump_dir *shares, const char *dir, uint32_t n_kept, char *placement,
                  size_t placement_bytes, struct embd__error *e)
{
    struct manifest *m = &shares->shares[0].manifest;
    const struct placement *map = m->placement;
    for (uint32_t i = 1; i < shares->n_shares && e->status == EMBD_OK; i++)
        add(m, &shares->shares[i].manifest, e);
    m->n_blobs = 0;
    if (e->status != EMBD_OK || set_base(m, dir, e) != EMBD_OK)
        return NULL;
    m->placement = n_kept == m->n_shards ? map : NULL;
    keep_first(m, n_kept);
    write_placement(m->placement, placement, placement_bytes);
    char *text = embd__manifest_write(m);
    m->placement = map;
    if (text == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the manifest of a backup");
    return text;
}

char *shares_join(const char *dir, const char *from, const struct record *record, uint32_t n_kept,
                  char *placement, size_t placement_bytes, struct embd__error *e)
{
    char path[8192];
    struct dump_dir shares;
    snprintf(path, sizeof path, "%s/%s", from, record->name);
    if (embd__dumpdir_open(path, &shares, e) != EMBD_OK)
        return NULL;
    uint32_t n_blobs = shares.shares[0].manifest.n_blobs;
    char *text = join(&shares, dir, n_kept, placement, placement_bytes, e);
    shares.shares[0].manifest.n_blobs = n_blobs;
    embd__dumpdir_fini(&shares);
    return text;
}
