/* handle_keys.c - which keys of a table have rows, part by part. Nothing is kept between two
 * requests: the cursor says where the next part begins, and `scan` which table that is meant of,
 * since a place in one table is none in another. */
#include "proto/keyed.h"
#include "server/service/authorize.h"
#include "server/service/state.h"

/* The table as it is since the shard's start, or since it took another one's place. */
static uint64_t scan_number(const struct call *call, const struct table *table)
{
    return call->shard->config.start + table->instance * UINT64_C(0x9e3779b97f4a7c15);
}

static struct table *read_keys(struct call *call, struct list_fields *fields)
{
    if (embd__list_fields_read(&call->reader, fields) != EMBD_OK)
        return NULL;
    struct table *table = authorized_table(call, fields->table);
    if (table == NULL || fields->cursor == 0 || fields->scan == scan_number(call, table))
        return table;
    embd__error_set(&call->error, EMBD_INVALID,
                    "keys scan: %llu is not of table '%s' as it is now: the server was started "
                    "again, or the table was created again or restored; begin again with cursor 0",
                    (unsigned long long)fields->scan, fields->table);
    return NULL;
}

int handle_keys(struct call *call)
{
    struct list_fields fields;
    const struct table *table = read_keys(call, &fields);
    if (table == NULL)
        return call->error.status;
    uint64_t n = fields.n_most, *keys = work_memory(call->work, n * 10, &call->error);
    if (keys == NULL)
        return call->error.status;
    struct store_scan out = {.keys = keys, .slots = (uint16_t *)(void *)(keys + n)};
    if (call->shard->engine.tables.ops->list(table->store, &fields.cursor, fields.n_most, &out,
                                             &call->error) != EMBD_OK)
        return call->error.status;
    bool has_slots = table->schema.s.partition == EMBD_PARTITION_SLOT;
    out.slots = has_slots ? out.slots : NULL;
    if (moving_is_on(&call->shard->moving))
        moving_keep_own(call->shard, table, &out);
    const struct list_answer answer = {.n_keys = out.n_rows,
                                       .next = fields.cursor,
                                       .scan = scan_number(call, table),
                                       .is_done = fields.cursor == UINT64_MAX,
                                       .keys = keys,
                                       .slots = out.slots};
    embd__msg_result(call->answer, call->reader.msgid);
    embd__list_answer_write(call->answer, &answer);
    return EMBD_OK;
}
