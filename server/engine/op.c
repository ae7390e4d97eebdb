/* op.c - the memory of an operation, and the store calls it makes.
 *
 * All calls of an operation are made one right behind the other, whether each has returned before
 * the next, as those of the host store have, or not. So nothing comes between them, and what was
 * found true of all stores before the first call is still true at the last; nor is an operation
 * half made where its owner goes. */
#include "server/engine/op.h"
#include "proto/assert.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/engine/engine.h"
#include "server/engine/staged.h"

void op_begin(struct op *op, struct engine *engine, enum op_kind kind)
{
    struct op_part *parts = op->parts;
    struct op_call *calls = op->calls;
    uint8_t *statuses = op->statuses;
    uint64_t statuses_capacity = op->statuses_capacity;
    uint32_t parts_capacity = op->parts_capacity;
    free(op->memory);
    free(op->unpacked);
    memset(op, 0, offsetof(struct op, error));
    op->engine = engine;
    op->kind = kind;
    op->parts = parts;
    op->parts_capacity = parts_capacity;
    op->statuses = statuses;
    op->statuses_capacity = statuses_capacity;
    op->calls = calls;
    op->error.status = EMBD_OK;
}

void op_fini(struct op *op)
{
    free(op->parts);
    free(op->calls);
    free(op->statuses);
    free(op->memory);
    free(op->unpacked);
    memset(op, 0, sizeof *op);
}

int op_grow_parts(struct op *op, uint32_t n, struct embd__error *e)
{
    struct op_part *parts = realloc(op->parts, n * sizeof *parts);
    op->parts = parts != NULL ? parts : op->parts;
    struct op_call *calls = realloc(op->calls, 2 * n * sizeof *calls);
    op->calls = calls != NULL ? calls : op->calls;
    if (parts == NULL || calls == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a request of %u parts", n);
    op->parts_capacity = n;
    return EMBD_OK;
}

int op_size_statuses(struct op *op, struct embd__error *e)
{
    static uint8_t nothing; /* statuses of no keys: anywhere but NULL */
    uint64_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (op->parts[i].in.want_status)
            bytes += op->parts[i].in.n_keys;
    if (bytes > op->statuses_capacity) {
        uint8_t *statuses = realloc(op->statuses, bytes);
        if (statuses == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu key statuses",
                                   (unsigned long long)bytes);
        op->statuses = statuses;
        op->statuses_capacity = bytes;
    }
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct op_part *part = &op->parts[i];
        if (!part->in.want_status)
            continue;
        part->statuses = part->in.n_keys > 0 ? op->statuses + at : &nothing;
        at += part->in.n_keys;
    }
    return EMBD_OK;
}

/* ---- durability ---- */

static int durability_of_parts(const struct op *op, embd_durability *out, struct embd__error *e)
{
    *out = EMBD_DURABILITY_SNAPSHOT;
    for (uint32_t i = 0; i < op->n_parts; i++) {
        const struct table *first = op->parts[0].table, *table = op->parts[i].table;
        embd_durability own = table_durability(table);
        if (table_is_journaled(first) != table_is_journaled(table))
            return embd__error_set(e, EMBD_INVALID,
                                   "part %u: table '%s' has durability '%s', part 0's table '%s' "
                                   "has '%s'; one request cannot change both",
                                   i, table->schema.s.name, embd_durability_name(own),
                                   first->schema.s.name,
                                   embd_durability_name(table_durability(first)));
        *out = embd__durability_join(*out, own);
    }
    return EMBD_OK;
}

static embd_durability durability_of_staged(const struct op *op, uint64_t id)
{
    embd_durability own = staged_durability(&op->engine->tables, id);
    return own == EMBD_DURABILITY_SNAPSHOT ? own
                                           : embd__durability_join(own, EMBD_DURABILITY_DURABLE);
}

/* The stronger of what it was and what it becomes. A table that leaves the journal is on disk as
 * one that has left: what a start has of it is the snapshot, before anybody counts on that. One
 * that no longer waits for followers does not wait for them to say so: there may be none. */
