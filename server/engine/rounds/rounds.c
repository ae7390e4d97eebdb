/* rounds.c - who has pushed for which clock, and who is still waited for.
 *
 * The happy path: a worker joins with its push, again and again, until the last live one has; then
 * the pushes of the least clock are taken together, and the round goes on to the next. */
#include "server/engine/rounds/rounds.h"

#include <stdlib.h>
#include <string.h>

void rounds_fini(struct rounds *rounds)
{
    for (uint32_t i = 0; i < ROUNDS_MAX; i++)
        free(rounds->rounds[i]);
    *rounds = (struct rounds){0};
}

/* ---- joining ---- */

static bool is_for(const struct round *round, const struct job *job, const uint32_t *tables,
                   uint32_t n_tables)
{
    return round->serial == job->serial && round->n_tables == n_tables &&
           memcmp(round->tables, tables, n_tables * sizeof *tables) == 0;
}

static struct round *find(const struct rounds *rounds, const struct job *job,
                          const uint32_t *tables, uint32_t n_tables)
{
    for (uint32_t i = 0; i < ROUNDS_MAX; i++)
        if (rounds->rounds[i] != NULL && is_for(rounds->rounds[i], job, tables, n_tables))
            return rounds->rounds[i];
    return NULL;
}

/* No live worker could push to it. */
static bool is_over(const struct round *round, const struct jobs *jobs)
{
    const struct job *job = jobs_of(jobs, round->serial);
    return job == NULL || (round->n_waiting == 0 && jobs_count(job, WORKER_LIVE) == 0);
}

/* A place where no round is, or one that is over; NULL: all are busy. */
static struct round **find_place(struct rounds *rounds, const struct jobs *jobs)
{
    for (uint32_t i = 0; i < ROUNDS_MAX; i++)
        if (rounds->rounds[i] == NULL)
            return &rounds->rounds[i];
    for (uint32_t i = 0; i < ROUNDS_MAX; i++)
        if (is_over(rounds->rounds[i], jobs))
            return &rounds->rounds[i];
    return NULL;
}

static struct round *make(struct rounds *rounds, const struct jobs *jobs, struct job *job,
                          const uint32_t *tables, uint32_t n_tables, struct embd__error *e)
{
    struct round **place = find_place(rounds, jobs);
    if (place == NULL) {
        embd__error_set(e, EMBD_FULL, "round of job '%s': there are %u rounds, the limit",
                        job->name, ROUNDS_MAX);
        return NULL;
    }
    size_t workers_bytes = job->n_workers * sizeof(struct round_worker),
           tables_bytes = n_tables * sizeof *tables;
    struct round *round = calloc(1, sizeof *round + workers_bytes + tables_bytes);
    if (round == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a round of job '%s'", job->name);
        return NULL;
    }
    round->serial = job->serial;
    round->job = job;
    round->tables = (uint32_t *)(void *)(round->workers + job->n_workers);
    memcpy(round->tables, tables, tables_bytes);
    round->n_tables = n_tables;
    round->n_workers = job->n_workers;
    free(*place);
    *place = round;
    return round;
}

static int check(const struct round *round, const struct push_round *push, struct embd__error *e)
{
    const struct round_worker *w = &round->workers[push->worker];
    if (push->clock < w->next)
        return embd__error_set(
            e, EMBD_INVALID,
            "the round's clock is %llu, worker %u of job '%s' has pushed up to %llu already",
            (unsigned long long)push->clock, push->worker, push->job,
            (unsigned long long)(w->next - 1));
    if (push->clock < round->next)
        return jobs_late(round->job, push->worker, push->clock, round->next, e);
    return EMBD_OK;
}

static void wait(struct rounds *rounds, struct round *round, const struct push_round *push,
                 struct op *request)
{
    struct round_worker *w = &round->workers[push->worker];
    bool is_more = w->push == NULL;
    round->n_waiting += is_more;
    rounds->n_waiting += is_more;
    round->job->workers[push->worker].n_waiting += is_more;
    w->push = request;
    w->clock = push->clock;
}

static struct job_claim claim_of(const struct push_round *push)
{
    return (struct job_claim){push->job,         push->worker,
                              push->n_workers,   push->lease_ms * UINT64_C(1000000),
                              push->incarnation, push->epoch};
}

/* The round that the claim's worker may push to. NULL: errors of jobs_enter and make. */
static struct round *enter(struct rounds *rounds, struct jobs *jobs, const struct job_claim *claim,
                           const uint32_t *tables, uint32_t n_tables, uint64_t now_ns,
                           struct embd__error *e)
{
    struct job *job;
    if (jobs_enter(jobs, claim, now_ns, &job, e) != EMBD_OK)
        return NULL;
    struct round *round = find(rounds, job, tables, n_tables);
    return round != NULL ? round : make(rounds, jobs, job, tables, n_tables, e);
}

