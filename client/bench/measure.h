/* measure.h - contenders take turns for some rounds; what they reached is compared round by round.
 */
#ifndef EMBD_BENCH_MEASURE_H
#define EMBD_BENCH_MEASURE_H

#include "client/bench/histogram.h"
#include "client/bench/mover.h"
#include "client/bench/workload.h"

#include <stdbool.h>
#include <sys/types.h>

#define MEASURE_ROUNDS_MAX 101u
#define MEASURE_MOVERS_MAX 64u

struct measure_round {
    double keys_per_s;
    double p50_us;         /* of a request */
    double cpu_ns;         /* of a key: processor time of both sides together */
    double foreign, steal; /* cores busy with what is not ours, cores the host took */
};

/* Has another program move keys of the workload for about this many seconds. 0 or an exit code. */
typedef int measure_gather(const void *context, const struct workload *w, double seconds,
                           double *keys_per_s_out, uint64_t *n_keys_out);

/* Something that is measured: movers on a thread each, or a gather. */
struct contender {
    const char *name;
    const struct workload *workload;
    struct mover movers[MEASURE_MOVERS_MAX];
    int cpus[MEASURE_MOVERS_MAX]; /* mover i runs on cpus[i] */
    uint32_t n_movers;
    measure_gather *gather; /* instead of movers; NULL: movers */
    const void *gatherer;   /* its context */
    struct measure_round rounds[MEASURE_ROUNDS_MAX];
    struct histogram latencies; /* ns of requests, all rounds */
};

struct measure_plan {
    uint32_t n_rounds;
    double seconds;    /* of a contender's round */
    double rate;       /* requests per second of all movers together; 0: one after the other */
    const pid_t *pids; /* [n_pids] whose CPU time is ours: servers and peers */
    uint32_t n_pids;
};

/* Runs all rounds; 0 or an exit code, after saying why. */
int measure(struct contender *contenders, uint32_t n, const struct measure_plan *plan);
void contender_close(struct contender *c);

/* Median and extremes over the rounds. */
struct spread {
    double median, min, max;
};
typedef double measure_figure(const struct measure_round *round);
double measure_keys_per_s(const struct measure_round *round);
double measure_p50_us(const struct measure_round *round);
double measure_cpu_ns(const struct measure_round *round);
double measure_foreign(const struct measure_round *round);
double measure_steal(const struct measure_round *round);
struct spread measure_spread(const struct contender *c, uint32_t n_rounds, measure_figure *figure);
/* The ratio figure(a) / figure(b), round by round. */
struct spread measure_ratio(const struct contender *a, const struct contender *b, uint32_t n_rounds,
                            measure_figure *figure);
/* The same against the best of several, chosen in each round. */
struct spread measure_ratio_to_best(const struct contender *a, const struct contender *others,
                                    uint32_t n, uint32_t n_rounds, measure_figure *figure);

#endif
