/* handle_opening.c - a stream of a writer's pushes is opened, before its first push.
 *
 * The happy path: the stream is not known, and there is room, or what goes for it is decided; that
 * is recorded, and happens in the order of the records, like a push, so that pushes behind it on
 * its connection find it open. Streams of tables that are not journaled are open at once.
 *
 * A stream that is known stays as it is, so an opening whose answer was lost may be sent again.
 * What can fail besides: there is no room, and nothing of the principal's that may go (EMBD_FULL).
 */
#include <stdio.h>

#include "server/shard/commit.h"
#include "server/shard/own_frame.h"
#include "server/shard/state.h"

static struct writers *writers_of(const struct shard_work *work)
{
    struct shard *shard = work->shard;
    return work->opening.is_journaled ? &shard->journaled_writers : &shard->writers;
}

/* Opens it, unless it is, and writes the answer. */
static int open_now(struct shard_work *work, struct embd__error *e)
{
    const struct stream_opening *opening = &work->opening;
    struct writers *writers = writers_of(work);
    struct msg *m = &work->request->answer;
    int status = writers_open(writers, opening, shard_seen_ns(work->shard), e);
    if (status < EMBD_OK)
        return status;
    embd__msg_result(m, work->request->frame->msgid);
    embd__opened_write(m, writers_last(writers, &opening->stream), status != WRITER_AGAIN);
    return EMBD_OK;
}

/* The record is written, or cannot be. */
static void on_recorded(struct shard_work *work)
{
    if (work->error.status == EMBD_OK && open_now(work, &work->error) == EMBD_OK)
        embd__msg_end(&work->request->answer);
    call_answer(work->shard, work->request, &work->error);
}

static int record(struct call *call)
{
    struct own_frame own;
    struct msg m;
    embd__msg_init(&m);
    embd__msg_request(&m, call->reader.msgid, METHOD_STREAM_OPEN);
    embd__opening_write(&m, &call->work->opening, true);
    call->work->is_opening = true;
    call->work->end = on_recorded;
    int status = own_frame_scan(&own, &m, &call->error);
    if (status == EMBD_OK)
        status = commit_opening(call, &own.frame);
    embd__msg_fini(&m);
    return status;
}

/* Sets the principal, and what goes. */
static int decide(struct call *call)
{
    struct stream_opening *opening = &call->work->opening;
    const struct shard *shard = call->shard;
    const struct grant *grant = shard->access != NULL ? call->request->session->grant : NULL;
    char who[GRANT_NAME_MAX + 16];
    snprintf(who, sizeof who, grant != NULL ? "token '%s'" : "anybody",
             grant != NULL ? grant->name : "");
    opening->principal = grant != NULL ? grant->principal : PRINCIPAL_EVERYBODY;
    return writers_decide(writers_of(call->work), opening, shard->access, who, shard->now_ns,
                          &call->error);
}

int handle_stream_open(struct call *call)
{
    struct shard *shard = call->shard;
    struct stream_opening *opening = &call->work->opening;
    if (embd__opening_read(&call->reader, shard->is_replaying, opening) != EMBD_OK)
        return call->error.status;
    if (shard->is_replaying)
        return open_now(call->work, &call->error);
    if (opening->is_journaled && shard->journal == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "stream_open field 'journaled' is true, and this server has no data "
                               "directory: no table is journaled");
    bool is_open = writers_know(writers_of(call->work), &opening->stream);
    if (!is_open && decide(call) != EMBD_OK)
        return call->error.status;
    return is_open || !opening->is_journaled ? open_now(call->work, &call->error) : record(call);
}