int rounds_join(struct rounds *rounds, struct jobs *jobs, const struct push_round *push,
                const uint32_t *tables, uint32_t n_tables, uint64_t now_ns, struct op *request,
                struct op **replaced_out, struct embd__error *e)
{
    struct job_claim claim = claim_of(push);
    struct round *round = enter(rounds, jobs, &claim, tables, n_tables, now_ns, e);
    if (round == NULL || check(round, push, e) != EMBD_OK)
        return e->status;
    *replaced_out = round->workers[push->worker].push;
    jobs_live(round->job, &claim, push->clock, now_ns);
    wait(rounds, round, push, request);
    return EMBD_OK;
}

/* The step of that clock has the worker's push. */
static void note_made(struct round *round, uint32_t worker, uint64_t clock)
{
    struct round_worker *w = &round->workers[worker];
    struct job_worker *who = &round->job->workers[worker];
    uint64_t next = clock + 1;
    w->next = w->next < next ? next : w->next;
    who->done = who->done < next ? next : who->done;
    round->next = round->next < next ? next : round->next;
    round->job->stepped = round->job->stepped < next ? next : round->job->stepped;
}

static bool has_left(const struct job *job, const struct job_claim *claim)
{
    return claim->worker < job->n_workers && job->workers[claim->worker].state == WORKER_LEFT &&
           job->workers[claim->worker].incarnation == claim->incarnation;
}

int rounds_repeat(struct rounds *rounds, struct jobs *jobs, const struct push_round *push,
                  bool is_last, const uint32_t *tables, uint32_t n_tables, uint64_t now_ns,
                  struct embd__error *e)
{
    struct job_claim claim = claim_of(push);
    const struct job *job = jobs_named(jobs, push->job);
    if (job != NULL && claim.epoch == 0)
        claim.epoch = job->epoch; /* it joined when it came first */
    if (job != NULL && has_left(job, &claim))
        return EMBD_OK;
    struct round *round = enter(rounds, jobs, &claim, tables, n_tables, now_ns, e);
    if (round == NULL)
        return e->status;
    enum worker_state state = round->job->workers[push->worker].state;
    if (state == WORKER_ABSENT || state == WORKER_LIVE)
        jobs_live(round->job, &claim, is_last ? push->clock : 0, now_ns);
    if (is_last)
        note_made(round, push->worker, push->clock);
    return EMBD_OK;
}

static bool waits_for_tables(const struct round *round, const char *job, const uint32_t *tables,
                             uint32_t n_tables)
{
    return round->n_waiting > 0 && strcmp(round->job->name, job) == 0 &&
           is_for(round, round->job, tables, n_tables);
}

const struct op *rounds_beside(const struct rounds *rounds, const struct push_round *push,
                               const uint32_t *tables, uint32_t n_tables)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        const struct round *round = rounds->rounds[i];
        if (round == NULL || !waits_for_tables(round, push->job, tables, n_tables))
            continue;
        for (uint32_t w = 0; w < round->n_workers; w++)
            if (w != push->worker && round->workers[w].push != NULL &&
                round->workers[w].clock == push->clock)
                return round->workers[w].push;
    }
    return NULL;
}

const struct op *rounds_own(const struct rounds *rounds, const struct push_round *push,
                            const uint32_t *tables, uint32_t n_tables)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        const struct round *round = rounds->rounds[i];
        if (round != NULL && waits_for_tables(round, push->job, tables, n_tables) &&
            push->worker < round->n_workers && round->workers[push->worker].push != NULL)
            return round->workers[push->worker].push;
    }
    return NULL;
}

/* ---- leaving ---- */

static struct op *take(struct rounds *rounds, struct round *round, uint32_t worker)
{
    struct op *push = round->workers[worker].push;
    round->workers[worker].push = NULL;
    round->job->workers[worker].n_waiting--;
    round->n_waiting--;
    rounds->n_waiting--;
    return push;
}

/* Its lease begins, as its push waits no more. */
static void renew(struct round *round, uint32_t worker, uint64_t now_ns)
{
    struct job_worker *w = &round->job->workers[worker];
    w->deadline_ns = now_ns + w->lease_ns;
}

bool rounds_withdraw(struct rounds *rounds, const struct op *request, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        struct round *round = rounds->rounds[i];
        for (uint32_t w = 0; round != NULL && round->n_waiting > 0 && w < round->n_workers; w++)
            if (round->workers[w].push == request) {
                take(rounds, round, w);
                renew(round, w, now_ns);
                return true;
            }
    }
    return false;
}

