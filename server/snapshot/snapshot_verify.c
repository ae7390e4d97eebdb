/* snapshot_verify.c - see snapshot_verify.h. */
#include "server/snapshot/snapshot_verify.h"
#include "embd/admin.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "proto/stored/plainfile.h"
#include "proto/stored/verify.h"
#include "proto/streamsfile.h"

/* A missing file shows when it is read. */
static int check_file(const char *directory, const char *file, struct embd__error *e)
{
    struct stat st;
    char *path = embd__plain_path(directory, file, e);
    if (path != NULL && lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        embd__error_set(e, EMBD_INVALID, "%s: is not a regular file", path);
    free(path);
    return e->status;
}

static int check_files(const struct dump_share *share, struct embd__error *e)
{
    const struct manifest *m = &share->manifest;
    char name[MANIFEST_BLOB_FILE > STREAMSFILE_NAME ? MANIFEST_BLOB_FILE : STREAMSFILE_NAME];
    for (uint32_t i = 0; i < m->n_tables; i++)
        for (uint32_t j = 0; j < m->tables[i].n_parts && e->status == EMBD_OK; j++)
            check_file(share->path, m->tables[i].parts[j].file, e);
    for (uint32_t i = 0; i < m->n_blobs && e->status == EMBD_OK; i++)
        if (embd__manifest_blob_file(name, m->blobs[i].name))
            check_file(share->path, name, e);
    for (uint32_t i = 0; i < m->n_streams && e->status == EMBD_OK; i++) {
        embd__streamsfile_name(name, m->streams[i].shard);
        check_file(share->path, name, e);
    }
    return e->status;
}

/* Nothing leads out of the data directory, and no fifo is waited for. */
static int check_directories(const struct dump_chain *chain, struct embd__error *e)
{
    struct stat st;
    for (uint32_t i = 0; i < chain->n; i++) {
        const struct dump_dir *dir = &chain->dirs[i];
        if (dir->n_shares != 1 || lstat(dir->path, &st) != 0 || !S_ISDIR(st.st_mode))
            return embd__error_set(e, EMBD_INVALID, "%s: is not a directory with a manifest",
                                   dir->path);
        if (check_file(dir->path, "manifest.json", e) != EMBD_OK ||
            check_files(&dir->shares[0], e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

int snapshot_verify_open(const char *data_dir, const char *name,
                         const struct snapshot_verify_watch *watch, struct dump_chain *out,
                         struct embd__error *e)
{
    struct ticker ticker;
    embd_dump_report totals;
    *out = (struct dump_chain){0};
    char *path = embd__plain_path(data_dir, name, e);
    if (path != NULL && embd__chain_open(path, out, e) == EMBD_OK &&
        check_directories(out, e) == EMBD_OK) {
        embd__chain_totals(out, NULL, &totals);
        watch->begin(watch->arg, totals.bytes);
        embd__ticker_begin(&ticker, watch->progress, watch->arg, totals.rows);
        embd__verify_chain(out, NULL, &ticker, e);
    }
    free(path);
    if (e->status != EMBD_OK)
        embd__chain_fini(out);
    return e->status;
}
