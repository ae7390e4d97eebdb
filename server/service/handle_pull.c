/* handle_pull.c - answers pulls.
 *
 * The happy path is: check all parts; write the head of the answer, with empty bins; have the
 * engine create rows if the table's pulls create rows; hand the answer to net. Net has shard_fill
 * make the rows chunk by chunk, directly into the socket's buffers. A store that computes a request
 * as a whole does so before the answer; a large one is answered when its first rows are made, and
 * net sends as far as shard_made says.
 *
 * What can fail: the checks, an answer beyond the frame limit, and no room for a new row. All of
 * that comes before the first change. And a device, in the midst of an answer: then its connection
 * ends. */
#include <stdlib.h>
#include <string.h>

#include "proto/packed.h"
#include "server/engine/pull.h"
#include "proto/assert.h"
#include "server/log/log.h"
#include "server/service/following.h"
#include "server/service/narrow.h"
#include "server/service/state.h"
#include "server/service/token_use.h"

bool pull_creates(struct call *call)
{
    int n = embd__parts_read(&call->reader, call->shard->parts, LIMIT_PARTS, PARTS_PULL);
    for (int i = 0; i < n; i++) {
        const struct part *part = &call->shard->parts[i];
        const struct table *table = tables_by_id(&call->shard->engine.tables, part->table);
        if (table != NULL && table->schema.s.create_on == EMBD_CREATE_ON_PULL &&
            !part->zero_missing)
            return true;
    }
    return false;
}

/* ---- rows ---- */

/* Room for those of all parts, all zero. */
static int size_rows(struct shard_work *work, struct embd__error *e)
{
    uint32_t n = work->op.n_parts;
    if (n > work->rows_capacity) {
        struct answer_rows *rows = realloc(work->rows, n * sizeof *rows);
        if (rows == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a request of %u parts", n);
        work->rows = rows;
        work->rows_capacity = n;
    }
    if (n > 0)
        memset(work->rows, 0, n * sizeof *work->rows);
    return EMBD_OK;
}

/* All its rows are made: its table may go. */
static void end_part(struct shard_work *work, struct op_part *part)
{
    struct counters *counters = &work->shard->counters;
    if (part->statuses != NULL) {
        uint64_t n_hit = 0, n_missing = 0;
        for (uint32_t i = 0; i < part->in.n_keys; i++) {
            n_hit += part->statuses[i] == EMBD_KEY_HIT;
            n_missing += part->statuses[i] == EMBD_KEY_MISSING;
        }
        counters->keys_hit += n_hit;
        counters->keys_missing += n_missing;
    }
    part->table = NULL;
}

void pull_make_rows(struct shard_work *work, uint32_t i, void *out, uint32_t count)
{
    struct op_part *part = &work->op.parts[i];
    struct answer_rows *rows = &work->rows[i];
    pull_rows(&work->op, part, rows->n_made, count, out);
    rows->n_made += count;
    if (rows->n_made == part->in.n_rows)
        end_part(work, part);
}

static void begin_streaming(struct shard_work *work)
{
    struct shard *shard = work->shard;
    work->is_streaming = true;
    work->before = NULL;
    work->next = shard->streaming;
    if (shard->streaming != NULL)
        shard->streaming->before = work;
    shard->streaming = work;
    shard->engine.is_read = true;
}

void pull_end_streaming(struct shard_work *work)
{
    if (work->before != NULL)
        work->before->next = work->next;
    else
        work->shard->streaming = work->next;
    if (work->next != NULL)
        work->next->before = work->before;
    work->next = work->before = NULL;
    work->is_streaming = false;
    work->shard->engine.is_read = work->shard->streaming != NULL;
}

/* ---- rows into shared memory ---- */

static int check_into(const struct call *call, uint32_t i, uint64_t bytes, struct embd__error *e)
{
    const struct shared_memory *shared = &call->request->session->shared;
    uint64_t into = call->work->op.parts[i].in.into;
    if (into == 0 || (into % 8 == 0 && into <= shared->bytes && bytes <= shared->bytes - into))
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "part %u field 'into' is %llu, for rows of %llu bytes; expected a "
                           "multiple of 8, and rows that end within the %llu bytes of memory that "
                           "the connection shares",
                           i, (unsigned long long)into, (unsigned long long)bytes,
                           (unsigned long long)shared->bytes);
}

