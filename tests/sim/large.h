/* large.h - a cluster of many shards and trainers as a queueing model: who waits for whom, and for
 * how long when shards die. Nothing of embd runs here; deploy/SCALING.md has the constants, which
 * tests/bench/scaling.py measures.
 *
 * A trainer repeats: a pull of `keys` keys, then `compute_ns`, then a push of the same keys. Each
 * is one request a shard, sent in the order of the shards. A trainer's thread sends all of them,
 * then takes the answers as they come. A shard serves one request at a time, in the order of
 * arrival; a request costs more after a pause (`rest_ns`), when the shard's caches have gone cold.
 * The network takes `wire_ns` each way and has no limit. A shard that dies serves nothing for
 * `down_ns`; what it had begun or queued is done again after that, and nobody gives up. */
#ifndef EMBD_TESTS_LARGE_H
#define EMBD_TESTS_LARGE_H

#include <stdbool.h>
#include <stdint.h>

struct large_costs {
    double client_request_ns, client_key_ns; /* half of them for sending, half for the answer */
    double server_request_ns, server_key_ns;
    double cold_ns; /* more for a request that comes after rest_ns without one */
};

struct large {
    uint32_t n_shards, n_trainers;
    uint32_t keys; /* of a pull or push, spread evenly */
    double compute_ns, wire_ns, rest_ns;
    struct large_costs pull, push;
    double seconds;             /* simulated; the first tenth is not counted */
    double down_at_ns, down_ns; /* shard 0 dies at this time, once; down_ns 0: never */
    uint64_t seed;              /* of the moments at which trainers begin */
};

struct large_result {
    uint64_t n_steps, n_requests; /* n_steps: of all trainers, counted ones */
    double steps_per_second;      /* of a trainer */
    double pull_p50_ns, pull_p99_ns, push_p50_ns, push_p99_ns;
    double busy;       /* the part of the time that a shard works */
    double longest_ns; /* of all calls */
};

/* Costs as SCALING.md has them, 1,000 shards x 10,000 trainers, 65,536 keys of 64 bytes. */
void large_init(struct large *of);
/* false: no memory. */
bool large_run(const struct large *of, struct large_result *out);

#endif
