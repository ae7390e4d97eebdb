/* handle_opening.c - opens a stream of numbered pushes, before its first push.
 *
 * The happy path: the stream is unknown, and there is room, or the stream to forget for it is
 * chosen. The opening is recorded, and takes effect in the order of the records, like a push, so
 * that later pushes of its connection find it open. Streams of tables that are not journaled are
 * open at once.
 *
 * A known stream stays as it is, so an opening whose answer was lost may be sent again. What can
 * fail besides: there is no room, and the principal has no stream that may be forgotten
 * (EMBD_FULL). */
#include <stdio.h>

#include "server/service/authorize.h"
#include "server/service/state.h"
#include "server/access/access.h"

/* Sets the principal, and what goes. */
static int decide(struct call *call, struct op *op)
{
    struct stream_opening *opening = &op->as.opening;
    const struct shard *shard = call->shard;
    const struct grant *grant = shard->access != NULL ? call->request->session->grant : NULL;
    char who[GRANT_NAME_MAX + 16];
    snprintf(who, sizeof who, grant != NULL ? "token '%s'" : "anybody",
             grant != NULL ? grant->name : "");
    opening->principal = grant != NULL ? grant->principal : PRINCIPAL_EVERYBODY;
    return pushers_decide(op_pushers(op), opening, authorize_is_gone, shard->access, who,
                          shard->now_ns, &call->error);
}

static void on_done(struct op *op)
{
    struct shard_work *work = work_of(op);
    struct msg *m = &work->request->answer;
    if (op->error.status == EMBD_OK) {
        embd__msg_result(m, work->request->frame->msgid);
        embd__opened_write(m, op->last, op->created);
        embd__msg_end(m);
    }
    call_answer(work->shard, work->request, &op->error);
}

/* Its record is written and its turn has come, or it could not be written. */
static void on_turn(struct op *op)
{
    work_of(op)->request->session->n_journaled--;
}

int handle_stream_open(struct call *call)
{
    struct shard *shard = call->shard;
    struct op *op = work_op(call->work, OP_STREAM_OPEN);
    struct stream_opening *opening = &op->as.opening;
    op->done = on_done;
    if (embd__opening_read(&call->reader, false, opening) != EMBD_OK)
        return call->error.status;
    if (opening->is_journaled && shard->commit.journal == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "stream_open field 'journaled' is true, and this server has no data "
                               "directory: no table is journaled");
    if (pushers_know(op_pushers(op), &opening->stream)) {
        engine_apply(op); /* stays as it is: nothing to record */
        return CALL_LATER;
    }
    if (decide(call, op) != EMBD_OK)
        return call->error.status;
    int status = commit_submit(&shard->commit, op, on_turn, &call->error);
    if (status == COMMIT_WAITS)
        call->request->session->n_journaled++;
    return status < EMBD_OK ? status : CALL_LATER;
}
