/* dumpdir.h - the directories that dumps and snapshots are read from.
 *
 * A directory with a manifest.json is one share. A snapshot of several server processes is one
 * share per process: gathered as sub-directories of one directory (any names), they are read
 * together as one. */
#ifndef EMBD_STORED_DUMPDIR_H
#define EMBD_STORED_DUMPDIR_H

#include "proto/partfile.h"
#include "embd/admin.h"

struct dump_share {
    char *path;
    struct manifest manifest;
};

struct dump_dir {
    const char *path; /* the caller's */
    struct dump_share *shares;
    uint32_t n_shares;
};

/* Reads the manifests and checks that the shares belong together: one number of shards, tables of
 * one definition, no shard or blob twice. EMBD_IO, EMBD_CORRUPT, EMBD_NO_MEMORY: *out is zero. The
 * error names the file and what is wrong. */
int embd__dumpdir_open(const char *path, struct dump_dir *out, struct embd__error *e);
void embd__dumpdir_fini(struct dump_dir *dir);

/* The table in one share, or NULL. */
const struct manifest_table *embd__dumpdir_table(const struct dump_share *share, const char *name);

/* The table in the first share that has it, or NULL. */
const struct manifest_table *embd__dumpdir_find(const struct dump_dir *dir, const char *name);

/* Calls `visit` for every table of the directory once; `only` (may be NULL) restricts it to one
 * name. A visit that returns nonzero ends it; that value is returned. */
typedef int dumpdir_visit(void *arg, const struct manifest_table *table);
int embd__dumpdir_each(const struct dump_dir *dir, const char *only, dumpdir_visit *visit,
                       void *arg);

/* Reads and checks a blob, malloc'd with a zero byte behind it. NULL: the error names the file and
 * what is wrong. */
void *embd__blob_read(const struct dump_share *share, const struct manifest_blob *blob,
                      struct embd__error *e);

/* Rows and bytes that the manifests promise; `only` as above, and then without the blobs. */
void embd__dumpdir_totals(const struct dump_dir *dir, const char *only, embd_dump_report *out);

struct dump_missing {
    uint32_t shard, n_shards; /* of the cluster that it was taken from */
    const char *table;        /* the directory's */
};

/* Whether a part of a table is missing: the first one. */
bool embd__dumpdir_missing(const struct dump_dir *dir, struct dump_missing *out);

/* Whether every shard of the cluster it was taken from has its part of every table; else
 * EMBD_INVALID names the first one missing, and how to complete the directory. */
int embd__dumpdir_complete(const struct dump_dir *dir, struct embd__error *e);

#endif
