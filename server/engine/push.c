/* push.c - applies pushes.
 *
 * A push is applied whole or not at all: its number, room and memory are checked before its first
 * part is applied. The exception is a device's working memory for one of several parts; the error
 * then says that others were applied. A push with a used number is answered so, and the rest of it
 * is not looked at.
 *
 * The number of a push is noted before its store calls, so that the next push of the stream can
 * follow while a device works; it is taken back if the calls refuse the push. */
#include "server/engine/push.h"

#include <stddef.h>

#include "server/engine/capacity.h"
#include "server/engine/engine.h"
#include "server/engine/foreign.h"

/* ---- its turn ---- */

/* In records of earlier versions a stream begins with its first push. */
static bool begins_stream(const struct op *op)
{
    return op->begins_old && op->number.sequence == 1 && !pushers_know(op_pushers(op), &op->number);
}

/* The state of its stream now. Recorded operations that are not applied yet may close a gap. */
int push_look(struct op *op)
{
    struct embd__error later = {.status = EMBD_OK};
    int status = pushers_look(op_pushers(op), &op->number, &later);
    if (status == EMBD_FORGOTTEN && foreign_find(op)) {
        later.status = EMBD_OK;
        status = pushers_look(op_pushers(op), &op->number, &later);
    }
    bool may_change =
        op->engine->n_recorded > 0 && (status == EMBD_GAP || status == EMBD_FORGOTTEN);
    op->is_again = status == PUSH_AGAIN;
    if (may_change || status >= EMBD_OK)
        return EMBD_OK;
    return embd__error_set(&op->error, status, "%s", later.text);
}

int push_admit(struct op *op)
{
    if (op->number.sequence > 0 && (push_look(op) != EMBD_OK || op->is_again))
        return op->error.status;
    if (op->number.sequence > 0 && op->n_parts == 0)
        return embd__error_set(&op->error, EMBD_INVALID,
                               "a numbered push has no parts, expected 1 or more");
    return capacity_check(op, &op->error);
}

static struct store_change change_of(const struct op *op, struct op_part *part)
{
    struct store_change push = {
        .ticket = part->ticket,
        .in = op_keys(&part->in),
        .dtype = part->in.dtype,
        .grads = part->in.grads,
        .lr = part->in.lr,
        .seconds = op->seconds,
        .statuses = part->statuses,
    };
    part->ticket = (struct store_ticket){0};
    return push;
}

/* With several parts each table decides before the first one changes; with a single part the store
 * decides when it is pushed. */
static int prepare(struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct store_change push = change_of(op, &op->parts[i]);
        if (capacity_prepare(op, i, &push, &op->error) != EMBD_OK)
            return op->error.status;
    }
    return EMBD_OK;
}

/* Notes its number where it is its turn and there is room. */
int push_take_turn(struct op *op)
{
    struct embd__error *e = &op->error;
    bool is_old = begins_stream(op);
    if (op->is_foreign && foreign_follow(op, e) != EMBD_OK)
        return e->status;
    struct pushers *pushers = op_pushers(op);
    int status = is_old ? EMBD_OK : pushers_look(pushers, &op->number, e);
    op->is_again = status == PUSH_AGAIN;
    op->engine->counters.pushes_again += op->is_again;
    if (op->is_again && op->is_number_alone)
        foreign_note(op);
    if (status != EMBD_OK || (op->n_parts > 1 && prepare(op) != EMBD_OK))
        return e->status;
    if (is_old && pushers_begin_old(pushers, &op->number, e) != EMBD_OK)
        return e->status;
    op->noted = pushers;
    pushers_note(op->noted, &op->number, op->now_ns);
    if (op->is_number_alone)
        foreign_note(op);
    return EMBD_OK;
}

void push_give_turn_back(struct op *op)
{
    pushers_take_back(op->noted, &op->number);
}

/* ---- the calls ---- */

#define KEYS_OF_SLICE 16384u /* a millisecond's, of a push that is applied in slices */

