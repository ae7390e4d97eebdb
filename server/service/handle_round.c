/* handle_round.c - the pushes of a round are answered together.
 *
 * The happy path: a push is checked and waits (round_wait); when its round is complete, the engine
 * makes one operation of all of them, which is submitted like any push (round_make); when that has
 * ended each worker is answered. While a push waits, what its connection sends next waits behind
 * it. */
#include "server/service/handle_round.h"

#include <stdio.h>

#include "server/engine/rounds/went_back.h"
#include "server/service/authorize.h"
#include "server/service/behind.h"
#include "server/service/state.h"
#include "server/service/sweeps.h"
#include "server/service/token_use.h"

/* ---- waiting ---- */

void round_leave(struct shard_work *work)
{
    struct request *request = work->request;
    struct shard_session *session = request->session;
    if (session->in_round != request)
        return;
    if (work->op.error.status != EMBD_OK && session->has_ended)
        session->has_withdrawn = true; /* it may come again by another connection */
    session->in_round = NULL;
    request->state = REQUEST_RECEIVED;
    behind_go_on(work->shard, session);
}

static void refuse(struct op *op, int status, const char *text)
{
    work_of(op)->began_ns = clock_ns(); /* before it waited */
    embd__error_set(&op->error, status, "%s", text);
    op_end(op);
}

/* It comes again by another connection, or has. None that its client sent behind it may be made
 * before: it would count as made with that one. */
static void withdraw(struct op *op, const char *text)
{
    work_of(op)->request->session->has_withdrawn = true;
    refuse(op, EMBD_CLOSED, text);
}

static void give_way(struct op *op, const struct op *to)
{
    static const char text[] = "the worker has pushed for this round again, on another connection";
    if (op->source.client == to->source.client && op->source.place == to->source.place)
        withdraw(op, text);
    else
        refuse(op, EMBD_CLOSED, text);
}

/* Those that wait for a step which was made before the shard started, as it learns now. */
static void refuse_late(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    struct op *op;
    while ((op = rounds_take_late(&shard->engine.rounds, shard->now_ns, &e)) != NULL) {
        refuse(op, e.status, e.text);
        e.status = EMBD_OK;
    }
}

/* A worker leaves, or is another process from now on. */
static void on_replaced(void *arg, const struct job *job, uint32_t worker)
{
    struct shard *shard = arg;
    struct op *op;
    while ((op = rounds_take_out(&shard->engine.rounds, job, worker)) != NULL)
        refuse(op, EMBD_CLOSED,
               "the worker has left, another process has joined as this worker, or a table of the "
               "round went back to a checkpoint");
}

void round_open(struct shard *shard)
{
    shard->engine.jobs.on_replaced = on_replaced;
    shard->engine.jobs.arg = shard;
}

static int enter(struct call *call, struct op **replaced_out)
{
    if (call->request->session->has_ended)
        return embd__error_set(
            &call->error, EMBD_CLOSED,
            "the peer has closed its side of the connection: its push cannot wait in a round");
    if (authorize_job(call, call->extra.round.job) != EMBD_OK)
        return call->error.status;
    if (went_back_check_push(&call->work->op, &call->error) != EMBD_OK)
        return call->error.status;
    return round_enter(&call->work->op, &call->extra.round, call->extra.order > 0,
                       call->shard->now_ns, replaced_out, &call->error);
}

int round_wait(struct call *call)
{
    struct shard *shard = call->shard;
    struct request *request = call->request;
    struct op *replaced;
    int status = enter(call, &replaced);
    if (status == EMBD_CLOSED)
        request->session->has_withdrawn = true;
    if (status < EMBD_OK)
        return status;
    refuse_late(shard);
    if (status == PUSH_AGAIN)
        return ROUND_MADE;
    shard->counters.parked++;
    request->state = REQUEST_PARKED;
    request->waits = WAITS_ROUND;
    request->session->in_round = request;
    if (replaced != NULL)
        give_way(replaced, &call->work->op);
    return CALL_LATER;
}

/* ---- the step ---- */

static void on_made(struct op *op)
{
    struct round_step *step = (struct round_step *)(void *)op;
    struct shard *shard = op->engine->arg;
    uint64_t now_ns = clock_ns();
    shard->counters.push_ns += now_ns - step->began_ns;
    /* The time before is the step's, or waiting. */
    for (uint32_t m = 0; m < step->n_members; m++)
        if (step->members[m].push != NULL)
            work_of(step->members[m].push)->began_ns = now_ns;
    round_spread(step);
}

static bool may_go(const void *arg, const struct op *push)
{
    const struct shard *shard = arg;
    return (!hold_is_on(&shard->hold) || hold_lets_in(&shard->hold, work_of(push)->request)) &&
           !sweeps_stop_push(shard, push);
}

/* Under a hold a step is made where it is on other shards already: of pushes that are all let in.
 */
bool round_make(struct shard *shard)
{
    struct engine *engine = &shard->engine;
    uint32_t n_waiting = engine->rounds.n_waiting;
    if (n_waiting == 0 || shard->commit.is_alone)
        return false;
    bool may_all = !hold_is_on(&shard->hold) && !sweeps_are_on(shard);
    struct round_step *step = round_take(engine, shard->now_ns, may_all ? NULL : may_go, shard);
    if (step == NULL)
        return engine->rounds.n_waiting < n_waiting;
    struct op *op = &step->op;
    step->began_ns = clock_ns();
    for (uint32_t m = 0; m < step->n_members; m++)
        if (step->members[m].push != NULL)
            token_use_bound(op, work_of(step->members[m].push)->request->session);
    op->done = on_made;
    clock_tell(op);
    if (op->error.status != EMBD_OK || engine_admit(op) != EMBD_OK ||
        replicated_check(shard, op, &op->error) != EMBD_OK ||
        commit_submit(&shard->commit, op, NULL, &op->error) < EMBD_OK)
        on_made(op);
    return true;
}

/* ---- ends ---- */

void round_end_session(struct shard *shard, struct shard_session *session)
{
    struct request *request = session->in_round;
    if (request != NULL &&
        rounds_withdraw(&shard->engine.rounds, &request->work->op, shard->now_ns))
        withdraw(
            &request->work->op,
            "the peer has closed its side of the connection: its push is no longer in the round");
}

void round_refuse_all(struct shard *shard, const char *why)
{
    char text[160];
    struct op *op;
    snprintf(text, sizeof text, "%s, and the round makes no step", why);
    while ((op = rounds_take_any(&shard->engine.rounds)) != NULL)
        refuse(op, EMBD_DRAINING, text);
}

void round_refuse_moved(struct shard *shard)
{
    struct op *op;
    while ((op = rounds_take_any(&shard->engine.rounds)) != NULL)
        refuse(op, EMBD_MOVED, "keys have moved between shards while the push waited in its round");
}

void round_drop(struct shard *shard, struct request *request)
{
    round_forget(&request->work->op, shard->now_ns);
    request->session->in_round = NULL;
}
