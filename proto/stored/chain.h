/* chain.h - a snapshot of what has changed, the snapshot that it was made upon, and so on down to
 * one of all rows: each beside the next, under the name that its base has. */
#ifndef EMBD_STORED_CHAIN_H
#define EMBD_STORED_CHAIN_H

#include "proto/stored/dumpdir.h"
#include "embd/admin.h"

struct dump_chain {
    struct dump_dir
        *dirs;    /* [n], the first is that of all rows, the last is the one that was asked for */
    char **paths; /* [n] theirs */
    uint32_t n;
};

/* Reads the manifests of all of them, and checks that each base is the one it is said to be, and
 * has the shards and tables that changes are upon. As embd__dumpdir_open, and EMBD_INVALID: a base
 * is not there, or is another snapshot; EMBD_CORRUPT: it was changed, or lacks what changes are
 * upon. The error names both. */
int embd__chain_open(const char *path, struct dump_chain *out, struct embd__error *e);
void embd__chain_fini(struct dump_chain *chain);

/* The one that was asked for. */
static inline const struct dump_dir *embd__chain_last(const struct dump_chain *chain)
{
    return &chain->dirs[chain->n - 1];
}

/* Rows and bytes of all of them; `only` as in embd__dumpdir_totals. */
void embd__chain_totals(const struct dump_chain *chain, const char *only, embd_dump_report *out);

/* The part of a table that a shard has in one of them, and where it lies; NULL: it has none. */
const struct manifest_part *embd__chain_part(const struct dump_dir *dir, const char *table,
                                             uint32_t shard, const struct dump_share **share_out);

#endif
