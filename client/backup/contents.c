/* contents.c - see contents.h. */
#include "client/backup/contents.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embd/embd.h"
#include "proto/streamsfile.h"
#include "proto/xxh3.h"

#define MANIFEST_NAME "manifest.json"
/* As much as a reader of directories takes. */
#define MANIFEST_BYTES_MAX (128u << 20)

/* ---- one file ---- */

struct reading {
    struct place *place;
    const struct record_file *file;
    char path[PLACE_NAME_BYTES];
    XXH3_state_t *hash;
    uint8_t *buffer; /* [PLACE_PIECE_BYTES] */
};

static int check_hash(const struct reading *r, struct embd__error *e)
{
    uint64_t xxh3 = XXH3_64bits_digest(r->hash);
    if (xxh3 == r->file->xxh3)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s/%s: has the checksum %016" PRIx64 ", the backup has %016" PRIx64,
                           r->place->url, r->path, xxh3, r->file->xxh3);
}

static int read_pieces(const struct reading *r, contents_sink *sink, void *arg,
                       struct ticker *ticker, struct embd__error *e)
{
    uint32_t n = place_pieces(r->file->bytes);
    for (uint32_t piece = 0; piece < n; piece++) {
        size_t bytes = place_piece_bytes(r->file->bytes, piece);
        bool is_last = piece + 1 == n;
        if (r->place->ops->get(r->place, r->path, piece, r->file->bytes, r->buffer, e))
            return e->status;
        XXH3_64bits_update_dispatch(r->hash, r->buffer, bytes);
        if (is_last && check_hash(r, e))
            return e->status;
        int stop = sink == NULL ? 0 : sink(arg, piece, is_last, r->buffer, bytes);
        if (stop || (ticker != NULL && embd__ticker_add(ticker, 0, bytes, e)))
            return stop ? stop : e->status;
    }
    return EMBD_OK;
}

int contents_read(struct place *place, const struct record *record, const struct record_file *file,
                  contents_sink *sink, void *arg, struct ticker *ticker, struct embd__error *e)
{
    struct reading r = {.place = place, .file = file};
    if (!record_path(r.path, record->name, file->name))
        return embd__error_set(e, EMBD_CORRUPT, "%s/%s/%s: is too long a name", place->url,
                               record->name, file->name);
    r.hash = XXH3_createState();
    r.buffer = malloc(PLACE_PIECE_BYTES);
    int status = EMBD_NO_MEMORY;
    if (r.hash == NULL || r.buffer == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to read %s/%s", place->url, r.path);
    } else {
        XXH3_64bits_reset(r.hash);
        status = read_pieces(&r, sink, arg, ticker, e);
    }
    free(r.buffer);
    XXH3_freeState(r.hash);
    return status;
}

/* ---- manifests ---- */

struct text {
    char *bytes; /* [n] */
    size_t n;
    struct embd__error *e;
};

static int add_text(void *arg, uint32_t piece, bool is_last, const void *data, size_t bytes)
{
    struct text *t = arg;
    (void)piece, (void)is_last;
    char *grown = realloc(t->bytes, t->n + bytes + 1);
    if (grown == NULL)
        return embd__error_set(t->e, EMBD_NO_MEMORY, "no memory for a manifest");
    t->bytes = grown;
    memcpy(grown + t->n, data, bytes);
    t->n += bytes;
    grown[t->n] = '\0';
    return 0;
}

static int read_manifest(struct place *place, const struct record *record,
                         const struct record_file *file, struct manifest *out,
                         struct embd__error *e)
{
    struct text text = {.e = e};
    struct embd__error inner = {0};
    if (file->bytes > MANIFEST_BYTES_MAX)
        return embd__error_set(e, EMBD_CORRUPT, "%s/%s/%s: is too large for a manifest", place->url,
                               record->name, file->name);
    if (contents_read(place, record, file, add_text, &text, NULL, e) == EMBD_OK &&
        embd__manifest_read(text.bytes, text.n, out, &inner) != EMBD_OK)
        embd__error_set(e, inner.status, "%s/%s/%s: %.250s", place->url, record->name, file->name,
                        inner.text);
    free(text.bytes);
    return e->status;
}

/* "3/manifest.json" */
static bool is_manifest(const struct record_file *file)
{
    const char *slash = strchr(file->name, '/');
    return slash != NULL && strcmp(slash + 1, MANIFEST_NAME) == 0;
}

static int visit_manifests(struct place *place, const struct record *record, contents_visit *visit,
                           void *arg, struct embd__error *e)
{
    int stop = 0;
    for (uint32_t i = 0; i < record->n_files && !stop && e->status == EMBD_OK; i++) {
        struct manifest manifest;
        char share[PLACE_NAME_BYTES];
        if (!is_manifest(&record->files[i]) ||
            read_manifest(place, record, &record->files[i], &manifest, e) != EMBD_OK)
            continue;
        snprintf(share, sizeof share, "%.*s", (int)strcspn(record->files[i].name, "/"),
                 record->files[i].name);
        stop = visit(arg, share, &manifest);
        embd__manifest_fini(&manifest);
    }
    return e->status ? e->status : stop;
}

