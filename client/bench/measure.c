/* measure.c - rounds, clocks and medians.
 *
 * A round of a contender is: every mover on its own pinned thread warms up for a tenth of the time,
 * all wait for each other, then move requests until the time is over and finish what is in flight.
 * Contenders take turns within a round, so that what happens to the machine happens to all of them;
 * ratios are formed inside a round and their median is reported.
 *
 * With a rate, each request has a time at which it is meant to be sent and its latency counts from
 * there: a server that stalls is charged for the requests that had to wait, not only for the one it
 * stalled on. */
#include "client/bench/measure.h"

#include "client/bench/cpu.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WARM_UP_SHARE 0.1
#define SPIN_NS       60000u /* before the time of a paced request: sleeping wakes late */
#define BATCHES_APART 5u     /* movers begin at different batches */

/* One mover's part of a round; its thread owns it until it ends. */
struct runner {
    struct mover *mover;
    int cpu;
    uint32_t index;
    double seconds;
    double interval_ns; /* between paced requests; 0: not paced */
    pthread_barrier_t *together;
    struct histogram *latencies;
    uint64_t requests, warm_up_requests;
    double taken_s;
    int code;
};

/* ---- one mover ------------------------------------------------------------------------------- */

/* Requests one after the other, as many in flight as the mover takes, until `seconds` are over. */
static int run_closed(struct runner *r, double seconds, struct histogram *latencies)
{
    struct mover *m = r->mover;
    uint64_t begun_at[MOVER_IN_FLIGHT_MAX], started = 0, finished = 0;
    uint64_t begin = cpu_now_ns(), now = begin, end = begin + (uint64_t)(seconds * 1e9);
    int code = DONE;
    while (code == DONE && (now < end || finished < started)) {
        while (code == DONE && now < end && started - finished < m->in_flight) {
            uint32_t lane = (uint32_t)(started % m->in_flight);
            begun_at[lane] = cpu_now_ns();
            code = m->start(m->context, r->index * BATCHES_APART + started++, lane);
        }
        uint32_t lane = (uint32_t)(finished % m->in_flight);
        if (code == DONE)
            code = m->finish(m->context, lane);
        finished++;
        now = cpu_now_ns();
        if (latencies)
            histogram_add(latencies, now - begun_at[lane]);
    }
    r->requests = finished;
    r->taken_s = (double)(now - begin) * 1e-9;
    return code;
}

