/* stages.h - how long the requests of a shard take, and where the time goes.
 *
 * A request carries a mark: the moment up to which its time is accounted for. What ends a stage
 * charges the time since the mark to that stage and moves the mark, so the stages add up to the
 * whole:
 *
 *     received -queue-> handling begins -decode-> checked -store/encode-> answered -send-> sent
 *
 * Reading the clock six times would cost a small request some per cent, so of requests below
 * STAGES_SMALL_BYTES one in STAGES_SAMPLE is split, and counted so many times. That is a prime, so
 * that trainers who always ask for the same things in the same order have each of them looked at.
 * The whole duration is counted of every request. What is not split has weight 0.
 *
 * The host store makes rows while they are sent; that time is taken out of `send` and is `store`. A
 * large pull of a GPU is answered when its first rows are made: what the others take is `send`.
 * Every WINDOW the histograms are remembered, so that there are quantiles of the last moments,
 * not only since the start. Owner: the shard's thread. */
#ifndef EMBD_SERVICE_STAGES_H
#define EMBD_SERVICE_STAGES_H

#include <stdbool.h>

#include "server/service/metrics/histogram.h"
#include "proto/message.h"

enum stage {
    STAGE_QUEUE,  /* from its last byte until it is handled: behind others, or held */
    STAGE_DECODE, /* reading the request and checking it against its tables */
    STAGE_STORE,  /* store calls, and rows made while they are sent; on a GPU, the device's time: of
                     a large pull, until its first rows are there */
    STAGE_ENCODE, /* writing the answer around the rows */
    STAGE_SEND,   /* from the answer until the kernel has its last byte */
    STAGE_COUNT
};
const char *stage_name(enum stage stage);

/* The methods whose stages are reported: pulls and pushes. */
#define STAGED_METHODS 2
static inline int stages_index(int method) /* 0 or 1; -1: none */
{
    return method == METHOD_PULL ? 0 : method == METHOD_PUSH ? 1 : -1;
}
enum method stages_method(uint32_t index);

#define STAGES_SMALL_BYTES (16u << 10)
#define STAGES_SAMPLE      31u

/* Times of one request. `method` and `weight` are always set, the others when weight > 0. */
struct stage_times {
    int method;      /* enum method; -1 unknown */
    uint32_t weight; /* 0: not split into stages */
    uint64_t mark_ns;
    uint64_t ns[STAGE_COUNT];
    uint64_t bytes;   /* of the request */
    uint64_t made_ns; /* of ns[STAGE_STORE]: while being sent */
};

#define STAGES_WINDOW_NS UINT64_C(10000000000)

/* One that is over. */
#define STAGES_TRACES 64u
struct trace {
    int method;
    uint64_t sent_ns, bytes, ns[STAGE_COUNT];
};

struct stages {
    struct histogram methods[METHOD_COUNT]; /* from received to sent */
    struct histogram of[STAGED_METHODS][STAGE_COUNT];
    /* methods[] as it was a window ago, and up to two. */
    struct histogram before[2][METHOD_COUNT];
    uint64_t turned_ns;
    uint32_t n_small;                   /* requests below STAGES_SMALL_BYTES */
    struct trace traces[STAGES_TRACES]; /* the newest at (n_traces - 1) % STAGES_TRACES */
    uint64_t n_traces;
};

/* The handling of a request of `bytes` begins. True: stages_split measures its stages. */
static inline bool stages_begin(struct stages *stages, struct stage_times *times, int method,
                                uint64_t bytes)
{
    times->method = method;
    times->weight = bytes >= STAGES_SMALL_BYTES              ? 1
                    : stages->n_small++ % STAGES_SAMPLE == 0 ? STAGES_SAMPLE
                                                             : 0;
    return times->weight > 0;
}

static inline void stages_split(struct stage_times *times, uint64_t bytes, uint64_t received_ns,
                                uint64_t began_ns)
{
    *times = (struct stage_times){
        .method = times->method, .weight = times->weight, .mark_ns = began_ns, .bytes = bytes};
    times->ns[STAGE_QUEUE] = began_ns > received_ns ? began_ns - received_ns : 0;
}

/* Charges the time from the mark to `now_ns`. */
static inline void stage_end(struct stage_times *times, enum stage stage, uint64_t now_ns)
{
    times->ns[stage] += now_ns > times->mark_ns ? now_ns - times->mark_ns : 0;
    times->mark_ns = now_ns;
}

/* Counts the stages of a request that was split. */
void stages_add(struct stages *stages, struct stage_times *times, uint64_t now_ns);

/* The request's last byte is with the kernel. */
static inline void stages_sent(struct stages *stages, struct stage_times *times,
                               uint64_t received_ns, uint64_t now_ns)
{
    if (times->method < 0)
        return;
    histogram_add(&stages->methods[times->method], now_ns > received_ns ? now_ns - received_ns : 0,
                  1);
    if (times->weight > 0)
        stages_add(stages, times, now_ns);
}

/* Whether stages_tick has something to do. */
static inline bool stages_is_due(const struct stages *stages, uint64_t now_ns)
{
    return now_ns - stages->turned_ns >= STAGES_WINDOW_NS;
}

/* A few times a second. */
void stages_tick(struct stages *stages, uint64_t now_ns);

/* Figures of the last one to two windows. */
uint64_t stages_recent_ns(const struct stages *stages, enum method method, double quantile);

#endif
