/* snapshot_verify.h - a snapshot in a server's data directory, every byte of which was compared. */
#ifndef EMBD_SNAPSHOT_VERIFY_H
#define EMBD_SNAPSHOT_VERIFY_H

#include "embd/admin.h"
#include "proto/stored/chain.h"
#include "proto/stored/ticker.h"

/* Who looks on. */
struct snapshot_verify_watch {
    void (*begin)(void *arg, uint64_t bytes); /* there are so many to be compared */
    embd_progress *progress;                  /* as in embd_verify */
    void *arg;
};

/* DATA_DIR/NAME and what it is upon, as embctl verify reads them, each of one share, and nothing of
 * them a link. Any status but EMBD_OK: *out is zero, and the error names the file and why. */
int snapshot_verify_open(const char *data_dir, const char *name,
                         const struct snapshot_verify_watch *watch, struct dump_chain *out,
                         struct embd__error *e);

/* The share of the one that was asked for. */
static inline const struct dump_share *snapshot_verify_share(const struct dump_chain *chain)
{
    return &embd__chain_last(chain)->shares[0];
}

#endif
