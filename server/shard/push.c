/* push.c - applying pushes.
 *
 * The happy path is: check all parts, gradients included; settle the pulls on their way from these
 * tables; apply part by part; answer with each table's step and counts.
 *
 * A push is applied whole or not at all: everything that can be wrong with it is found before the
 * first part is applied, room (room.c) and memory (push_prepare) included. What is left is a device's
 * memory for its work on a later part; the answer then says which parts were applied. A push of a writer that was applied before is
 * answered so, and nothing else of it is looked at. */
#include "push.h"

#include "ahead.h"
#include "commit.h"
#include "pull.h"
#include "room.h"
#include "round_step.h"
#include "settle.h"
#include "state.h"

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
    struct shard_work *work = work_of_done(done);
    struct counters *counters = &work->shard->counters;
    struct work_part *part = &work->parts[work->at - 1];
    const struct store_push *push = &work->call.push;
    if (status == EMBD_OK) {
        struct store_stats stats;
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
    work_returned(work, status);
}

int push_prepare(struct shard_work *work, struct embd__error *e)
{
    const struct store_ops *ops = work->shard->tables.ops;
    for (uint32_t i = 0; i < work->n_parts && work->n_parts > 1; i++) {
        struct store_push push = push_of(work, &work->parts[i]);
        int status = ops->prepare != NULL ? ops->prepare(work->parts[i].table->store, &push, e)
                                          : room_reserve_part(work, i, e);
        if (status != EMBD_OK)
            return status;
    }
    work->is_prepared = work->n_parts > 1 && ops->prepare != NULL;
    return EMBD_OK;
}

bool push_next_call(struct shard_work *work)
{
    if (work->at == work->n_parts)
        return false;
    struct work_part *part = &work->parts[work->at++];
    work->call.push = push_of(work, part);
    work->call.push.is_prepared = work->is_prepared;
    work->done.fn = on_pushed;
    work->store = part->table->store;
    work->shard->tables.ops->push(part->table->store, &work->call.push, &work->done);
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
    if (work->at <= 1)
        return;
    struct embd__error e = {.status = EMBD_OK};
    embd__error_set(&e, work->error.status, "part %u: %.300s; the parts before it were applied",
                    work->at - 1, work->error.text);
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
