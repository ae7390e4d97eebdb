/* written.c - see written.h.
 *
 * Shards write on their own threads, and one of them commits. At any time one thread owns a share:
 * a thread that takes it out of its place may read it, and puts it back unless a newer one is there
 * by then. */
#include "server/snapshot/written.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parts of one shard. Never changes. */
struct share {
    char name[SNAPSHOT_NAME_MAX + 1];
    struct manifest_streams streams;
    uint32_t n;
    struct written_part parts[]; /* [n] */
};

struct written {
    uint32_t first, room;
    atomic_uint n;                    /* that there are */
    _Atomic(struct share *) shares[]; /* [room]; NULL: nothing, or taken */
};

struct written *written_new(uint32_t first, uint32_t n)
{
    struct written *w = calloc(1, sizeof *w + n * sizeof *w->shares);
    if (w == NULL)
        return NULL;
    w->first = first;
    w->room = n;
    atomic_init(&w->n, n);
    return w;
}

void written_set_shards(struct written *w, uint32_t n)
{
    atomic_store(&w->n, n < w->room ? n : w->room);
}

void written_free(struct written *w)
{
    if (w == NULL)
        return;
    written_forget(w);
    free(w);
}

void written_forget(struct written *w)
{
    for (uint32_t i = 0; i < w->room; i++)
        free(atomic_exchange(&w->shares[i], NULL));
}

int written_note(struct written *w, uint32_t shard, const char *name,
                 const struct written_part *parts, uint32_t n,
                 const struct manifest_streams *streams, struct embd__error *e)
{
    struct share *share = calloc(1, sizeof *share + n * sizeof *parts);
    if (share == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to note the parts of shard %" PRIu32,
                               shard);
    snprintf(share->name, sizeof share->name, "%s", name);
    share->streams = *streams;
    share->n = n;
    for (uint32_t i = 0; i < n; i++)
        share->parts[i] = parts[i];
    free(atomic_exchange(&w->shares[shard - w->first], share));
    return EMBD_OK;
}

/* NULL: nothing is written for `name`, and the error is set. */
static struct share *take(struct written *w, const char *name, uint32_t shard,
                          struct embd__error *e)
{
    bool is_here = shard >= w->first && shard - w->first < atomic_load(&w->n);
    struct share *share = is_here ? atomic_exchange(&w->shares[shard - w->first], NULL) : NULL;
    if (share != NULL && strcmp(share->name, name) == 0)
        return share;
    free(share); /* of another snapshot, which cannot be committed any more */
    embd__error_set(e, EMBD_INVALID,
                    "snapshot commit: shard %" PRIu32
                    " of this process has written nothing for '%s'",
                    shard, name);
    return NULL;
}

static void put_back(struct written *w, uint32_t shard, struct share *share)
{
    struct share *none = NULL;
    if (!atomic_compare_exchange_strong(&w->shares[shard - w->first], &none, share))
        free(share);
}

/* ---- comparing ---- */

static void compare(const char *file, const char *field, uint64_t told, uint64_t written,
                    struct embd__error *e)
{
    if (told != written)
        embd__error_set(e, EMBD_INVALID, "snapshot part '%s' %s: %" PRIu64 ", written was %" PRIu64,
                        file, field, told, written);
}

/* Checksums are read in hexadecimal everywhere else. */
static void compare_sums(const char *file, uint64_t told, uint64_t written, struct embd__error *e)
{
    if (told != written)
        embd__error_set(e, EMBD_INVALID,
                        "snapshot part '%s' xxh3: %016" PRIx64 ", written was %016" PRIx64, file,
                        told, written);
}

static const struct written_part *find_part(const struct share *share, const char *table)
{
    for (uint32_t i = 0; i < share->n; i++)
        if (strcmp(share->parts[i].table, table) == 0)
            return &share->parts[i];
    return NULL;
}

static int check_part(const struct share *share, const struct written_part *told,
                      struct embd__error *e)
{
    const struct manifest_part *a = &told->part;
    const struct written_part *found = find_part(share, told->table);
    if (found == NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "snapshot part '%s': shard %" PRIu32 " has not written it for '%s'",
                               a->file, a->shard, share->name);
    const struct manifest_part *b = &found->part;
    compare(a->file, "rows", a->rows, b->rows, e);
    compare(a->file, "candidates", a->candidates, b->candidates, e);
    compare(a->file, "bytes", a->bytes, b->bytes, e);
    compare_sums(a->file, a->xxh3, b->xxh3, e);
    compare(a->file, "changes", a->has_changes, b->has_changes, e);
    compare(a->file, "table_id", a->table_id, b->table_id, e);
    compare(a->file, "step", told->step, found->step, e);
    return e->status;
}

static int check_streams(const struct share *share, const struct manifest_streams *told,
                         struct embd__error *e)
{
    char file[STREAMSFILE_NAME];
    embd__streamsfile_name(file, told->shard);
    compare(file, "bytes", told->bytes, share->streams.bytes, e);
    compare_sums(file, told->xxh3, share->streams.xxh3, e);
    return e->status;
}

/* ---- comparing ---- */

bool written_tells_part(const struct snapshot_parts *told, const char *table, uint32_t shard)
{
    for (uint32_t i = 0; i < told->n_tables; i++)
        for (uint32_t j = 0; strcmp(told->names[i], table) == 0 && j < told->tables[i].n_parts; j++)
            if (told->tables[i].parts[j].shard == shard)
                return true;
    for (uint32_t i = 0; i < told->n_left_out; i++)
        if (told->left_out[i].part.shard == shard && strcmp(told->left_out[i].table, table) == 0)
            return true;
    return false;
}

static bool tells_streams(const struct snapshot_parts *told, uint32_t shard)
{
    for (uint32_t i = 0; i < told->n_streams; i++)
        if (told->streams[i].shard == shard)
            return true;
    return false;
}

static int check_told(const struct share *share, const struct snapshot_parts *told,
                      struct embd__error *e)
{
    uint32_t shard = share->streams.shard;
    for (uint32_t i = 0; i < share->n; i++)
        if (!written_tells_part(told, share->parts[i].table, shard))
            return embd__error_set(e, EMBD_INVALID,
                                   "snapshot commit parts: '%s' is missing, which shard %" PRIu32
                                   " has written",
                                   share->parts[i].part.file, shard);
    if (tells_streams(told, shard))
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_INVALID, "snapshot commit writers: those of shard %" PRIu32 " are missing", shard);
}

/* ---- all of them ---- */

int written_check_part(struct written *w, const char *name, const struct written_part *told,
                       struct embd__error *e)
{
    struct share *share = take(w, name, told->part.shard, e);
    if (share == NULL)
        return e->status;
    check_part(share, told, e);
    put_back(w, told->part.shard, share);
    return e->status;
}

int written_check_streams(struct written *w, const char *name, const struct manifest_streams *told,
                          struct embd__error *e)
{
    struct share *share = take(w, name, told->shard, e);
    if (share == NULL)
        return e->status;
    check_streams(share, told, e);
    put_back(w, told->shard, share);
    return e->status;
}

int written_check_all(struct written *w, const char *name, const struct snapshot_parts *told,
                      struct embd__error *e)
{
    for (uint32_t i = 0; i < atomic_load(&w->n) && e->status == EMBD_OK; i++) {
        struct share *share = take(w, name, w->first + i, e);
        if (share == NULL)
            break;
        check_told(share, told, e);
        put_back(w, w->first + i, share);
    }
    return e->status;
}
