/* capacity.c - an operation is applied whole or not at all, also to several tables.
 *
 * One place decides about a key (hit, new, candidate, full) and about the rows that go for it: its
 * store. A store refuses a push or insert without room before it changes anything, so an operation
 * on a single table needs nothing here. With several tables each decides in advance
 * (store_ops.prepare), and nothing comes between that and the calls.
 *
 * A journaled push has its record written first, and a push that will be refused should have no
 * record. A look-up of its keys takes time, so a push of a single part is looked up only if the
 * table refused the push before. Otherwise the record is written, and the decision comes when the
 * push is applied and when it is replayed.
 *
 * A push holds tickets of its stores from before its record is written until it is applied: each
 * keeps memory for all keys of the part. */
#include "server/engine/capacity.h"

#include "server/engine/engine.h"

int capacity_prepare(struct op *op, uint32_t i, struct store_change *change, struct embd__error *e)
{
    struct embd__error why = {.status = EMBD_OK};
    struct table *table = op->parts[i].table;
    int status = op->engine->tables.ops->prepare(table->store, change, STORE_PREPARE_OUTCOME, &why);
    op->parts[i].ticket = change->ticket;
    if (status == EMBD_OK)
        return EMBD_OK;
    table->was_full = status == EMBD_FULL;
    if (op->n_parts == 1)
        return embd__error_set(e, status, "%s", why.text);
    return embd__error_set(e, status, "part %u: %.400s", i, why.text);
}

/* Whether its store gives now the answer that it will give in its turn, and the look-up is worth
 * its time. A table that fills up has no more room after the pushes in flight; one that evicts may
 * have. */
static bool is_asked(const struct op *op, const struct op_part *part)
{
    const struct table *table = part->table;
    const embd_schema *s = &table->schema.s;
    if (!table_is_journaled(table) || part->statuses != NULL || s->on_full == EMBD_ON_FULL_GROW)
        return false;
    if (s->on_full != EMBD_ON_FULL_ERROR && op->engine->n_recorded > 0)
        return false;
    return op->n_parts > 1 || table->was_full;
}

/* Asks without keeping the answer: other operations come before its turn. */
static int check_part(struct op *op, uint32_t i, struct embd__error *e)
{
    struct op_part *part = &op->parts[i];
    struct store_change push = {
        .ticket = part->ticket, .in = op_keys(&part->in), .seconds = op->seconds};
    capacity_prepare(op, i, &push, e);
    op->engine->tables.ops->cancel(part->table->store, &part->ticket);
    return e->status;
}