static void wait_until(uint64_t when)
{
    uint64_t now = cpu_now_ns();
    if (now + SPIN_NS < when) {
        uint64_t wake = when - SPIN_NS;
        struct timespec t = {(time_t)(wake / 1000000000u), (long)(wake % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    while (cpu_now_ns() < when)
        ;
}

/* Requests at a fixed rate, one at a time; a late one is sent at once and keeps its own time. */
static int run_paced(struct runner *r)
{
    struct mover *m = r->mover;
    uint64_t begin = cpu_now_ns(), n = 0;
    int code = DONE;
    for (;;) {
        uint64_t intended = begin + (uint64_t)((double)n * r->interval_ns);
        if (code != DONE || (double)(intended - begin) >= r->seconds * 1e9)
            break;
        wait_until(intended);
        code = m->start(m->context, r->index * BATCHES_APART + n, 0);
        if (code == DONE)
            code = m->finish(m->context, 0);
        histogram_add(r->latencies, cpu_now_ns() - intended);
        n++;
    }
    r->requests = n;
    r->taken_s = (double)(cpu_now_ns() - begin) * 1e-9;
    return code;
}

static void *run(void *arg)
{
    struct runner *r = arg;
    cpu_pin(r->cpu);
    r->code = run_closed(r, r->seconds * WARM_UP_SHARE, NULL);
    r->warm_up_requests = r->requests;
    pthread_barrier_wait(r->together);
    if (r->code == DONE)
        r->code = r->interval_ns > 0 ? run_paced(r) : run_closed(r, r->seconds, r->latencies);
    return NULL;
}

/* ---- one round ------------------------------------------------------------------------------- */

static void start_runner(struct runner *r, pthread_t *thread)
{
    r->latencies = calloc(1, sizeof *r->latencies);
    if (r->latencies && pthread_create(thread, NULL, run, r) == 0)
        return;
    fprintf(stderr, "embd-bench: no memory or no thread for client %u\n", r->index);
    exit(FAILED); /* the others wait for this one at the barrier */
}

/* *n_keys_out counts the warm-up as well. */
static int run_movers(struct contender *c, const struct measure_plan *plan,
                      struct measure_round *round, uint64_t *n_keys_out)
{
    struct runner runners[MEASURE_MOVERS_MAX];
    pthread_t threads[MEASURE_MOVERS_MAX];
    pthread_barrier_t together;
    struct histogram *all = calloc(1, sizeof *all);
    int code = all ? DONE : FAILED;
    double interval = plan->rate > 0 ? 1e9 * c->n_movers / plan->rate : 0;
    pthread_barrier_init(&together, NULL, c->n_movers);
    for (uint32_t i = 0; i < c->n_movers && all; i++) {
        runners[i] = (struct runner){.mover = &c->movers[i],
                                     .cpu = c->cpus[i],
                                     .index = i,
                                     .seconds = plan->seconds,
                                     .interval_ns = interval,
                                     .together = &together};
        start_runner(&runners[i], &threads[i]);
    }
    for (uint32_t i = 0; i < c->n_movers && all; i++) {
        struct runner *r = &runners[i];
        pthread_join(threads[i], NULL);
        code = code == DONE ? r->code : code;
        if (r->taken_s > 0)
            round->keys_per_s += (double)r->requests * c->workload->spec.batch / r->taken_s;
        *n_keys_out += (r->requests + r->warm_up_requests) * c->workload->spec.batch;
        histogram_merge(all, r->latencies);
        free(r->latencies);
    }
    pthread_barrier_destroy(&together);
    if (all) {
        round->p50_us = histogram_quantile(all, 0.5) * 1e-3;
        histogram_merge(&c->latencies, all);
    }
    free(all);
    return code;
}

static int run_round(struct contender *c, const struct measure_plan *plan,
                     struct measure_round *round)
{
    struct cpu_times before, after;
    uint64_t n_keys = 0;
    int code;
    *round = (struct measure_round){.p50_us = NAN};
    cpu_times_read(&before, plan->pids, plan->n_pids);
    if (c->gather)
        code = c->gather(c->gatherer, c->workload, plan->seconds, &round->keys_per_s, &n_keys);
    else
        code = run_movers(c, plan, round, &n_keys);
    cpu_times_read(&after, plan->pids, plan->n_pids);
    double wall = after.wall - before.wall;
    double foreign = (after.busy - before.busy) - (after.ours - before.ours);
    round->cpu_ns = n_keys ? (after.ours - before.ours) * 1e9 / (double)n_keys : (double)NAN;
    round->foreign = foreign > 0 ? foreign / wall : 0;
    round->steal = (after.steal - before.steal) / wall;
    return code;
}

int measure(struct contender *contenders, uint32_t n, const struct measure_plan *plan)
{
    for (uint32_t r = 0; r < plan->n_rounds; r++) {
        for (uint32_t i = 0; i < n; i++) {
            int code = run_round(&contenders[i], plan, &contenders[i].rounds[r]);
            if (code != DONE)
                return code;
        }
    }
    return DONE;
}

void contender_close(struct contender *c)
{
    for (uint32_t i = 0; i < c->n_movers; i++)
        c->movers[i].close(c->movers[i].context);
    c->n_movers = 0;
}

/* ---- figures --------------------------------------------------------------------------------- */

double measure_keys_per_s(const struct measure_round *round)
{
    return round->keys_per_s;
}

double measure_p50_us(const struct measure_round *round)
{
    return round->p50_us;
}

double measure_cpu_ns(const struct measure_round *round)
{
    return round->cpu_ns;
}

double measure_foreign(const struct measure_round *round)
{
    return round->foreign;
}

double measure_steal(const struct measure_round *round)
{
    return round->steal;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct spread spread_of(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare);
    return (struct spread){(values[(n - 1) / 2] + values[n / 2]) / 2, values[0], values[n - 1]};
}

struct spread measure_spread(const struct contender *c, uint32_t n_rounds, measure_figure *figure)
{
    double values[MEASURE_ROUNDS_MAX];
    for (uint32_t r = 0; r < n_rounds; r++)
        values[r] = figure(&c->rounds[r]);
    return spread_of(values, n_rounds);
}

struct spread measure_ratio_to_best(const struct contender *a, const struct contender *others,
                                    uint32_t n, uint32_t n_rounds, measure_figure *figure)
{
    double values[MEASURE_ROUNDS_MAX];
    for (uint32_t r = 0; r < n_rounds; r++) {
        double best = figure(&others[0].rounds[r]);
        for (uint32_t i = 1; i < n; i++)
            best = fmax(best, figure(&others[i].rounds[r]));
        values[r] = figure(&a->rounds[r]) / best;
    }
    return spread_of(values, n_rounds);
}

struct spread measure_ratio(const struct contender *a, const struct contender *b, uint32_t n_rounds,
                            measure_figure *figure)
{
    return measure_ratio_to_best(a, b, 1, n_rounds, figure);
}
