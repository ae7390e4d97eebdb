/* handle_get.c - rows by key, as they are stored, with their states. Nothing is created, and no key
 * counts as seen or used: an answer is a copy of what the shard has. */
#include "proto/keyed.h"
#include "server/engine/check.h"
#include "server/service/authorize.h"
#include "server/service/narrow.h"
#include "server/service/state.h"

/* An answer is made as a whole. */
#define GET_BYTES (16u << 20)

struct get {
    struct keyed_fields fields;
    const struct table *table;
    struct row_block asked;
    struct get_answer answer;
};

static int read_get(struct call *call, struct get *get)
{
    const struct routed_place place = shard_place(call->shard);
    struct embd__error *e = &call->error;
    if (embd__get_fields_read(&call->reader, &get->fields) != EMBD_OK ||
        check_placement(call) != EMBD_OK)
        return e->status;
    get->table = authorized_table(call, get->fields.table);
    if (get->table == NULL || embd__get_bins_read(&call->reader, &get->table->schema.s,
                                                  get->fields.n_keys, &get->asked) != EMBD_OK)
        return e->status;
    return check_keyed(get->table, &get->asked, "get", &place, e);
}

/* One block: rows, states, statuses. */
static int make_room(struct call *call, struct get *get, struct store_read *read)
{
    const embd_schema *s = &get->table->schema.s;
    struct get_answer *answer = &get->answer;
    *answer = (struct get_answer){
        .n_keys = get->asked.n_rows,
        .dim = s->dim,
        .dtype = s->dtype,
        .n_states = get->fields.has_states ? embd__schema_state_floats(s) : 0,
    };
    uint64_t bytes = embd__get_answer_bytes(answer), n = answer->n_keys;
    if (bytes > GET_BYTES)
        return embd__error_set(&call->error, EMBD_TOO_LARGE,
                               "get keys: %u, whose rows have %llu bytes; the limit is %u, ask for "
                               "fewer at a time",
                               answer->n_keys, (unsigned long long)bytes, GET_BYTES);
    uint64_t row_bytes = (n * embd__value_bytes(s->dtype, s->dim) + 7) / 8 * 8;
    uint8_t *memory = work_memory(call->work, row_bytes + bytes + 8, &call->error);
    if (memory == NULL)
        return call->error.status;
    *read = (struct store_read){
        .in = {.n_keys = answer->n_keys,
               .n_rows = answer->n_keys,
               .keys = get->asked.keys,
               .slots = get->asked.slots},
        .rows = memory,
        .states = answer->n_states > 0 ? (float *)(void *)(memory + row_bytes) : NULL,
        .statuses = memory + row_bytes + n * answer->n_states * sizeof(float),
    };
    return EMBD_OK;
}

int handle_get(struct call *call)
{
    struct get get = {.table = NULL};
    struct store_read read;
    if (read_get(call, &get) != EMBD_OK ||
        (call->shard->narrow != NULL && narrow_check_table(call, get.table) != EMBD_OK) ||
        make_room(call, &get, &read) != EMBD_OK ||
        call->shard->engine.tables.ops->read(get.table->store, &read, &call->error) != EMBD_OK)
        return call->error.status;
    get.answer.statuses = read.statuses;
    get.answer.rows = read.rows;
    get.answer.states = read.states;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__get_answer_write(call->answer, &get.answer);
    return EMBD_OK;
}
