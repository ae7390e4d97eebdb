/* handle_push.c - answering pushes.
 *
 * The happy path is: check all parts, gradients included; have the engine admit the push; submit
 * it, so that its record is written where its tables are journaled, and it is applied; answer with
 * each table's step and counts. A push of a round waits for those of the other workers instead
 * (handle_round.c). */
#include "server/service/handle_round.h"
#include "server/service/prefetch.h"
#include "server/service/state.h"
#include "server/service/sweeps.h"
#include "server/service/token_use.h"

static void write_answer(struct shard *shard, const struct op *op, struct msg *m, uint32_t msgid)
{
    struct push_answer *answers = shard->answers.push;
    uint64_t map = shard_told_map(shard);
    for (uint32_t i = 0; i < op->n_parts; i++) {
        const struct op_part *part = &op->parts[i];
        answers[i] = (struct push_answer){
            .step = part->step,
            .n_inserted = part->n_inserted,
            .n_full = part->n_full,
            .n_filtered = part->n_filtered,
            .n_evicted = part->n_evicted,
            .n_keys = part->in.n_keys,
            .statuses = part->statuses,
        };
    }
    embd__msg_result(m, msgid);
    if (op->is_again)
        embd__push_again_write(m, map);
    else
        embd__push_answer_write(m, answers, op->n_parts, map);
    embd__msg_end(m);
}

static void on_done(struct op *op)
{
    struct shard_work *work = work_of(op);
    struct request *request = work->request;
    stage_ends(&request->times, STAGE_STORE);
    request->session->spent_ns += op->n_slices * SWEEP_SLICE_NS;
    if (request->session->in_round == request)
        round_leave(work);
    if (op->error.status == EMBD_OK)
        write_answer(work->shard, op, &request->answer, request->frame->msgid);
    stage_ends_call(&request->times, STAGE_ENCODE, work->began_ns, &work->shard->counters.push_ns);
    call_answer(work->shard, request, &op->error);
}

/* Its record is written and its turn has come, or it could not be written. */
static void on_turn(struct op *op)
{
    work_of(op)->request->session->n_journaled--;
}

static int answer_again(struct call *call)
{
    struct op *op = &call->work->op;
    call->shard->engine.counters.pushes_again++;
    replicated_again(op);
    on_done(op);
    return CALL_LATER;
}

/* Its client sends again, in their order, the push before this one and this one, if it is numbered
 * or of a round. */
static int refuse_behind(struct call *call)
{
    return embd__error_set(
        &call->error, EMBD_CLOSED,
        "the peer has closed its side of the connection, or goes on with another one: the push "
        "before this one is no longer in its round, and this one was not applied");
}

static int wait_in_round(struct call *call)
{
    int status = round_wait(call);
    return status == ROUND_MADE ? answer_again(call) : status;
}

int handle_push(struct call *call)
{
    struct op *op = &call->work->op;
    struct embd__error *e = &call->error;
    if (decode_parts(call, OP_PUSH) != EMBD_OK)
        return e->status;
    stage_ends(&call->request->times, STAGE_DECODE);
    op->done = on_done;
    if (op->is_again)
        return answer_again(call);
    op->source = (struct push_source){call->request->session->client, call->request->place};
    op->connection = call->request->session->serial;
    if (call->request->session->has_withdrawn)
        return refuse_behind(call);
    if (call->extra.round.n_workers > 0)
        return wait_in_round(call);
    op->number = call->extra.number;
    if (op->n_parts == 1)
        op->parts[0].ticket = call->request->prefetch.ticket;
    return push_begin(call);
}

int push_begin(struct call *call)
{
    struct op *op = &call->work->op;
    struct embd__error *e = &call->error;
    op->done = on_done;
    clock_tell(op);
    if (call->request->session->access != NULL)
        token_use_bound(op, call->request->session);
    if (engine_admit(op) != EMBD_OK) {
        *e = op->error;
        return e->status;
    }
    if (op->is_again)
        return answer_again(call);
    if (replicated_may_refuse(&call->shard->replicated, op) &&
        replicated_check(call->shard, op, e) != EMBD_OK)
        return e->status;
    int status = commit_submit(&call->shard->commit, op, on_turn, e);
    if (status == COMMIT_WAITS)
        call->request->session->n_journaled++;
    return status < EMBD_OK ? status : CALL_LATER;
}
