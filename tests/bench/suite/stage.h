/* stage.h - a table of one size on every side: in the peer and in embd. Contenders are set up on
 * it. */
#ifndef EMBD_BENCH_STAGE_H
#define EMBD_BENCH_STAGE_H

#include "client/bench/embd_side.h"
#include "client/bench/measure.h"
#include "client/bench/options.h"
#include "tests/bench/suite/peer.h"

enum stage_role {
    ROLE_BARE,    /* the peer, moving bytes */
    ROLE_CEILING, /* the peer with its table */
    ROLE_MEMORY,  /* the gather in memory; only for workloads that pull */
    ROLE_EMBD,    /* by options->plan */
    ROLE_POOLED,  /* embd with that plan forced */
    ROLE_ROWS,
};

struct stage {
    const struct options *options;
    uint32_t shards, clients;
    struct peer peer; /* pid 0: none */
    struct side side;
    struct cpu_list server_cpus; /* one for each shard, in turn */
    struct cpu_list client_cpus;
};

/* Builds both tables; `with_peer` false leaves the peer out. 0 or an exit code, after saying why;
 * the stage is then closed. */
int stage_open(struct stage *stage, const struct options *options, uint64_t n_keys, uint32_t dim,
               uint32_t shards, uint32_t clients, bool with_peer);
void stage_close(struct stage *stage);

/* Sets a contender up (contender_close ends it). The workload outlives it. */
int stage_contender(const struct stage *stage, enum stage_role role, const struct workload *w,
                    struct contender *out);

/* Sets up the contenders of n roles on a workload made from `spec` and measures them. contenders[]
 * is filled with figures; its movers and workloads are gone. 0 or an exit code. */
int stage_run(const struct stage *stage, const struct workload_spec *spec,
              const enum stage_role *roles, uint32_t n, struct contender *contenders);

/* The plan of a run whose processes are these stages'. pids: room for 2 * n_stages. */
struct measure_plan stage_plan(const struct stage *const *stages, uint32_t n_stages, pid_t *pids);

#endif
