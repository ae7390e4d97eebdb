/* answer.c - what a request is answered, in every case. */
#include "server/service/answer.h"

#include <time.h>

#include "server/follow/failover.h"
#include "server/service/gates.h"
#include "server/service/state.h"

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_work_ns(const struct shard *shard)
{
    bool is_async = shard->engine.tables.ops->caps.is_async;
    return read_clock(is_async ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID);
}

/* Tables do not follow it back. */
void clock_read(struct op *op)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) == 0)
        op->seconds = now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;
}

int call_end(struct call *call, struct fields *fields)
{
    if (embd__fields_end(fields) != EMBD_OK)
        return call->error.status;
    return embd__reader_end(&call->reader);
}

/* A result that came out too large, or for which there was no memory. */
static void write_failure(struct request *request)
{
    const struct msg *answer = &request->answer;
    struct embd__error e = {.status = EMBD_OK};
    if (answer->status == EMBD_TOO_LARGE)
        embd__error_set(&e, EMBD_TOO_LARGE,
                        "the answer has %llu bytes, %u of them header, the limits are %u and %u",
                        (unsigned long long)embd__msg_bytes(answer), answer->head_bytes,
                        LIMIT_FRAME_BYTES, LIMIT_ANSWER_HEADER_BYTES);
    else
        embd__error_set(&e, EMBD_NO_MEMORY, "no memory for the answer");
    request_fail(request, &e);
}

/* A change that was under way when the server was deposed: no other server has its record. */
static bool is_deposed_change(const struct shard *shard, const struct request *request)
{
    return shard->is_deposed && request->work != NULL && request->work->op.kind != OP_PULL;
}

/* It says what is so, and another process may serve by now. */
static bool is_stale(const struct shard *shard, const struct request *request,
                     const struct embd__error *e)
{
    return request->is_guarded && e->status == EMBD_OK &&
           failover_is_fenced(shard->config.failover);
}

void call_answer(struct shard *shard, struct request *request, const struct embd__error *e)
{
    struct embd__error lost = {.status = EMBD_OK};
    if (e->status == EMBD_OK && is_deposed_change(shard, request)) {
        embd__error_set(&lost, EMBD_DRAINING,
                        "another server was promoted in the place of shard %u, without this change",
                        shard->config.index);
        e = &lost;
    }
    shard->counters.errors += e->status != EMBD_OK || request->answer.status != EMBD_OK;
    if (request->is_push && e->status != EMBD_CLOSED) /* it may come again: handle_round.c */
        push_progress_note(request->session, request, shard->now_ns);
    if (request->is_push && moving_heeds(e->status))
        shard->moving.refused_ns = shard->now_ns;
    if (e->status != EMBD_OK)
        request_fail(request, e);
    else if (request->answer.status != EMBD_OK)
        write_failure(request);
    request->has_answer = request->answer.status == EMBD_OK && !is_stale(shard, request, e);
    if (request->gate.number != 0) /* its memory is free, also where its answer waits */
        gate_end(request, e->status != EMBD_OK || !request->has_answer);
    if (request->work != NULL && request->work->op.record.is_replicated && e->status == EMBD_OK &&
        request->has_answer && replicated_keeps(shard, request))
        return;
    request->state = REQUEST_ANSWERED;
    request->on_answer(request);
}

void call_ignore(struct shard *shard, struct request *request)
{
    shard->counters.notifications++;
    request->has_answer = false;
    request->state = REQUEST_ANSWERED;
    request->on_answer(request);
}

int answer_check_statuses(const struct op *op, struct embd__error *e)
{
    uint64_t bytes = answer_head_bytes(op->n_parts);
    for (uint32_t i = 0; i < op->n_parts; i++)
        bytes += op->parts[i].in.want_status ? op->parts[i].in.n_keys : 0;
    if (bytes <= LIMIT_FRAME_BYTES)
        return EMBD_OK;
    return embd__error_set(e, EMBD_TOO_LARGE,
                           "the answer would have %llu bytes with the statuses of keys, the limit "
                           "is %u: ask for them in fewer parts",
                           (unsigned long long)bytes, LIMIT_FRAME_BYTES);
}
