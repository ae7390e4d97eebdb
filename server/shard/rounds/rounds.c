/* rounds.c - who has pushed for which clock, and who is still waited for.
 *
 * The happy path: a worker joins with its push, again and again, until the last live one has; then
 * the pushes of the least clock are taken together, and the round goes on to the next. */
#include "rounds.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_NS 10000000u

void rounds_fini(struct rounds *rounds)
{
    for (uint32_t i = 0; i < ROUNDS_MAX; i++)
        free(rounds->rounds[i]);
    *rounds = (struct rounds){0};
}

static uint32_t count(const struct round *round, enum worker_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < round->n_workers; i++)
        n += round->workers[i].state == state;
    return n;
}

static void expire(struct round *round, uint64_t now_ns)
{
    for (uint32_t i = 0; i < round->n_workers; i++) {
        struct round_worker *w = &round->workers[i];
        if (w->state == WORKER_LIVE && w->push == NULL && w->deadline_ns < now_ns)
            w->state = WORKER_DROPPED;
    }
}

bool rounds_look(struct rounds *rounds, uint64_t now_ns)
{
    if (rounds->n_waiting == 0 || now_ns < rounds->look_ns)
        return false;
    rounds->look_ns = now_ns + LOOK_NS;
    for (uint32_t i = 0; i < ROUNDS_MAX; i++)
        if (rounds->rounds[i] != NULL)
            expire(rounds->rounds[i], now_ns);
    return true;
}

/* ---- joining ---- */

static bool is_for(const struct round *round, const struct push_round *push, const uint32_t *tables,
                   uint32_t n_tables)
{
    return strcmp(round->job, push->job) == 0 && round->n_tables == n_tables &&
           memcmp(round->tables, tables, n_tables * sizeof *tables) == 0;
}

/* The place of this round, or else of none, or else of one that is over; NULL: all are busy. */
static struct round **find_place(struct rounds *rounds, const struct push_round *push,
                                 const uint32_t *tables, uint32_t n_tables, uint64_t now_ns)
{
    struct round **empty = NULL, **over = NULL;
    for (uint32_t i = 0; i < ROUNDS_MAX; i++) {
        struct round **place = &rounds->rounds[i];
        if (*place == NULL) {
            empty = place;
            continue;
        }
        if (is_for(*place, push, tables, n_tables))
            return place;
        expire(*place, now_ns);
        if (count(*place, WORKER_LIVE) == 0)
            over = place;
    }
    return empty != NULL ? empty : over;
}

static struct round *make(const struct push_round *push, const uint32_t *tables, uint32_t n_tables,
                          struct embd__error *e)
{
    struct round *round = calloc(1, sizeof *round + push->n_workers * sizeof *round->workers);
    if (round == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a round of job '%s'", push->job);
        return NULL;
    }
    strcpy(round->job, push->job);
    memcpy(round->tables, tables, n_tables * sizeof *tables);
    round->n_tables = n_tables;
    round->n_workers = push->n_workers;
    return round;
}

/* A round none of whose workers is live is over, and begins anew. */
static struct round *find(struct rounds *rounds, const struct push_round *push,
                          const uint32_t *tables, uint32_t n_tables, uint64_t now_ns,
                          struct embd__error *e)
{
    struct round **place = find_place(rounds, push, tables, n_tables, now_ns);
    if (place == NULL) {
        embd__error_set(e, EMBD_FULL, "round of job '%s': there are %u rounds, the limit",
                        push->job, ROUNDS_MAX);
        return NULL;
    }
    if (*place != NULL) {
        expire(*place, now_ns);
        if (count(*place, WORKER_LIVE) > 0)
            return *place;
    }
    struct round *fresh = make(push, tables, n_tables, e);
    if (fresh == NULL)
        return NULL;
    free(*place);
    *place = fresh;
    return fresh;
}

static int check(const struct round *round, const struct push_round *push, struct embd__error *e)
{
    if (round->n_workers != push->n_workers)
        return embd__error_set(e, EMBD_INVALID, "the round's workers are %u, job '%s' has %u",
                               push->n_workers, push->job, round->n_workers);
    const struct round_worker *w = &round->workers[push->worker];
    if (push->clock < w->next)
        return embd__error_set(
            e, EMBD_INVALID,
            "the round's clock is %llu, worker %u of job '%s' has pushed up to %llu already",
            (unsigned long long)push->clock, push->worker, push->job,
            (unsigned long long)(w->next - 1));
    if (push->clock < round->next)
        return embd__error_set(e, EMBD_INVALID,
                               "the round's clock is %llu, job '%s' has made its steps up to %llu "
                               "without worker %u: it was dropped",
                               (unsigned long long)push->clock, push->job,
                               (unsigned long long)(round->next - 1), push->worker);
    return EMBD_OK;
}