struct op *rounds_take_late(struct rounds *rounds, uint64_t now_ns, struct embd__error *e)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        struct round *round = rounds->rounds[i];
        for (uint32_t w = 0; round != NULL && round->n_waiting > 0 && w < round->n_workers; w++) {
            if (round->workers[w].push == NULL || round->workers[w].clock >= round->next)
                continue;
            jobs_late(round->job, w, round->workers[w].clock, round->next, e);
            renew(round, w, now_ns);
            return take(rounds, round, w);
        }
    }
    return NULL;
}

struct op *rounds_take_out(struct rounds *rounds, const struct job *job, uint32_t worker)
{
    for (uint32_t i = 0; i < ROUNDS_MAX; i++) {
        struct round *round = rounds->rounds[i];
        if (round == NULL || round->serial != job->serial || worker >= round->n_workers)
            continue;
        round->workers[worker].next = 0;
        if (round->workers[worker].push != NULL)
            return take(rounds, round, worker);
    }
    return NULL;
}

/* ---- steps ---- */

static uint64_t least_clock(const struct round *round)
{
    uint64_t clock = UINT64_MAX;
    for (uint32_t i = 0; i < round->n_workers; i++)
        if (round->workers[i].push != NULL && round->workers[i].clock < clock)
            clock = round->workers[i].clock;
    return clock;
}

static bool waits_for(const struct round *round, uint32_t worker, uint64_t clock)
{
    const struct round_worker *w = &round->workers[worker];
    const struct job_worker *who = &round->job->workers[worker];
    if (who->state == WORKER_ABSENT)
        return true;
    return who->state == WORKER_LIVE && w->push == NULL && w->next <= clock && who->from <= clock;
}

static bool is_complete(const struct round *round, uint64_t clock)
{
    for (uint32_t i = 0; i < round->n_workers; i++)
        if (waits_for(round, i, clock))
            return false;
    return true;
}

bool rounds_push_to(const struct rounds *rounds, const struct job *job, uint32_t table)
{
    for (uint32_t i = 0; i < ROUNDS_MAX; i++) {
        const struct round *round = rounds->rounds[i];
        if (round == NULL || round->serial != job->serial)
            continue;
        for (uint32_t t = 0; t < round->n_tables; t++)
            if (round->tables[t] == table)
                return true;
    }
    return false;
}

bool rounds_awaited(const struct rounds *rounds, const struct job *job, uint32_t asker,
                    uint32_t *worker_out)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        const struct round *round = rounds->rounds[i];
        if (round == NULL || round->n_waiting == 0 || round->serial != job->serial)
            continue;
        uint64_t clock = least_clock(round);
        for (uint32_t w = 0; w < round->n_workers; w++)
            if (w != asker && waits_for(round, w, clock)) {
                *worker_out = w;
                return true;
            }
    }
    return false;
}

static uint32_t take_clock(struct rounds *rounds, struct round *round, uint64_t clock,
                           uint64_t now_ns, struct op **requests_out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < round->n_workers; i++) {
        const struct round_worker *w = &round->workers[i];
        if (w->push == NULL || w->clock != clock)
            continue;
        requests_out[n++] = take(rounds, round, i);
        renew(round, i, now_ns);
        note_made(round, i, clock);
    }
    return n;
}

static bool all_may(const struct round *round, uint64_t clock,
                    bool (*may)(const void *arg, const struct op *push), const void *arg)
{
    for (uint32_t i = 0; i < round->n_workers; i++) {
        const struct round_worker *w = &round->workers[i];
        if (w->push != NULL && w->clock == clock && !may(arg, w->push))
            return false;
    }
    return true;
}

uint32_t rounds_take(struct rounds *rounds, uint64_t now_ns,
                     bool (*may)(const void *arg, const struct op *push), const void *arg,
                     struct op **requests_out)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        struct round *round = rounds->rounds[i];
        if (round == NULL || round->n_waiting == 0)
            continue;
        uint64_t clock = least_clock(round);
        if (is_complete(round, clock) && (may == NULL || all_may(round, clock, may, arg)))
            return take_clock(rounds, round, clock, now_ns, requests_out);
    }
    return 0;
}

struct op *rounds_take_any(struct rounds *rounds)
{
    for (uint32_t i = 0; i < ROUNDS_MAX && rounds->n_waiting > 0; i++) {
        struct round *round = rounds->rounds[i];
        for (uint32_t w = 0; round != NULL && round->n_waiting > 0 && w < round->n_workers; w++)
            if (round->workers[w].push != NULL)
                return take(rounds, round, w);
    }
    return NULL;
}
