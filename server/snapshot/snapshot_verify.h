/* snapshot_verify.h - a snapshot in a server's data directory, with every byte verified. */
#ifndef EMBD_SNAPSHOT_VERIFY_H
#define EMBD_SNAPSHOT_VERIFY_H

#include "embd/admin.h"
#include "proto/stored/chain.h"
#include "proto/stored/ticker.h"

/* Who watches the progress. */
struct snapshot_verify_watch {
    void (*begin)(void *arg, uint64_t bytes); /* bytes to verify */
    embd_progress *progress;                  /* as in embd_verify */
    void *arg;
};

/* Opens DATA_DIR/NAME and its bases, as embctl verify reads them, each of one share, without links.
 * Any status but EMBD_OK: *out is zero, and the error names the file and the cause. */
int snapshot_verify_open(const char *data_dir, const char *name,
                         const struct snapshot_verify_watch *watch, struct dump_chain *out,
                         struct embd__error *e);

/* The share of the requested snapshot. */
static inline const struct dump_share *snapshot_verify_share(const struct dump_chain *chain)
{
    return &embd__chain_last(chain)->shares[0];
}

#endif
