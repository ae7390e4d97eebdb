/* peer.h - the peers embd is compared with: a blocking server in a process of its own, and its
 * client. */
#ifndef EMBD_BENCH_PEER_H
#define EMBD_BENCH_PEER_H

#include "client/bench/cpu.h"
#include "client/bench/mover.h"
#include "client/bench/workload.h"

#include <sys/types.h>

/* What the server does with a request besides moving its bytes. */
enum peer_kind {
    PEER_MOVE,  /* nothing: the bare transport */
    PEER_TABLE, /* finds the keys; copies, sums or adds rows, as the workload's mix says: the
                   ceiling */
};

struct peer {
    pid_t pid; /* 0: none runs */
    int port;  /* on 127.0.0.1 */
};

/* Forks the server with a table of n_keys rows, and waits until it listens. It works on as many
 * requests at a time as `cpus` are listed, each on its own; connections get them in turn. The
 * process must have one thread. The server ends with this process. 0 or an exit code, after saying
 * why. */
int peer_start(struct peer *peer, uint64_t n_keys, uint32_t dim, const struct cpu_list *cpus);
void peer_stop(struct peer *peer);

/* A connection that moves the workload, which outlives it. A row has `row_bytes` on the wire (4 a
 * column for PEER_TABLE). */
int peer_mover_open(const struct peer *peer, enum peer_kind kind, const struct workload *w,
                    uint64_t row_bytes, struct mover *out);

/* A measure_gather: has the server of a `struct peer` gather the rows of the workload's batches in
 * its own memory for about so many seconds. *n_keys_out: how many it gathered. */
int peer_gather(const void *peer, const struct workload *w, double seconds, double *keys_per_s_out,
                uint64_t *n_keys_out);

#endif