int contents_files(const struct manifest *m, contents_file *visit, void *arg)
{
    int stop = 0;
    char name[MANIFEST_BLOB_FILE > STREAMSFILE_NAME ? MANIFEST_BLOB_FILE : STREAMSFILE_NAME];
    for (uint32_t i = 0; i < m->n_tables; i++)
        for (uint32_t j = 0; j < m->tables[i].n_parts && !stop; j++) {
            const struct manifest_part *part = &m->tables[i].parts[j];
            stop = visit(arg, part->file, part->bytes, part->xxh3, part->rows);
        }
    for (uint32_t i = 0; i < m->n_streams && !stop; i++) {
        embd__streamsfile_name(name, m->streams[i].shard);
        stop = visit(arg, name, m->streams[i].bytes, m->streams[i].xxh3, 0);
    }
    for (uint32_t i = 0; i < m->n_blobs && !stop; i++) {
        embd__manifest_blob_file(name, m->blobs[i].name);
        stop = visit(arg, name, m->blobs[i].bytes, m->blobs[i].xxh3, 0);
    }
    return stop;
}

/* ---- do they belong together? ---- */

struct checking {
    struct place *place;
    const struct record *record;
    const char *share;
    uint32_t n_found;  /* files of the record that a manifest promises, and manifests */
    uint32_t next;     /* where the search begins: the files are in the manifests' order */
    uint32_t n_shards; /* that have a part of a table, or writers */
    bool has_shard[LIMIT_SHARDS];
    struct embd__error *e;
};

static int find_file(void *arg, const char *file, uint64_t bytes, uint64_t xxh3, uint64_t rows)
{
    struct checking *c = arg;
    const struct record *r = c->record;
    char name[PLACE_NAME_BYTES + 128];
    (void)rows;
    snprintf(name, sizeof name, "%s/%s", c->share, file);
    for (uint32_t i = 0; i < r->n_files; i++) {
        uint32_t at = (c->next + i) % r->n_files;
        const struct record_file *f = &r->files[at];
        if (strcmp(f->name, name) == 0 && f->bytes == bytes && f->xxh3 == xxh3) {
            c->next = at + 1;
            c->n_found++;
            return 0;
        }
    }
    return embd__error_set(c->e, EMBD_CORRUPT,
                           "%s/%s: " RECORD_FILE " and the manifest of share %s differ about %s",
                           c->place->url, r->name, c->share, file);
}

static void note_shard(struct checking *c, uint32_t shard)
{
    if (shard >= LIMIT_SHARDS || c->has_shard[shard])
        return;
    c->has_shard[shard] = true;
    c->n_shards++;
}

static void note_shards(struct checking *c, const struct manifest *m)
{
    for (uint32_t i = 0; i < m->n_tables; i++)
        for (uint32_t j = 0; j < m->tables[i].n_parts; j++)
            note_shard(c, m->tables[i].parts[j].shard);
    for (uint32_t i = 0; i < m->n_streams; i++)
        note_shard(c, m->streams[i].shard);
}

static int check_manifest(void *arg, const char *share, const struct manifest *m)
{
    struct checking *c = arg;
    const struct record *r = c->record;
    c->share = share;
    c->n_found++;
    note_shards(c, m);
    if (m->id != r->id || m->n_shards != r->n_shards || m->base.id != r->base_id ||
        strcmp(m->base.name, r->base) != 0 || !embd__scope_is_same(&m->scope, &r->scope))
        return embd__error_set(c->e, EMBD_CORRUPT,
                               "%s/%s: the manifest of share %s is of another snapshot, or has "
                               "another base",
                               c->place->url, r->name, share);
    return contents_files(m, find_file, c);
}

int contents_check(struct place *place, const struct record *record, struct embd__error *e)
{
    struct checking c = {.place = place, .record = record, .e = e};
    if (visit_manifests(place, record, check_manifest, &c, e) != EMBD_OK)
        return e->status;
    if (c.n_found != record->n_files)
        embd__error_set(e, EMBD_CORRUPT,
                        "%s/%s: " RECORD_FILE " has %u files, the manifests promise %u", place->url,
                        record->name, record->n_files, c.n_found);
    if (c.n_shards != 0 && c.n_shards != record->n_shards)
        embd__error_set(e, EMBD_CORRUPT,
                        "%s/%s: its manifests have %u of %u shards: the share of a process lacks",
                        place->url, record->name, c.n_shards, record->n_shards);
    return e->status;
}