int rounds_join(struct rounds *rounds, const struct push_round *push, const uint32_t *tables,
                uint32_t n_tables, uint64_t now_ns, struct request *request,
                struct request **replaced_out, struct embd__error *e)
{
    struct round *round = find(rounds, push, tables, n_tables, now_ns, e);
    if (round == NULL || check(round, push, e) != EMBD_OK)
        return e->status;
    struct round_worker *w = &round->workers[push->worker];
    *replaced_out = w->push;
    round->n_waiting += w->push == NULL;
    rounds->n_waiting += w->push == NULL;
    w->state = WORKER_LIVE;
    w->lease_ns = push->lease_ms * UINT64_C(1000000);
    w->deadline_ns = now_ns + w->lease_ns;
    w->push = request;
    w->clock = push->clock;
    return EMBD_OK;
}

/* ---- leaving ---- */

static struct request *take(struct rounds *rounds, struct round *round, uint32_t worker)
{
    struct request *push = round->workers[worker].push;
    round->workers[worker].push = NULL;
    round->n_waiting--;
    rounds->n_waiting--;
    return push;
}

void rounds_withdraw(struct rounds *rounds, const struct request *request)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        struct round *round = rounds->rounds[i];
        for (uint32_t w = 0; round != NULL && round->n_waiting > 0 && w < round->n_workers; w++)
            if (round->workers[w].push == request) {
                take(rounds, round, w);
                return;
            }
    }
}

void rounds_leave(struct rounds *rounds, const char *job, uint32_t worker)
{
    for (uint32_t i = 0; i < ROUNDS_MAX; i++) {
        struct round *round = rounds->rounds[i];
        if (round != NULL && strcmp(round->job, job) == 0 && worker < round->n_workers &&
            round->workers[worker].push == NULL)
            round->workers[worker].state = WORKER_LEFT;
    }
}

/* ---- steps ---- */

/* Whether nobody is waited for; *clock_out is then the clock of the next step. */
static bool is_complete(const struct round *round, uint64_t *clock_out)
{
    uint64_t clock = UINT64_MAX;
    for (uint32_t i = 0; i < round->n_workers; i++)
        if (round->workers[i].push != NULL && round->workers[i].clock < clock)
            clock = round->workers[i].clock;
    for (uint32_t i = 0; i < round->n_workers; i++) {
        const struct round_worker *w = &round->workers[i];
        if (w->state == WORKER_ABSENT)
            return false;
        if (w->state == WORKER_LIVE && w->push == NULL && w->next <= clock)
            return false;
    }
    *clock_out = clock;
    return true;
}

static uint32_t take_clock(struct rounds *rounds, struct round *round, uint64_t clock,
                           uint64_t now_ns, struct request **requests_out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < round->n_workers; i++) {
        struct round_worker *w = &round->workers[i];
        if (w->push == NULL || w->clock != clock)
            continue;
        requests_out[n++] = take(rounds, round, i);
        w->next = clock + 1;
        w->deadline_ns = now_ns + w->lease_ns;
    }
    round->next = clock + 1;
    return n;
}

static bool all_may(const struct round *round, uint64_t clock,
                    bool (*may)(const void *arg, const struct request *push), const void *arg)
{
    for (uint32_t i = 0; i < round->n_workers; i++) {
        const struct round_worker *w = &round->workers[i];
        if (w->push != NULL && w->clock == clock && !may(arg, w->push))
            return false;
    }
    return true;
}

uint32_t rounds_take(struct rounds *rounds, uint64_t now_ns,
                     bool (*may)(const void *arg, const struct request *push), const void *arg,
                     struct request **requests_out)
{
    uint64_t clock;
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        struct round *round = rounds->rounds[i];
        if (round != NULL && round->n_waiting > 0 && is_complete(round, &clock) &&
            (may == NULL || all_may(round, clock, may, arg)))
            return take_clock(rounds, round, clock, now_ns, requests_out);
    }
    return 0;
}

struct request *rounds_take_any(struct rounds *rounds)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        struct round *round = rounds->rounds[i];
        for (uint32_t w = 0; round != NULL && round->n_waiting > 0 && w < round->n_workers; w++)
            if (round->workers[w].push != NULL)
                return take(rounds, round, w);
    }
    return NULL;
}