static void count(struct engine_counters *counters, struct op_part *part,
                  const struct store_change *push)
{
    struct table *table = part->table;
    table->lost.evicted[table->schema.s.on_full] += push->n_evicted;
    part->n_inserted = push->n_inserted;
    part->n_full = push->n_full;
    part->n_filtered = push->n_filtered;
    part->n_evicted = push->n_evicted;
    counters->keys_pushed += op_n_keys(&part->in);
    counters->keys_inserted += push->n_inserted;
    counters->keys_full += push->n_full;
    counters->keys_filtered += push->n_filtered;
    counters->keys_evicted += push->n_evicted;
}

/* The last one of the operation may end it, and free it. */
static void on_pushed(struct store_done *done, int status)
{
    struct op_call *call = (struct op_call *)(void *)done;
    struct op *op = call->op;
    struct op_part *part = call->part;
    if (status == EMBD_OK) {
        struct store_stats stats;
        op->n_applied++;
        count(&op->engine->counters, part, &call->as.change);
        op->engine->tables.ops->stats(part->table->store, &stats);
        part->step = stats.steps;
        tables_count_as(&op->engine->tables, part->table, &stats);
        op->n_slices += tables_note_push(&op->engine->tables, part->table, stats.slices,
                                         part->in.n_keys / KEYS_OF_SLICE);
        if (op->noted != NULL)
            pushers_note_table(op->noted, &op->number, part->table->number);
    }
    part->table->was_full = status == EMBD_FULL;
    tables_end_late(&op->engine->tables, part->table);
    part->table = NULL;
    op_returned(call, status);
}

static bool claim(struct store_change *change, uint64_t bytes)
{
    struct op_call *call =
        (struct op_call *)(void *)((uint8_t *)change - offsetof(struct op_call, as));
    return capacity_claim(call->op, call->part->table, bytes, &call->done.error);
}

static bool next_call(struct op *op)
{
    if (op->at == op->n_parts)
        return false;
    struct op_part *part = &op->parts[op->at++];
    struct op_call *call = op_call_new(op, part, on_pushed);
    call->as.change = change_of(op, part);
    call->as.change.claim = op->engine->tables.memory != NULL ? claim : NULL;
    op->engine->tables.ops->apply(call->store, &call->as.change, &call->done);
    if (call->store == NULL)
        return true;
    tables_begin_late(&op->engine->tables, part->table);
    if (part->table->is_late)
        tables_count(&op->engine->tables, part->table);
    return true;
}

static void note_sources(struct op *op)
{
    uint32_t n;
    const struct push_source *sources = op_sources(op, &n);
    for (uint32_t i = 0; i < n; i++)
        sources_note(op->reached, &sources[i]);
}

static void on_ended(struct op *op)
{
    struct embd__error *e = &op->error;
    if (op->engine->unsure != NULL)
        op_end_unsure(op);
    if (e->status == EMBD_OK)
        note_sources(op);
    capacity_left(op);
    for (uint32_t i = 0; i < op->n_parts; i++)
        op->parts[i].table = NULL;
    if (e->status != EMBD_OK && op->noted != NULL && op->n_applied == 0)
        push_give_turn_back(op);
    if (e->status == EMBD_OK || op->n_applied == 0)
        return;
    struct embd__error own = *e;
    e->status = EMBD_OK;
    embd__error_set(e, own.status, "%.300s; %u of the %u parts were applied", own.text,
                    op->n_applied, op->n_parts);
}

void push_apply(struct op *op)
{
    struct engine *engine = op->engine;
    op->ended = on_ended;
    if (op->is_number_alone)
        foreign_check_owner(op);
    op->reached = op_is_of_journaled(op) ? &engine->journaled_sources : &engine->sources;
    if (op->error.status == EMBD_OK && op->number.sequence > 0)
        push_take_turn(op);
    else if (op->error.status == EMBD_OK && op->n_parts > 1)
        prepare(op);
    if (op->is_again || op->error.status != EMBD_OK) {
        op_end(op);
        return;
    }
    op_begin_unsure(op);
    op_run(op, next_call);
}
