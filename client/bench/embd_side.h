/* embd_side.h - embd itself: a server process or an existing cluster, a filled table, and movers
 * over libembd. */
#ifndef EMBD_BENCH_EMBD_SIDE_H
#define EMBD_BENCH_EMBD_SIDE_H

#include "client/bench/mover.h"
#include "client/bench/options.h"
#include "client/bench/server_process.h"
#include "client/bench/workload.h"

struct side {
    struct server_process process; /* pid 0: an existing cluster is used */
    const char *servers;           /* the process's or the caller's */
    char table[EMBD_NAME_MAX + 1];
    bool has_table;
};

/* Starts a server with this many shards on `cpus` (or takes options->servers), creates the table
 * and gives every key a row. 0 or an exit code, after printing the cause; the side is then
 * closed. */
int side_open(struct side *side, const struct options *options, uint64_t n_keys, uint32_t dim,
              uint32_t shards, const struct cpu_list *cpus);
void side_close(struct side *side);

/* A client handle of its own that moves the workload, which outlives it. */
int side_mover_open(const struct side *side, const struct workload *w,
                    const struct options *options, embd_plan plan, struct mover *out);

#endif