static embd_durability durability_of_set(const struct op_table_set *set)
{
    const embd_durability *to = embd__schema_change_durability(&set->change);
    embd_durability now = table_durability(set->table);
    if (to != NULL && *to == EMBD_DURABILITY_SNAPSHOT && now != EMBD_DURABILITY_SNAPSHOT)
        return EMBD_DURABILITY_DURABLE;
    if (to != NULL && !embd__durability_is_replicated(*to) && embd__durability_is_replicated(now))
        return EMBD_DURABILITY_DURABLE;
    return to != NULL ? embd__durability_join(*to, now) : now;
}

/* The number of its push is one of a journaled stream. */
static embd_durability with_number(const struct op *op, embd_durability durability)
{
    bool is_alone = durability == EMBD_DURABILITY_SNAPSHOT && op->is_foreign;
    return is_alone ? EMBD_DURABILITY_BUFFERED : durability;
}

/* A map of keys is as durable as any table. Once it is prepared on disk, a start asks shard 0
 * whether it was taken: so trainers need not wait for the record that says so. */
static embd_durability durability_of_replace(const struct op *op)
{
    const struct op_replace *replace = &op->as.replace;
    const struct prepared *prepared = &op->engine->prepared;
    if (prepared->place != NULL && prepared->id == replace->id)
        return EMBD_DURABILITY_BUFFERED;
    if (op->engine->replicates_maps)
        return EMBD_DURABILITY_REPLICATED_DURABLE;
    return replace->place != NULL ? EMBD_DURABILITY_DURABLE : durability_of_staged(op, replace->id);
}

int op_durability(const struct op *op, embd_durability *out, struct embd__error *e)
{
    *out = EMBD_DURABILITY_SNAPSHOT;
    switch (op->kind) {
    case OP_PULL:
        return EMBD_OK;
    case OP_PUSH:
    case OP_ERASE:
        durability_of_parts(op, out, e);
        *out = with_number(op, *out);
        return e->status;
    case OP_TABLE_CREATE:
        *out = op->as.create.schema.s.durability;
        return EMBD_OK;
    case OP_TABLE_DROP:
        *out = table_durability(op->as.dropped);
        return EMBD_OK;
    case OP_TABLE_SET:
        *out = durability_of_set(&op->as.set);
        return EMBD_OK;
    case OP_LOAD:
        *out = table_durability(op->as.load.table);
        return EMBD_OK;
    case OP_PUT:
        *out = with_number(op, table_durability(op->as.put.table));
        return EMBD_OK;
    case OP_STREAM_OPEN:
        *out = op->as.opening.is_journaled ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT;
        return EMBD_OK;
    case OP_STREAMS:
        *out = op->as.streams.is_journaled && op->as.streams.n + op->as.streams.n_clients > 0
                   ? EMBD_DURABILITY_DURABLE
                   : EMBD_DURABILITY_SNAPSHOT;
        return EMBD_OK;
    case OP_STAGE:
        *out = op->as.stage.schema.s.durability;
        return EMBD_OK;
    case OP_UNSTAGE:
        *out = durability_of_staged(op, op->as.unstaged);
        return EMBD_OK;
    case OP_REPLACE:
    case OP_PREPARE:
        *out = durability_of_replace(op);
        return EMBD_OK;
    }
    return EMBD_OK;
}

uint64_t op_put_time(const struct op *op, const struct store_stats *stats)
{
    const struct op_put *put = &op->as.put;
    if (!embd__schema_is_timed(&put->table->schema.s))
        return put->step > 0 ? put->step : stats->steps;
    return op->seconds > stats->clock ? op->seconds : stats->clock;
}

/* ---- calls ---- */

void op_run(struct op *op, bool (*next)(struct op *op))
{
    while (op->error.status == EMBD_OK && next(op))
        ;
    if (op->n_out == 0) {
        op_end(op);
        return;
    }
    op->in_flight = true;
    op->engine->n_in_flight++;
}

