/* stage.c - who runs where: servers on the first processors, clients on those after them, all in
 * turn where there are more than processors. With two processors, one shard and one client each
 * have their own, and two of each share both. The peer's server takes the shards' places, its
 * clients those of embd's. */
#include "tests/bench/suite/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = {"bare transport", "gather ceiling", "memory gather",
                                         "embd",           "embd, pooled",   "embd, rows"};

static const char *name_of(enum stage_role role, enum workload_mix mix)
{
    static const char *const ceilings[] = {"gather ceiling", "pooling ceiling", "adding ceiling",
                                           "gather and add ceiling"};
    return role == ROLE_CEILING ? ceilings[mix] : role_names[role];
}

int stage_open(struct stage *stage, const struct options *options, uint64_t n_keys, uint32_t dim,
               uint32_t shards, uint32_t clients, bool with_peer)
{
    int code = DONE;
    *stage = (struct stage){.options = options, .shards = shards, .clients = clients};
    cpu_list_place(&stage->server_cpus, &options->server_cpus, &options->allowed, 0, shards);
    cpu_list_place(&stage->client_cpus, &options->client_cpus, &options->allowed, shards, clients);
    if (with_peer)
        code = peer_start(&stage->peer, n_keys, dim, &stage->server_cpus);
    if (code == DONE)
        code = side_open(&stage->side, options, n_keys, dim, shards, &stage->server_cpus);
    if (code != DONE)
        stage_close(stage);
    return code;
}

void stage_close(struct stage *stage)
{
    side_close(&stage->side);
    peer_stop(&stage->peer);
}

/* On the wire. */
static uint64_t row_bytes(embd_dtype dtype, uint32_t dim)
{
    switch (dtype) {
    case EMBD_DTYPE_I8:
        return dim + 4u;
    case EMBD_DTYPE_I4:
        return (dim + 1) / 2 + 4;
    default:
        return dim * (dtype == EMBD_DTYPE_F32 ? 4u : 2u);
    }
}

static int open_mover(const struct stage *stage, enum stage_role role, const struct workload *w,
                      struct mover *out)
{
    const struct options *o = stage->options;
    switch (role) {
    case ROLE_BARE:
        return peer_mover_open(&stage->peer, PEER_MOVE, w, row_bytes(o->wire, w->spec.dim), out);
    case ROLE_CEILING:
        return peer_mover_open(&stage->peer, PEER_TABLE, w, row_bytes(EMBD_DTYPE_F32, w->spec.dim),
                               out);
    case ROLE_POOLED:
        return side_mover_open(&stage->side, w, o, EMBD_PLAN_POOLED, out);
    case ROLE_ROWS:
        return side_mover_open(&stage->side, w, o, EMBD_PLAN_ROWS, out);
    case ROLE_EMBD:
    case ROLE_MEMORY:
        break;
    }
    return side_mover_open(&stage->side, w, o, o->plan, out);
}

int stage_contender(const struct stage *stage, enum stage_role role, const struct workload *w,
                    struct contender *out)
{
    memset(out, 0, sizeof *out);
    out->name = name_of(role, w->spec.mix);
    out->workload = w;
    if (role == ROLE_MEMORY) {
        out->gather = peer_gather;
        out->gatherer = &stage->peer;
        return DONE;
    }
    for (uint32_t i = 0; i < stage->clients; i++) {
        int code = open_mover(stage, role, w, &out->movers[i]);
        if (code != DONE) {
            contender_close(out);
            return code;
        }
        out->cpus[i] = stage->client_cpus.ids[i];
        out->n_movers++;
    }
    return DONE;
}

struct measure_plan stage_plan(const struct stage *const *stages, uint32_t n_stages, pid_t *pids)
{
    const struct options *o = stages[0]->options;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_stages; i++) {
        if (stages[i]->peer.pid > 0)
            pids[n++] = stages[i]->peer.pid;
        if (stages[i]->side.process.pid > 0)
            pids[n++] = stages[i]->side.process.pid;
    }
    return (struct measure_plan){o->rounds, o->seconds, o->rate, pids, n};
}

int stage_run(const struct stage *stage, const struct workload_spec *spec,
              const enum stage_role *roles, uint32_t n, struct contender *contenders)
{
    struct workload w;
    pid_t pids[2];
    struct measure_plan plan = stage_plan(&stage, 1, pids);
    if (workload_init(&w, spec)) {
        fprintf(stderr, "bench-suite: out of memory for %u batches of %u keys\n", WORKLOAD_BATCHES,
                spec->batch);
        return FAILED;
    }
    uint32_t ready = 0;
    int code = DONE;
    while (ready < n && code == DONE) {
        code = stage_contender(stage, roles[ready], &w, &contenders[ready]);
        if (code == DONE)
            ready++;
    }
    if (code == DONE)
        code = measure(contenders, n, &plan);
    for (uint32_t i = 0; i < ready; i++)
        contender_close(&contenders[i]);
    workload_fini(&w);
    return code;
}
