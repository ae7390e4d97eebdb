/* handle_changes.c - what changed in a table since a subscriber's last round, part by part. The
 * happy path: the first question of a round freezes the table, and each question is answered with
 * the next rows of that cut; the last part says which step of the table the subscriber has then.
 * What can fail: the table is frozen for something else, or there is no memory for rows that pushes
 * change meanwhile: then there is no part now, and the round begins again. */
#include <stdio.h>

#include "proto/changes.h"
#include "proto/convert.h"
#include "server/engine/block.h"
#include "server/service/authorize.h"
#include "server/service/state.h"
#include "server/snapshot/cut.h"

#define OTHERS_NS 2000000u /* for each that the shard has worked for others a part is larger by */
#define PART_MOST 4u       /* CHANGES_BYTES, up to so many times that */

/* One part while it is made. */
struct changes_part {
    struct changes_ask ask;
    struct table *table;
    struct subscriber *subscriber;
    struct store_scan scan;
    uint32_t most_rows;
    uint8_t *rows; /* as they are sent */
    struct changes_answer answer;
};

/* ---- whose it is ---- */

static int check_table(struct call *call, const struct table *table)
{
    if (!embd__schema_has_stamp(&table->schema.s) ||
        table->schema.s.optimizer.kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                           "changes: rows of table '%s' change without a push to them, as what "
                           "they owe is paid when they are used",
                           table->schema.s.name);
}

static int begin(struct call *call, struct changes_part *part)
{
    if (check_table(call, part->table) != EMBD_OK)
        return call->error.status;
    part->subscriber =
        subscriber_new(call->shard, call->request->session, part->table, &call->error);
    if (part->subscriber != NULL)
        part->subscriber->from_now = part->ask.from_now;
    return call->error.status;
}

/* NULL: they go on from here. */
static const char *why_gone(const struct changes_part *part)
{
    const struct subscriber *s = part->subscriber;
    if (s == NULL)
        return "there is no such subscription on this connection: the server was started again, "
               "the connection was lost, the table was replaced, or nothing was asked for 60 s";
    if (s->instance != part->table->instance)
        return "the table was created again or restored";
    if (s->part != part->ask.part || s->chain != part->ask.chain)
        return "the subscriber's last part is not the last one that was sent";
    return NULL;
}

static int write_gone(struct call *call, const struct changes_part *part, const char *why)
{
    struct changes_answer gone = {.id = part->ask.id, .dim = part->table->schema.s.dim};
    snprintf(gone.gone, sizeof gone.gone, "%s", why);
    if (part->subscriber != NULL)
        subscriber_end(call->shard, part->subscriber);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__changes_answer_write(call->answer, &gone);
    return EMBD_OK;
}

/* ---- a part ---- */

/* Each question waits for the thread, and pushes copy rows until the round is read. So one that
 * long requests kept waiting gets more at once, and keeps others waiting for less than they did. */
static uint64_t bytes_of_part(const struct shard *shard, const struct subscriber *s)
{
    bool is_async = shard->engine.tables.ops->caps.is_async; /* its clock goes on at rest */
    bool goes_on = s != NULL && s->made != 0 && s->answered_ns != 0 && !is_async;
    uint64_t others_ns = goes_on ? clock_work_ns(shard) - s->answered_ns : 0;
    uint64_t n = 1 + others_ns / OTHERS_NS;
    return CHANGES_BYTES * (n < PART_MOST ? n : PART_MOST);
}

static bool has_states(const struct shard *shard)
{
    return shard->engine.tables.ops->caps.is_async; /* these copy them all the same */
}

static uint32_t rows_of_part(const struct shard *shard, const embd_schema *schema, uint64_t bytes)
{
    uint64_t value_bytes = embd__value_bytes(schema->dtype, schema->dim);
    uint64_t n =
        has_states(shard) ? block_rows_in(schema, bytes) : bytes / (sizeof(uint64_t) + value_bytes);
    n = n == 0 ? 1 : n;
    return n < CHANGES_ROWS ? (uint32_t)n : CHANGES_ROWS;
}

static int make_room_for(struct call *call, struct changes_part *part, uint64_t bytes)
{
    const embd_schema *s = &part->table->schema.s;
    bool states = has_states(call->shard);
    part->most_rows = rows_of_part(call->shard, s, bytes);
    uint64_t block_bytes = block_bytes_of(s, part->most_rows, states);
    uint64_t row_bytes = embd__value_bytes(part->ask.dtype, s->dim);
    uint8_t *memory =
        work_memory(call->work, block_bytes + part->most_rows * row_bytes, &call->error);
    if (memory == NULL)
        return call->error.status;
    block_point(s, part->most_rows, states, memory, &part->scan);
    part->rows = memory + block_bytes;
    return EMBD_OK;
}

/* Takes less where peers have that much of frame_memory. */
static int make_room(struct call *call, struct changes_part *part)
{
    uint64_t bytes = bytes_of_part(call->shard, part->subscriber);
    int status = make_room_for(call, part, bytes);
    if (status != EMBD_BUSY || bytes == CHANGES_BYTES)
        return status;
    call->error = (struct embd__error){.status = EMBD_OK};
    return make_room_for(call, part, CHANGES_BYTES);
}

