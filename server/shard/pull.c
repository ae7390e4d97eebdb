/* pull.c - answering pulls.
 *
 * The happy path is: check all parts; write the head of the answer, its bins still empty; create
 * rows where the table says that pulls do; hand the answer to net, which has shard_fill make the
 * rows chunk by chunk, straight into what the socket takes. A store that has to compute a request
 * as a whole does so before the answer.
 *
 * What can fail: the checks, an answer beyond the frame limit, and no room for a row to be created.
 * All of that comes before the first change. */
#include "server/shard/pull.h"
#include "proto/assert.h"

#include <string.h>

#include "proto/dtype.h"
#include "server/shard/insert.h"
#include "server/shard/settle.h"
#include "server/shard/state.h"

static bool is_whole(const struct shard_work *work)
{
    return work->shard->tables.ops->pull_bytes == UINT64_MAX;
}

bool pull_creates(struct call *call)
{
    int n = embd__parts_read(&call->reader, call->shard->parts, LIMIT_PARTS, PARTS_PULL);
    for (int i = 0; i < n; i++) {
        const struct part *part = &call->shard->parts[i];
        const struct table *table = tables_by_id(&call->shard->tables, part->table);
        if (table != NULL && table->schema.s.create_on == EMBD_CREATE_ON_PULL &&
            !part->zero_missing)
            return true;
    }
    return false;
}

/* ---- making rows ---- */

/* A part's rows are all made: its table may go. */
static void finish_part(struct shard_work *work, struct work_part *part)
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

/* Rows [n_made, n_made + count) of the part as a call to the store. */
static void set_pull(struct store_pull *pull, const struct work_part *part, void *out,
                     uint32_t count)
{
    *pull = (struct store_pull){
        .in = pull_keys(&part->in),
        .dtype = part->in.dtype,
        .zero_missing = part->in.zero_missing,
        .scale = part->in.scale,
        .first = part->n_made,
        .count = count,
        .values = out,
        .statuses = insert_is_of(part) ? NULL : part->statuses, /* those of the insert stand */
    };
}

/* A call that returns before it comes back. */
struct making {
    struct store_done done; /* first */
    struct store_pull pull;
    bool is_made;
};

static void on_made(struct store_done *done, int status)
{
    struct making *making = (struct making *)(void *)done;
    EMBD_ASSERT(status == EMBD_OK);
    making->is_made = true;
}

void pull_make(struct shard_work *work, struct work_part *part, void *out, uint32_t count)
{
    struct making making;
    set_pull(&making.pull, part, out, count);
    making.done.fn = on_made;
    making.done.error.status = EMBD_OK;
    making.is_made = false;
    work->shard->tables.ops->pull(part->table->store, &making.pull, &making.done);
    EMBD_ASSERT(making.is_made);
    part->n_made += count;
    if (part->n_made == part->in.n_rows)
        finish_part(work, part);
}

/* ---- before the answer: inserts, and pulls of stores that answer as a whole ---- */

static void on_inserted(struct store_done *done, int status)
{
    struct work_call *call = (struct work_call *)(void *)done;
    struct shard_work *work = call->work;
    struct counters *counters = &work->shard->counters;
    const struct store_insert *insert = &call->as.insert;
    if (status == EMBD_OK) {
        if (call->part->n_joined > 1 && insert->statuses != NULL)
            insert_tell(work, call->part);
        counters->keys_inserted += insert->n_inserted;
        counters->keys_full += insert->n_full;
        counters->keys_filtered += insert->n_filtered;
        counters->keys_evicted += insert->n_evicted;
    }
    work_returned(call, status);
}

static void insert_rows(struct shard_work *work, struct work_part *part)
{
    struct work_call *call = work_call_new(work, part, on_inserted);
    call->as.insert = (struct store_insert){.in = part->inserted,
                                            .statuses = part->inserted_statuses,
                                            .is_prepared = work->is_prepared};
    work->shard->tables.ops->insert(call->store, &call->as.insert, &call->done);
}