void op_returned(struct op_call *call, int status)
{
    struct op *op = call->op;
    struct engine *engine = op->engine;
    EMBD_ASSERT(call->store != NULL && op->n_out > 0); /* a store calls done once */
    if (status != EMBD_OK)
        embd__error_set(&op->error, status, "%s",
                        call->done.error.status != EMBD_OK ? call->done.error.text
                                                           : embd_status_text(status));
    call->store = NULL;
    if (--op->n_out > 0 || !op->in_flight)
        return;
    op->in_flight = false;
    engine->n_in_flight--;
    op_end(op);
    if (engine->on_returned != NULL)
        engine->on_returned(engine->arg);
}

void op_wait(struct op *op)
{
    const struct store_ops *ops = op->engine->tables.ops;
    while (op->n_out > 0 && op->kind == OP_TABLE_SET)
        tables_sweep(&op->engine->tables);
    while (op->n_out > 0)
        for (uint32_t i = 0; i < op->n_calls && op->n_out > 0; i++)
            if (op->calls[i].store != NULL)
                ops->collect(op->calls[i].store);
}

/* ---- pushes that may be refused ---- */

/* A table that evicts any row has room for as many keys as its capacity. */
static bool part_may_be_full(const struct op_part *part)
{
    const embd_schema *s = &part->table->schema.s;
    bool evicts_any = s->on_full == EMBD_ON_FULL_EVICT_LRU || s->on_full == EMBD_ON_FULL_EVICT_LFU;
    if (s->on_full == EMBD_ON_FULL_GROW || part->statuses != NULL)
        return false;
    return !evicts_any || part->in.n_keys > s->capacity;
}

static bool may_be_full(const struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (part_may_be_full(&op->parts[i]))
            return true;
    return false;
}

void op_begin_unsure(struct op *op)
{
    if (op->noted == NULL || !may_be_full(op))
        return;
    op->next_unsure = op->engine->unsure;
    op->engine->unsure = op;
}

void op_end_unsure(struct op *op)
{
    struct op **at = &op->engine->unsure;
    while (*at != NULL && *at != op)
        at = &(*at)->next_unsure;
    if (*at != op)
        return;
    *at = op->next_unsure;
    op->engine->n_were_unsure++;
}

bool op_is_unsure(const struct engine *engine, const struct push_number *number)
{
    for (const struct op *op = engine->unsure; op != NULL; op = op->next_unsure)
        if (op->number.high == number->high && op->number.low == number->low &&
            op->number.stream == number->stream)
            return true;
    return false;
}

/* ---- ends that nobody waits for ---- */

/* It goes on; apply.c. */
static void forget_set(struct op *op)
{
    struct engine_set *set = &op->engine->set;
    set->orphan = *op;
    set->orphan.origin = NULL;
    set->orphan.spent_ns = NULL;
    if (op->record.commit != NULL)
        set->orphan.record.then = NULL;
    else
        set->orphan.done = NULL;
    set->op = &set->orphan;
    op->n_out = 0;
    op->in_flight = false;
}

/* The calls of other operations do not return meanwhile. */
static void end_calls(struct op *op)
{
    const struct store_ops *ops = op->engine->tables.ops;
    for (uint32_t i = 0; i < op->n_calls; i++) {
        struct op_call *call = &op->calls[i];
        if (call->store != NULL)
            call->done.fn(&call->done, ops->cancel(call->store, &call->as.ticket));
    }
}

/* A push in flight may still be refused: its end gives its number back, withdraws its record. */
void op_leave(struct op *op)
{
    if (op->kind == OP_TABLE_SET) {
        forget_set(op);
        return;
    }
    if (op->record.commit != NULL)
        op->record.then = NULL;
    else
        op->done = NULL;
    op->made = NULL;
    op->in_flight = false;
    op->engine->n_in_flight--;
    end_calls(op);
    op_end(op);
}