/* Keys that wait for admission have no rows: only those that are gone are left. */
static void keep_gone(struct store_scan *scan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < scan->n_candidates; i++)
        if (scan->candidate_counts[i] == 0) {
            scan->candidate_keys[n] = scan->candidate_keys[i];
            if (scan->candidate_slots != NULL)
                scan->candidate_slots[n] = scan->candidate_slots[i];
            n++;
        }
    scan->n_candidates = n;
}

static void convert(struct changes_part *part)
{
    const embd_schema *s = &part->table->schema.s;
    if (s->dtype == EMBD_DTYPE_F32 && !embd__dtype_is_coded(part->ask.dtype)) {
        embd__from_f32(part->rows, part->ask.dtype, part->scan.rows,
                       (size_t)part->scan.n_rows * s->dim);
        return;
    }
    uint64_t from_bytes = embd__value_bytes(s->dtype, s->dim),
             to_bytes = embd__value_bytes(part->ask.dtype, s->dim);
    const uint8_t *from = part->scan.rows;
    float row[EMBD_DIM_MAX];
    for (uint32_t i = 0; i < part->scan.n_rows; i++) {
        embd__row_to_f32(row, from + i * from_bytes, s->dtype, s->dim);
        embd__row_from_f32(part->rows + i * to_bytes, part->ask.dtype, row, s->dim);
    }
}

static bool is_cutting(const struct shard *shard)
{
    return cut_is_on(shard) || moving_is_on(&shard->moving);
}

/* False: there is none now. */
static bool read_part(struct call *call, struct changes_part *part, bool *is_last)
{
    const struct store_ops *ops = call->shard->engine.tables.ops;
    struct subscriber *s = part->subscriber;
    struct embd__error e = {.status = EMBD_OK};
    if (!subscriber_freeze(call->shard, s, part->table, is_cutting(call->shard), &e))
        return false;
    *is_last = s->from_now;
    part->scan.n_rows = part->scan.n_candidates = 0;
    if (!s->from_now && ops->scan_frozen(part->table->store, part->most_rows, &part->scan, is_last,
                                         &e) != EMBD_OK) {
        subscriber_give_up_round(call->shard, s);
        return false;
    }
    keep_gone(&part->scan);
    convert(part);
    return true;
}

static void fill(struct changes_part *part, bool is_last)
{
    const struct subscriber *s = part->subscriber;
    const embd_schema *schema = &part->table->schema.s;
    part->answer = (struct changes_answer){
        .id = s->id,
        .part = s->part + 1,
        .before = s->chain,
        .round = s->round,
        .is_first = !s->is_begun,
        .is_last = is_last,
        .has_all = s->has_all && !s->from_now,
        .step = s->step,
        .dtype = part->ask.dtype,
        .dim = schema->dim,
        .n_rows = part->scan.n_rows,
        .n_gone = part->scan.n_candidates,
        .has_slots = schema->partition == EMBD_PARTITION_SLOT,
        .keys = part->scan.keys,
        .slots = part->scan.slots,
        .rows = part->rows,
        .gone_keys = part->scan.candidate_keys,
        .gone_slots = part->scan.candidate_slots,
    };
    part->answer.chain = embd__changes_chain(&part->answer);
}

static int answer(struct call *call, struct changes_part *part)
{
    struct subscriber *s = part->subscriber;
    bool is_last = false;
    part->answer =
        (struct changes_answer){.id = s->id, .waits = true, .dim = part->table->schema.s.dim};
    if (read_part(call, part, &is_last)) {
        fill(part, is_last);
        s->part = part->answer.part;
        s->chain = part->answer.chain;
        s->is_begun = true;
        s->answered_ns = clock_work_ns(call->shard);
        if (is_last)
            subscriber_end_round(call->shard, s);
    }
    embd__msg_result(call->answer, call->reader.msgid);
    embd__changes_answer_write(call->answer, &part->answer);
    return EMBD_OK;
}

int handle_changes(struct call *call)
{
    struct changes_part part = {.table = NULL};
    if (embd__changes_ask_read(&call->reader, &part.ask) != EMBD_OK)
        return call->error.status;
    part.table = authorized_table(call, part.ask.table);
    if (part.table == NULL)
        return call->error.status;
    subscribers_look(call->shard, is_cutting(call->shard));
    part.subscriber = subscriber_find(call->shard, call->request->session, part.ask.id);
    if (part.ask.ends)
        return write_gone(call, &part, "it was ended");
    if (part.ask.id != 0 && why_gone(&part) != NULL)
        return write_gone(call, &part, why_gone(&part));
    if (make_room(call, &part) != EMBD_OK || (part.ask.id == 0 && begin(call, &part) != EMBD_OK))
        return call->error.status;
    part.subscriber->asked_ns = clock_ns();
    call->request->session->sends_aside = call->request->session->is_admin; /* a replica */
    return answer(call, &part);
}
