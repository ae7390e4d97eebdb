/* submit.c - requests whose operation is answered when it is applied, and, where its table is
 * journaled, its record is on disk: erase, load, tables that come and go.
 *
 * The shard goes on meanwhile. What the connection sends next waits (session->n_journaled), so it
 * sees what this one did; and so does what changes tables (commit.is_alone). */
#include "server/service/state.h"

void submit_result_empty(const struct shard_work *work, struct msg *m)
{
    (void)work;
    embd__msg_map(m, 0);
}

static void on_done(struct op *op)
{
    struct shard_work *work = work_of(op);
    struct request *request = work->request;
    if (op->error.status == EMBD_OK) {
        embd__msg_result(&request->answer, request->frame->msgid);
        work->result(work, &request->answer);
        embd__msg_end(&request->answer);
    }
    call_answer(work->shard, request, &op->error);
}

/* Its record is written and its turn has come, or it could not be written. */
static void on_turn(struct op *op)
{
    work_of(op)->request->session->n_journaled--;
}

int submit(struct call *call, void (*result)(const struct shard_work *work, struct msg *m))
{
    struct op *op = &call->work->op;
    call->work->result = result;
    op->done = on_done;
    if (engine_admit(op) != EMBD_OK) {
        call->error = op->error;
        return call->error.status;
    }
    if (op->is_again) {
        call->shard->engine.counters.pushes_again++;
        replicated_again(op);
        on_done(op);
        return CALL_LATER;
    }
    if (replicated_check(call->shard, op, &call->error) != EMBD_OK)
        return call->error.status;
    int status = commit_submit(&call->shard->commit, op, on_turn, &call->error);
    if (status == COMMIT_WAITS)
        call->request->session->n_journaled++;
    return status < EMBD_OK ? status : CALL_LATER;
}
