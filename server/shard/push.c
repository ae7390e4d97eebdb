/* push.c - applying pushes.
 *
 * The happy path is: check all parts, gradients included; settle the pulls on their way from these
 * tables; apply part by part; answer with each table's step and counts.
 *
 * A push is applied whole or not at all: everything that can be wrong with it is found before the
 * first part is applied, room and memory included (push_prepare). What is left is a device's memory
 * for its work on one of several parts; the answer then says that others were applied. A push of a
 * writer that was applied before is answered so, and nothing else of it is looked at. */
#include "server/shard/push.h"

#include "server/shard/ahead.h"
#include "server/shard/commit.h"
#include "server/shard/pull.h"
#include "server/shard/room.h"
#include "server/shard/rounds/round_step.h"
#include "server/shard/settle.h"
#include "server/shard/state.h"

static struct store_push push_of(struct shard_work *work, const struct work_part *part)
{
    return (struct store_push){
        .in = pull_keys(&part->in),
        .dtype = part->in.dtype,
        .grads = part->in.grads,
        .statuses = part->statuses,
        .foreseen = ahead_take(work->request),
    };
}

static void on_pushed(struct store_done *done, int status)
{
    struct work_call *call = (struct work_call *)(void *)done;
    struct shard_work *work = call->work;
    struct counters *counters = &work->shard->counters;
    struct work_part *part = call->part;
    const struct store_push *push = &call->as.push;
    if (status == EMBD_OK) {
        struct store_stats stats;
        work->n_applied++;
        work->shard->tables.ops->stats(part->table->store, &stats);
        part->step = stats.steps;
        part->n_inserted = push->n_inserted;
        part->n_full = push->n_full;
        part->n_filtered = push->n_filtered;
        part->n_evicted = push->n_evicted;
        counters->keys_pushed += part->in.n_keys;
        counters->keys_inserted += push->n_inserted;
        counters->keys_full += push->n_full;
        counters->keys_filtered += push->n_filtered;
        counters->keys_evicted += push->n_evicted;
    }
    part->table->was_full = status == EMBD_FULL;
    room_part_left(work, part);
    part->table = NULL;
    work_returned(call, status);
}

int push_prepare(struct shard_work *work, struct embd__error *e)
{
    work->is_prepared = work->n_parts > 1;
    for (uint32_t i = 0; i < work->n_parts && work->is_prepared; i++) {
        const struct work_part *part = &work->parts[i];
        struct store_plan plan = {.in = pull_keys(&part->in), .may_drop = part->statuses != NULL};
        if (room_prepare(work, i, &plan, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

bool push_next_call(struct shard_work *work)
{
    if (work->at == work->n_parts)
        return false;
    struct work_part *part = &work->parts[work->at++];
    struct work_call *call = work_call_new(work, part, on_pushed);
    call->as.push = push_of(work, part);
    call->as.push.is_prepared = work->is_prepared;
    work->shard->tables.ops->push(call->store, &call->as.push, &call->done);
    return true;
}

static void write_answer(const struct shard_work *work)
{
    struct push_answer answers[LIMIT_PARTS];
    struct msg *m = &work->request->answer;
    for (uint32_t i = 0; i < work->n_parts; i++) {
        const struct work_part *part = &work->parts[i];
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
    embd__msg_result(m, work->request->frame->msgid);
    embd__push_answer_write(m, answers, work->n_parts, shard_told_map(work->shard));
    embd__msg_end(m);
}

void push_tell_applied(struct shard_work *work)
{
    if (work->n_applied == 0)
        return;
    struct embd__error e = {.status = EMBD_OK};
    embd__error_set(&e, work->error.status, "%.300s; %u of the %u parts were applied",
                    work->error.text, work->n_applied, work->n_parts);
    work->error = e;
}

void push_end(struct shard_work *work)
{
    struct stage_times *times = &work->request->times;
    stage_ends(times, STAGE_STORE);
    room_left(work);
    if (work->error.status != EMBD_OK)
        commit_refused(work);
    if (work->error.status == EMBD_OK)
        write_answer(work);
    else
        push_tell_applied(work);
    stage_ends_call(times, STAGE_ENCODE, work->began_ns, &work->shard->counters.push_ns);
    call_answer(work->shard, work->request, &work->error);
}

void push_again(struct shard_work *work)
{
    struct stage_times *times = &work->request->times;
    struct msg *m = &work->request->answer;
    room_left(work);
    for (uint32_t i = 0; i < work->n_parts; i++)
        work->parts[i].table = NULL;
    stage_ends(times, STAGE_STORE);
    work->shard->counters.pushes_again++;
    embd__msg_result(m, work->request->frame->msgid);
    embd__push_again_write(m, shard_told_map(work->shard));
    embd__msg_end(m);
    stage_ends(times, STAGE_ENCODE);
    call_answer(work->shard, work->request, &work->error);
}

static int prepare(struct call *call)
{
    struct shard_work *work = call->work;
    struct embd__error *e = &call->error;
    if (call_read_parts(call, PARTS_PUSH) != EMBD_OK)
        return e->status;
    stage_ends(&call->request->times, STAGE_DECODE);
    if (call->extra.round.n_workers > 0)
        return EMBD_OK;
    work->writer = call->extra.writer;
    int status = commit_look(work, e);
    if (status != EMBD_OK)
        return status;
    if (work->writer.sequence > 0 && work->n_parts == 0)
        return embd__error_set(e, EMBD_INVALID, "a writer's push has no parts");
    if (room_check(work, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (settle(call->shard, call->request->session, work->parts[i].table, CHANGE_ROWS, e) !=
            EMBD_OK)
            return e->status;
    return EMBD_OK;
}

int handle_push(struct call *call)
{
    int status = prepare(call);
    if (status == WRITER_AGAIN) {
        push_again(call->work);
        return CALL_LATER;
    }
    if (status != EMBD_OK)
        return status;
    if (call->extra.round.n_workers > 0)
        return round_enter(call);
    call->work->next_call = push_next_call;
    call->work->end = push_end;
    return commit_push(call);
}