static void on_pulled(struct store_done *done, int status)
{
    struct work_call *call = (struct work_call *)(void *)done;
    call->part->n_made = call->part->in.n_rows;
    if (status == EMBD_OK)
        finish_part(call->work, call->part);
    work_returned(call, status);
}

static void pull_whole(struct shard_work *work, struct work_part *part)
{
    struct work_call *call = work_call_new(work, part, on_pulled);
    set_pull(&call->as.pull, part, part->values, part->in.n_rows);
    work->shard->tables.ops->pull(call->store, &call->as.pull, &call->done);
}

/* work->at counts the inserts of all parts, then their pulls. */
static bool next_call(struct shard_work *work)
{
    while (work->at < 2 * work->n_parts) {
        bool is_insert = work->at < work->n_parts;
        struct work_part *part = &work->parts[work->at++ % work->n_parts];
        if (is_insert && part->n_joined > 0) {
            insert_rows(work, part);
            return true;
        }
        if (!is_insert && is_whole(work) && part->in.n_rows > 0) {
            pull_whole(work, part);
            return true;
        }
    }
    return false;
}

static void end_pull(struct shard_work *work)
{
    struct counters *counters = &work->shard->counters;
    bool is_ok = work->error.status == EMBD_OK, has_rows = false;
    for (uint32_t i = 0; i < work->n_parts && is_ok; i++) {
        struct work_part *part = &work->parts[i];
        counters->keys_pulled += part->in.n_keys;
        if (part->table != NULL && part->n_made == part->in.n_rows)
            finish_part(work, part);
        has_rows = has_rows || part->table != NULL;
    }
    if (has_rows)
        settle_watch(work);
    stage_ends_call(&work->request->times, STAGE_STORE, work->began_ns, &counters->pull_ns);
    call_answer(work->shard, work->request, &work->error);
}

/* ---- the answer's head ---- */

static int size_parts(struct shard_work *work, struct embd__error *e)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->n_parts; i++) {
        struct work_part *part = &work->parts[i];
        part->row_bytes = part->table->schema.s.dim * embd__dtype_bytes(part->in.dtype);
        bytes += part->in.n_rows * part->row_bytes; /* at most 64 * 2^22 * 2^14 */
        bytes += part->statuses != NULL ? part->in.n_keys : 0;
    }
    if (bytes > LIMIT_FRAME_BYTES)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "the answer would have %llu bytes, the limit of a frame is %u",
                               (unsigned long long)bytes, LIMIT_FRAME_BYTES);
    return EMBD_OK;
}

static int make_values(struct shard_work *work, struct embd__error *e)
{
    for (uint32_t i = 0; i < work->n_parts; i++) {
        struct work_part *part = &work->parts[i];
        uint64_t bytes = part->in.n_rows * part->row_bytes;
        if (bytes == 0)
            continue;
        part->values = work->shard->tables.ops->buffer_new(bytes);
        part->values_bytes = bytes;
        if (part->values == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu bytes of answer",
                                   (unsigned long long)bytes);
    }
    return EMBD_OK;
}

static int write_answer(struct call *call)
{
    struct shard_work *work = call->work;
    struct part_answer answers[LIMIT_PARTS];
    for (uint32_t i = 0, bin = 0; i < work->n_parts; i++) {
        struct work_part *part = &work->parts[i];
        answers[i] = (struct part_answer){
            .n_rows = part->in.n_rows,
            .dim = part->table->schema.s.dim,
            .n_keys = part->in.n_keys,
            .dtype = part->in.dtype,
            .has_status = part->statuses != NULL,
            .values = part->values,
            .statuses = part->statuses,
        };
        part->bin = bin;
        bin += part->statuses != NULL ? 2 : 1;
    }
    embd__msg_result(call->answer, call->reader.msgid);
    embd__pull_answer_write(call->answer, answers, work->n_parts, shard_told_map(work->shard));
    uint64_t bytes = embd__msg_bytes(call->answer);
    if (embd__msg_end(call->answer) == EMBD_OK)
        return EMBD_OK;
    return embd__error_set(&call->error, call->answer->status,
                           "the answer would have %llu bytes, the limit of a frame is %u",
                           (unsigned long long)bytes, LIMIT_FRAME_BYTES);
}