/* All of them at once: before the table can change, and before the answer that names them. The
 * peer may write there meanwhile, and nothing depends on what it writes. */
static void make_shared(struct shard_work *work, uint32_t i)
{
    const struct op_part *part = &work->op.parts[i];
    struct answer_rows *rows = &work->rows[i];
    uint8_t *to = work->request->session->shared.base + part->in.into;
    if (rows->values == NULL) {
        pull_make_rows(work, i, to, part->in.n_rows);
        return;
    }
    memcpy(to, rows->values, rows->values_bytes);
    work_free_rows(work->shard, rows);
    end_part(work, &work->op.parts[i]);
}

/* ---- the answer ---- */

/* Large answers are sent while their rows are made, where the store makes them as a whole. */
#define EARLY_BYTES (2u << 20)

/* Some rows are made. All the others will be, unless the device fails: the answer may begin. */
static void on_made(struct op *op)
{
    struct shard_work *work = work_of(op);
    struct request *request = work->request;
    if (request->is_partial) {
        request->on_more(request);
    } else if (pull_is_sure(op)) {
        stage_ends(&request->times, STAGE_STORE);
        request->is_partial = true;
        call_answer(work->shard, request, &op->error);
    }
}

/* The peer has the head of an answer that the device has not made to its end. */
static void cut_answer(struct shard_work *work)
{
    struct request *request = work->request;
    work->shard->counters.errors++;
    request->has_answer = false;
    log_event(LOG_ERROR, "answer_cut", "shard=%u why=\"%s\"", work->shard->config.index,
              work->op.error.text);
}

/* The rest of an answer that was begun. */
static void end_partial(struct shard_work *work)
{
    struct request *request = work->request;
    struct stage_times *times = &request->times;
    if (times->weight > 0)
        work->shard->counters.pull_ns += (clock_ns() - work->began_ns) * times->weight;
    if (work->op.error.status != EMBD_OK)
        cut_answer(work);
    request->is_partial = false;
    request->on_more(request);
}

/* The bins that had to be made in advance are made. */
static void on_done(struct op *op)
{
    struct shard_work *work = work_of(op);
    struct counters *counters = &work->shard->counters;
    bool is_ok = op->error.status == EMBD_OK, has_rows = false;
    bool is_whole = pull_is_whole(&work->shard->engine);
    for (uint32_t i = 0; i < op->n_parts && is_ok; i++) {
        struct op_part *part = &op->parts[i];
        counters->keys_pulled += part->in.n_keys;
        if (part->in.into > 0 && part->in.n_rows > 0)
            make_shared(work, i);
        else if (is_whole || part->in.n_rows == 0)
            end_part(work, part);
        has_rows = has_rows || part->table != NULL;
    }
    if (has_rows)
        begin_streaming(work);
    if (work->request->is_partial) {
        end_partial(work);
        return;
    }
    stage_ends_call(&work->request->times, STAGE_STORE, work->began_ns, &counters->pull_ns);
    call_answer(work->shard, work->request, &op->error);
}

static int size_parts(const struct call *call, struct embd__error *e)
{
    struct shard_work *work = call->work;
    uint64_t bytes = 0;
    if (size_rows(work, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < work->op.n_parts; i++) {
        const struct op_part *part = &work->op.parts[i];
        uint64_t row_bytes = embd__wire_row_bytes(part->in.dtype, part->table->schema.s.dim);
        work->rows[i].row_bytes = row_bytes;
        if (check_into(call, i, part->in.n_rows * row_bytes, e) != EMBD_OK)
            return e->status;
        bytes += part->in.n_rows * row_bytes; /* at most 2^12 * 2^22 * 2^14 */
        bytes += part->statuses != NULL ? part->in.n_keys : 0;
    }
    if (bytes > LIMIT_FRAME_BYTES)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "the answer would have %llu bytes, the limit of a frame is %u",
                               (unsigned long long)bytes, LIMIT_FRAME_BYTES);
    return EMBD_OK;
}

