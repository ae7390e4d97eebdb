/* chain.h - an incremental snapshot, its base, and so on down to a snapshot of all rows: each
 * beside the next, under the name that its increment gives for it. */
#ifndef EMBD_STORED_CHAIN_H
#define EMBD_STORED_CHAIN_H

#include "proto/stored/dumpdir.h"
#include "embd/admin.h"

struct dump_chain {
    struct dump_dir *dirs; /* [n], the first has all rows, the last is the requested one */
    char **paths;          /* [n] theirs */
    uint32_t n;
};

/* Reads all manifests, and checks that each base is the expected one, and has the shards and tables
 * of the changes. As embd__dumpdir_open, and EMBD_INVALID: a base does not exist, or is another
 * snapshot; EMBD_CORRUPT: it was changed, or lacks a table or shard. The error names both. */
int embd__chain_open(const char *path, struct dump_chain *out, struct embd__error *e);
void embd__chain_fini(struct dump_chain *chain);

/* The requested one. */
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
