/* large.c - large.h: trainers in the order in which their next requests arrive. Since shards serve
 * in that order, a request's end is known when it arrives, and nothing else is an event. */
#include "tests/sim/large.h"

#include <stdlib.h>
#include <string.h>

struct trainer {
    double arrives;     /* the next request, at its shard */
    double sent;        /* when the client had sent it */
    double begun;       /* the call */
    double last_answer; /* that has arrived */
    uint32_t shard;     /* of the next request */
    bool is_push;
};

struct latencies {
    double *ns; /* [capacity] */
    uint64_t n, capacity;
};

struct run {
    const struct large *of;
    struct trainer *trainers; /* a heap by arrives */
    double *free_at;          /* [n_shards] when a shard has served what has arrived */
    double busy_ns;
    struct latencies of_kind[2]; /* of pulls, of pushes */
    struct large_result *out;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void large_init(struct large *of)
{
    memset(of, 0, sizeof *of);
    of->n_shards = 1000;
    of->n_trainers = 10000;
    of->keys = 65536;
    of->compute_ns = 100e6;
    of->wire_ns = 50e3;
    of->rest_ns = 1e6;
    of->pull = (struct large_costs){27e3, 30, 3e3, 20, 0};
    of->push = (struct large_costs){29e3, 30, 4.5e3, 35, 0};
    of->seconds = 5;
    of->seed = 1;
}

/* ---- the heap ---- */

static void sink(struct trainer *heap, uint32_t n, uint32_t at)
{
    struct trainer moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].arrives < heap[child].arrives)
            child++;
        if (heap[child].arrives >= moved.arrives)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* ---- calls ---- */

static const struct large_costs *costs_of(const struct run *r, const struct trainer *t)
{
    return t->is_push ? &r->of->push : &r->of->pull;
}

/* Processor time of a client for half of a request: to send it, or to take its answer. */
static double client_half(const struct run *r, const struct trainer *t)
{
    const struct large_costs *c = costs_of(r, t);
    double keys = (double)r->of->keys / r->of->n_shards;
    return (c->client_request_ns + c->client_key_ns * keys) / 2;
}

static void send_next(const struct run *r, struct trainer *t)
{
    t->sent += client_half(r, t);
    t->arrives = t->sent + r->of->wire_ns;
}

static void begin_call(const struct run *r, struct trainer *t, double at, bool is_push)
{
    t->is_push = is_push;
    t->begun = t->sent = at;
    t->last_answer = 0;
    t->shard = 0;
    send_next(r, t);
}

/* When a shard has served a request that arrives now. */
static double serve(struct run *r, const struct trainer *t)
{
    const struct large *of = r->of;
    const struct large_costs *c = costs_of(r, t);
    double free_at = r->free_at[t->shard];
    double begins = t->arrives > free_at ? t->arrives : free_at;
    double takes = c->server_request_ns + c->server_key_ns * of->keys / of->n_shards;
    if (t->arrives > free_at + of->rest_ns)
        takes += c->cold_ns;
    double up_again = of->down_at_ns + of->down_ns;
    if (of->down_ns > 0 && t->shard == 0 && begins + takes > of->down_at_ns && begins < up_again)
        begins = up_again;
    r->busy_ns += takes;
    r->out->n_requests++;
    return r->free_at[t->shard] = begins + takes;
}

static bool keep(struct latencies *of, double ns)
{
    if (of->n == of->capacity) {
        uint64_t capacity = of->capacity > 0 ? of->capacity * 2 : 4096;
        double *grown = realloc(of->ns, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        of->ns = grown;
        of->capacity = capacity;
    }
    of->ns[of->n++] = ns;
    return true;
}

/* The client takes the answers one by one: not before all is sent, and the last not before it has
 * come. */
static bool end_call(struct run *r, struct trainer *t)
{
    const struct large *of = r->of;
    double half = client_half(r, t);
    double all = t->sent + half * of->n_shards;
    double end = t->last_answer + half > all ? t->last_answer + half : all;
    bool is_counted = end >= of->seconds * 1e8 && end < of->seconds * 1e9;
    if (is_counted && !keep(&r->of_kind[t->is_push], end - t->begun))
        return false;
    if (end - t->begun > r->out->longest_ns)
        r->out->longest_ns = end - t->begun;
    r->out->n_steps += is_counted && t->is_push;
    begin_call(r, t, t->is_push ? end : end + of->compute_ns, !t->is_push);
    return true;
}

static bool arrive(struct run *r, struct trainer *t)
{
    double answered = serve(r, t) + r->of->wire_ns;
    if (answered > t->last_answer)
        t->last_answer = answered;
    if (++t->shard == r->of->n_shards)
        return end_call(r, t);
    send_next(r, t);
    return true;
}

/* ---- results ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void quantiles(struct latencies *of, double *p50, double *p99)
{
    if (of->n == 0)
        return;
    qsort(of->ns, of->n, sizeof *of->ns, by_value);
    *p50 = of->ns[of->n / 2];
    *p99 = of->ns[(uint64_t)((double)of->n * 0.99)];
}

static bool simulate(struct run *r)
{
    const struct large *of = r->of;
    uint64_t random = of->seed;
    double spread = of->compute_ns + of->n_shards * of->pull.client_request_ns;
    for (uint32_t i = 0; i < of->n_trainers; i++)
        begin_call(r, &r->trainers[i], (double)(next_random(&random) >> 11) * 0x1p-53 * spread,
                   false);
    for (uint32_t i = of->n_trainers / 2; i-- > 0;)
        sink(r->trainers, of->n_trainers, i);
    while (r->trainers[0].arrives < of->seconds * 1e9) {
        if (!arrive(r, &r->trainers[0]))
            return false;
        sink(r->trainers, of->n_trainers, 0);
    }
    return true;
}

bool large_run(const struct large *of, struct large_result *out)
{
    memset(out, 0, sizeof *out);
    struct run r = {.of = of, .out = out};
    r.trainers = calloc(of->n_trainers, sizeof *r.trainers);
    r.free_at = calloc(of->n_shards, sizeof *r.free_at);
    bool is_done = r.trainers != NULL && r.free_at != NULL && simulate(&r);
    if (is_done) {
        quantiles(&r.of_kind[0], &out->pull_p50_ns, &out->pull_p99_ns);
        quantiles(&r.of_kind[1], &out->push_p50_ns, &out->push_p99_ns);
        out->steps_per_second = (double)out->n_steps / of->n_trainers / (of->seconds * 0.9);
        out->busy = r.busy_ns / (of->seconds * 1e9) / of->n_shards;
    }
    free(r.of_kind[0].ns);
    free(r.of_kind[1].ns);
    free(r.trainers);
    free(r.free_at);
    return is_done;
}