/* Rows that come may take the places of others. */
static enum change change_of(const struct table *table)
{
    return embd__schema_use_floats(&table->schema.s) > 0 ? CHANGE_ROWS : CHANGE_INSERTS;
}

static int settle_inserts(struct call *call)
{
    struct shard_work *work = call->work;
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (insert_is_of(&work->parts[i]) &&
            settle(call->shard, call->request->session, work->parts[i].table,
                   change_of(work->parts[i].table), &call->error) != EMBD_OK)
            return call->error.status;
    return EMBD_OK;
}

static int prepare(struct call *call)
{
    struct shard_work *work = call->work;
    struct embd__error *e = &call->error;
    struct stage_times *times = &call->request->times;
    if (call_read_parts(call, PARTS_PULL) != EMBD_OK || size_parts(work, e) != EMBD_OK)
        return e->status;
    stage_ends(times, STAGE_DECODE);
    if (is_whole(work) && make_values(work, e) != EMBD_OK)
        return e->status;
    if (write_answer(call) != EMBD_OK)
        return e->status;
    stage_ends(times, STAGE_ENCODE);
    if (insert_prepare(work, e) != EMBD_OK)
        return e->status;
    return settle_inserts(call);
}

int handle_pull(struct call *call)
{
    if (prepare(call) != EMBD_OK)
        return call->error.status;
    call->work->next_call = next_call;
    call->work->end = end_pull;
    work_run(call->work);
    return CALL_LATER;
}

/* ---- while the answer is sent ---- */

static struct work_part *part_of_bin(struct shard_work *work, uint32_t bin)
{
    while (work->parts[work->fill].bin != bin) {
        work->fill++;
        EMBD_ASSERT(work->fill < work->n_parts);
    }
    return &work->parts[work->fill];
}

/* Rows that were made before: by settle, for an answer half sent. */
static size_t copy_values(struct shard_work *work, struct work_part *part, void *out,
                          size_t capacity)
{
    uint64_t left = part->values_bytes - part->values_at;
    size_t bytes = left < capacity ? (size_t)left : capacity;
    memcpy(out, part->values + part->values_at, bytes);
    part->values_at += bytes;
    if (part->values_at == part->values_bytes)
        settle_free(work->shard, part);
    return bytes;
}

static bool is_streamed(const struct shard_work *work)
{
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].table != NULL)
            return false;
    return true;
}

static size_t make_values_now(struct shard_work *work, struct work_part *part, void *out,
                              size_t capacity)
{
    uint32_t left = part->in.n_rows - part->n_made;
    uint64_t fits = capacity / part->row_bytes;
    uint32_t count = fits < left ? (uint32_t)fits : left;
    EMBD_ASSERT(count > 0);
    pull_make(work, part, out, count);
    if (part->table == NULL && is_streamed(work))
        settle_forget(work);
    return count * part->row_bytes;
}

size_t shard_fill(struct shard *shard, struct request *request, uint32_t bin, void *out,
                  size_t capacity)
{
    struct shard_work *work = request->work;
    struct work_part *part = part_of_bin(work, bin);
    struct stage_times *times = &request->times;
    uint64_t began_ns = times->weight > 0 ? clock_ns() : 0;
    work->is_begun = true;
    size_t bytes = part->values != NULL ? copy_values(work, part, out, capacity)
                                        : make_values_now(work, part, out, capacity);
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
    uint64_t bytes = shard->tables.ops->pull_bytes;
    if (bytes == UINT64_MAX || bytes < LIMIT_FILL_BYTES)
        return LIMIT_FILL_BYTES;
    return bytes < LIMIT_FRAME_BYTES ? (size_t)bytes : LIMIT_FRAME_BYTES;
}