int capacity_check(struct op *op, struct embd__error *e)
{
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (is_asked(op, &op->parts[i]) && check_part(op, i, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* ---- memory ---- */

/* A table that is to take the place of another needs memory beside it. */
static const char *what_to_do(const struct op *op)
{
    return op->kind == OP_LOAD && op->as.load.fields.staged != 0
               ? "there is no room for the table beside the one it replaces: drop that one and "
                 "load "
                 "without replacing, or give the server more memory"
               : "erase rows, drop a table, bound it by capacity and on_full, or give the server "
                 "more memory";
}

static int refuse(const struct op *op, const struct table *table, uint64_t needed,
                  struct embd__error *e)
{
    struct row_memory *memory = op->engine->tables.memory;
    row_memory_refuse(memory);
    op->engine->tables.n_refused++;
    e->status = EMBD_OK;
    return embd__error_set(
        e, EMBD_FULL,
        "table %s: its new rows need %llu bytes; rows take %llu bytes of the server's memory, the "
        "limit is %llu (row_memory): %s",
        table->schema.s.name, (unsigned long long)needed,
        (unsigned long long)atomic_load(&memory->used),
        (unsigned long long)row_memory_limit(memory), what_to_do(op));
}

static int refuse_quota(const struct op *op, const struct table *table, uint64_t needed,
                        struct embd__error *e)
{
    const struct op_quota *quota = &op->quota;
    e->status = EMBD_OK;
    return embd__error_set(
        e, EMBD_FULL,
        "table %s: its new rows need %llu bytes; the tables of token '%s' take %llu bytes on this "
        "shard, the limit is %llu (row_bytes in the list of tokens): erase rows, drop a table, "
        "bound it by capacity and on_full, or raise the limit",
        table->schema.s.name, (unsigned long long)needed, quota->who,
        (unsigned long long)quota->used, (unsigned long long)quota->limit);
}

static uint64_t quota_room(const struct op_quota *quota)
{
    if (quota->who == NULL)
        return UINT64_MAX;
    return quota->limit > quota->used ? quota->limit - quota->used : 0;
}

/* A device's memory is taken now, the host's when rows come. */
static int reserve(struct op *op, struct table *table, struct store_change *change,
                   enum store_prepare what, struct embd__error *e)
{
    struct tables *tables = &op->engine->tables;
    uint64_t own = quota_room(&op->quota);
    change->is_bounded = tables->memory != NULL || op->quota.who != NULL;
    if (!change->is_bounded && what == STORE_PREPARE_ROOM)
        return EMBD_OK;
    change->room = tables->memory != NULL ? row_memory_room(tables->memory, 0) : UINT64_MAX;
    change->room = own < change->room ? own : change->room;
    int status = tables->ops->prepare(table->store, change, what, e);
    if (tables->ops->caps.is_async)
        tables_count(tables, table);
    if (status != EMBD_FULL)
        return status;
    return change->needed > own ? refuse_quota(op, table, change->needed, e)
                                : refuse(op, table, change->needed, e);
}

/* A record that is written has to be applied: its memory is taken before. */
static enum store_prepare what_of(const struct op *op, const struct table *table)
{
    return table_is_journaled(table) || op->is_foreign ? STORE_PREPARE_MEMORY : STORE_PREPARE_ROOM;
}

bool capacity_claim(struct op *op, struct table *table, uint64_t bytes, struct embd__error *e)
{
    struct tables *tables = &op->engine->tables;
    struct store_stats stats;
    bool is_promised = op->engine->is_replaying || what_of(op, table) == STORE_PREPARE_MEMORY;
    if (!is_promised && bytes > row_memory_room(tables->memory, 0)) {
        refuse(op, table, bytes, e);
        return false;
    }
    tables->ops->stats(table->store, &stats);
    stats.memory_bytes += bytes;
    tables_count_as(tables, table, &stats);
    return true;
}

static int reserve_rows(struct op *op, struct table *table, const struct row_block *block,
                        uint32_t n, struct embd__error *e)
{
    struct store_change change = {
        .kind = STORE_INSERT,
        .in = {.n_keys = n, .n_rows = n, .keys = block->keys, .slots = block->slots}};
    reserve(op, table, &change, STORE_PREPARE_ROOM, e);
    op->engine->tables.ops->cancel(table->store, &change.ticket);
    return e->status;
}

static int reserve_load(struct op *op, struct embd__error *e)
{
    const struct op_load *load = &op->as.load;
    return reserve_rows(op, load->table, &load->block,
                        load->fields.is_gone ? 0 : load->block.n_rows, e);
}

static int reserve_put(struct op *op, struct embd__error *e)
{
    const struct op_put *put = &op->as.put;
    return reserve_rows(op, put->table, &put->block, put->block.n_rows, e);
}

int capacity_reserve(struct op *op, struct embd__error *e)
{
    if (op->kind == OP_LOAD)
        return reserve_load(op, e);
    if (op->kind == OP_PUT)
        return reserve_put(op, e);
    for (uint32_t i = 0; i < op->n_parts && op->kind == OP_PUSH && e->status == EMBD_OK; i++) {
        struct op_part *part = &op->parts[i];
        struct store_change push = {.ticket = part->ticket,
                                    .in = op_keys(&part->in),
                                    .seconds = op->seconds,
                                    .statuses = part->statuses};
        reserve(op, part->table, &push, what_of(op, part->table), e);
        part->ticket = push.ticket;
    }
    if (e->status != EMBD_OK)
        capacity_left(op);
    return e->status;
}

int capacity_reserve_insert(struct op *op, struct op_part *part, struct embd__error *e)
{
    struct store_change insert = {.ticket = part->ticket,
                                  .kind = STORE_INSERT,
                                  .in = part->inserted,
                                  .seconds = op->seconds,
                                  .statuses = part->inserted_statuses,
                                  .is_whole = !part->may_drop};
    reserve(op, part->table, &insert, STORE_PREPARE_ROOM, e);
    part->ticket = insert.ticket;
    return e->status;
}
