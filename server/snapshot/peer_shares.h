/* peer_shares.h - the data directories of the other processes of the cluster, as far as this
 * process can read them: all processes must start from one cut. */
#ifndef EMBD_SNAPSHOT_PEER_SHARES_H
#define EMBD_SNAPSHOT_PEER_SHARES_H

#include "proto/errors.h"

struct snapshot_verify_watch;

/* Lifetimes: the caller's. */
struct peer_share {
    const char *name; /* of the server, for the log */
    const char *data_dir;
    bool is_here; /* on this host: what is not in its directory it does not have */
};

/* Whether each of those that can be seen has the snapshot `name` of the cut `id`, and it verifies.
 * `own_dir` is this process's, and not looked at again. The error names the server and why it will
 * not begin with it. */
int peer_shares_check(const struct peer_share *peers, uint32_t n, const char *own_dir,
                      const char *name, uint64_t id, const struct snapshot_verify_watch *watch,
                      struct embd__error *e);

#endif