/* Rows of i8 and i4 are up to 8 times as long before they are packed. */
static int charge_wide(struct shard_work *work, struct embd__error *e)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->op.n_parts; i++)
        bytes += pull_wide_bytes(&work->op.parts[i]);
    return bytes > 0 ? work_charge_unpacked(work, bytes, "rows", e) : EMBD_OK;
}

/* Memory for all rows, of a store that makes them as a whole. Rows in shared memory are there
 * before their answer. */
static int make_room(struct shard_work *work, struct embd__error *e)
{
    uint64_t sent_bytes = 0;
    bool has_into = false;
    if (charge_wide(work, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < work->op.n_parts; i++) {
        struct op_part *part = &work->op.parts[i];
        struct answer_rows *rows = &work->rows[i];
        uint64_t bytes = part->in.n_rows * rows->row_bytes, wide = pull_wide_bytes(part);
        sent_bytes += bytes;
        has_into |= part->in.into > 0;
        if (bytes == 0)
            continue;
        part->values = rows->values = work->shard->engine.tables.ops->buffer_new(bytes + wide);
        rows->values_bytes = bytes;
        rows->room_bytes = bytes + wide;
        if (rows->values == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu bytes of answer",
                                   (unsigned long long)bytes);
    }
    if (sent_bytes >= EARLY_BYTES && !has_into && work->request->on_more != NULL)
        work->op.made = on_made;
    return EMBD_OK;
}

#define NO_BIN UINT32_MAX /* the answer has no bytes of its rows */

static int write_answer(struct call *call)
{
    struct shard_work *work = call->work;
    struct part_answer *answers = work->shard->answers.pull;
    for (uint32_t i = 0, bin = 0; i < work->op.n_parts; i++) {
        const struct op_part *part = &work->op.parts[i];
        answers[i] = (struct part_answer){
            .n_rows = part->in.n_rows,
            .dim = part->table->schema.s.dim,
            .n_keys = part->in.n_keys,
            .dtype = part->in.dtype,
            .has_status = part->statuses != NULL,
            .values = work->rows[i].values,
            .into = part->in.into,
            .statuses = part->statuses,
        };
        work->rows[i].bin = part->in.into > 0 ? NO_BIN : bin;
        bin += 0u + (part->in.into == 0) + (part->statuses != NULL);
    }
    embd__msg_result(call->answer, call->reader.msgid);
    embd__pull_answer_write(call->answer, answers, work->op.n_parts, shard_told_map(work->shard),
                            call->reader.lag.is_told ? &call->reader.lag : NULL);
    uint64_t bytes = embd__msg_bytes(call->answer);
    if (embd__msg_end(call->answer) == EMBD_OK)
        return EMBD_OK;
    return embd__error_set(&call->error, call->answer->status,
                           "the answer would have %llu bytes, the limit of a frame is %u",
                           (unsigned long long)bytes, LIMIT_FRAME_BYTES);
}

/* A shard that follows nobody is not behind. */
static int check_lag(struct call *call)
{
    if (call->shard->narrow != NULL)
        return narrow_check_pull(call);
    return call->reader.lag.is_told ? following_check_lag(call) : EMBD_OK;
}

int handle_pull(struct call *call)
{
    struct shard_work *work = call->work;
    struct op *op = &work->op;
    struct embd__error *e = &call->error;
    struct stage_times *times = &call->request->times;
    if (decode_parts(call, OP_PULL) != EMBD_OK || size_parts(call, e) != EMBD_OK ||
        check_lag(call) != EMBD_OK)
        return e->status;
    stage_ends(times, STAGE_DECODE);
    if ((pull_is_whole(&call->shard->engine) && make_room(work, e) != EMBD_OK) ||
        write_answer(call) != EMBD_OK)
        return e->status;
    stage_ends(times, STAGE_ENCODE);
    op->done = on_done;
    if (call->shard->engine.tables.n_creating > 0) {
        token_use_bound(op, call->request->session);
        clock_tell(op);
    }
    if (pull_admit(op) != EMBD_OK) {
        *e = op->error;
        return e->status;
    }
    pull_apply(op);
    return CALL_LATER;
}

/* ---- while the answer is sent ---- */

uint64_t shard_made(struct request *request, uint32_t bin)
{
    struct shard_work *work = request->work;
    const struct op *op = &work->op;
    while (work->fill + 1 < op->n_parts && work->rows[work->fill + 1].bin <= bin)
        work->fill++;
    const struct op_part *part = &op->parts[work->fill];
    if (bin == work->rows[work->fill].bin)
        return part->n_made * work->rows[work->fill].row_bytes;
    return part->n_made == part->in.n_rows ? part->in.n_keys : 0;
}

static uint32_t part_of_bin(struct shard_work *work, uint32_t bin)
{
    while (work->rows[work->fill].bin != bin) {
        work->fill++;
        EMBD_ASSERT(work->fill < work->op.n_parts);
    }
    return work->fill;
}

/* Rows that were made before: as a whole, or because the table was to change. */
static size_t copy_values(struct shard_work *work, struct answer_rows *rows, void *out,
                          size_t capacity)
{
    uint64_t left = rows->values_bytes - rows->values_at;
    size_t bytes = left < capacity ? (size_t)left : capacity;
    memcpy(out, rows->values + rows->values_at, bytes);
    rows->values_at += bytes;
    if (rows->values_at == rows->values_bytes)
        work_free_rows(work->shard, rows);
    return bytes;
}

static bool is_streamed(const struct shard_work *work)
{
    for (uint32_t i = work->op.n_parts; i > 0; i--)
        if (work->op.parts[i - 1].table != NULL)
            return false;
    return true;
}

static size_t make_values_now(struct shard_work *work, uint32_t i, void *out, size_t capacity)
{
    const struct answer_rows *rows = &work->rows[i];
    uint32_t left = work->op.parts[i].in.n_rows - rows->n_made;
    uint64_t fits = capacity / rows->row_bytes;
    uint32_t count = fits < left ? (uint32_t)fits : left;
    EMBD_ASSERT(count > 0);
    pull_make_rows(work, i, out, count);
    if (work->op.parts[i].table == NULL && work->is_streaming && is_streamed(work))
        pull_end_streaming(work);
    return count * rows->row_bytes;
}

size_t shard_fill(struct shard *shard, struct request *request, uint32_t bin, void *out,
                  size_t capacity)
{
    struct shard_work *work = request->work;
    EMBD_ASSERT(work != NULL && request->state == REQUEST_ANSWERED && (uintptr_t)out % 8 == 0);
    uint32_t i = part_of_bin(work, bin);
    struct stage_times *times = &request->times;
    uint64_t began_ns = times->weight > 0 ? clock_ns() : 0;
    work->is_begun = true;
    size_t bytes = work->rows[i].values != NULL ? copy_values(work, &work->rows[i], out, capacity)
                                                : make_values_now(work, i, out, capacity);
    if (times->weight == 0)
        return bytes;
    uint64_t took_ns = clock_ns() - began_ns;
    times->ns[STAGE_STORE] += took_ns;
    times->made_ns += took_ns;
    shard->counters.pull_ns += took_ns * times->weight;
    return bytes;
}

size_t shard_fill_bytes(const struct shard *shard)
{
    const struct store_caps *caps = &shard->engine.tables.ops->caps;
    uint64_t bytes = caps->pull_bytes;
    if (caps->is_async || bytes < LIMIT_FILL_BYTES)
        return LIMIT_FILL_BYTES;
    return bytes < LIMIT_FRAME_BYTES ? (size_t)bytes : LIMIT_FRAME_BYTES;
}
