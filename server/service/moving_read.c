/* moving_read.c - the rows that leave a shard, for the coordinator that asks for them.
 *
 * The happy path: a request is answered with a block of one table, which is read in slices, between
 * two of which others are served; the round's last answer says that it is the last one. Under a
 * hold there is nobody to be served, and a block is read at once. What can fail: the table is not
 * to be frozen now (`waits`), tables came or went, there is no memory for a block. */

#include "server/engine/block.h"
#include "server/service/moving.h"
#include "server/service/state.h"
#include "server/store/optimizer.h"

#define READ_BYTES  (512u << 10) /* of a block */
#define READ_NS     600000u      /* of work for one, in slices of */
#define SLICE_NS    40000u       /* so much in the first round: others wait as long. Each further */
#define SLICES_MOST 8u           /* round has slices longer by that, up to so many times */
#define PART_BYTES  (8u << 10)   /* of rows that are looked at together: some 10 us */
#define HELD_BYTES  (4u << 20)   /* the same where pushes wait for it: a larger one is loaded */
#define HELD_NS     2000000u     /* sooner than several */
#define ASYNC_NS    100000u      /* the same on a device, which has no slices, */
#define ASYNC_BYTES (32u << 10)  /* and whose parts cost a round trip each */

static uint32_t count(const struct store_scan *scan)
{
    return scan->n_rows + scan->n_candidates;
}

static bool is_gone(const struct store_scan *scan)
{
    return scan->n_rows == 0 && scan->n_candidates > 0 && scan->candidate_counts[0] == 0;
}

static bool is_async(const struct shard *shard)
{
    return shard->engine.tables.ops->caps.is_async;
}

static uint32_t rows_in(const embd_schema *schema, uint32_t bytes)
{
    uint32_t n = block_rows_in(schema, bytes);
    return n + (n == 0);
}

/* Rounds become shorter as long as rows are read faster than trainers change them, so each one gets
 * more of the thread than the one before. */
static uint64_t slice_ns(const struct moving *moving)
{
    uint64_t n = moving->round < SLICES_MOST ? moving->round : SLICES_MOST;
    return SLICE_NS * (n > 0 ? n : 1);
}

/* ---- a block ---- */

/* Whether the block has rows of a cut that the table has no more: a key may be in the next one
 * too. */
static bool is_of_earlier(const struct moving_read *read, const struct subscriber *s)
{
    return count(&read->scan) > 0 && s->made != read->cut;
}

static int make_block(struct shard_work *work, const embd_schema *schema, uint32_t max_rows,
                      struct moving_read *read, struct embd__error *e)
{
    if (work->memory == NULL)
        work->memory = block_new(schema, max_rows, &read->scan);
    if (work->memory == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to read %u rows", max_rows);
    return e->status;
}

static int scan_next(struct shard *shard, struct table *table, struct moving_read *read,
                     struct embd__error *e)
{
    const struct request *request = read->request;
    const embd_schema *schema = &table->schema.s;
    uint32_t max_rows = rows_in(schema, read->is_final ? HELD_BYTES : READ_BYTES);
    uint32_t part_rows = rows_in(schema, is_async(shard) ? ASYNC_BYTES : PART_BYTES);
    struct embd__error full = {.status = EMBD_OK};
    struct subscriber *s = moving_subscriber(shard, request->session, table, &full);
    read->waits = s == NULL; /* until earlier ones have gone */
    read->is_full = s != NULL && is_of_earlier(read, s);
    if (read->waits || read->is_full)
        return EMBD_OK;
    if (make_block(request->work, schema, max_rows, read, e) != EMBD_OK)
        return e->status;
    read->table = table;
    shard->moving.round = s->round;
    struct store_scan part = moving_behind(schema, &read->scan);
    uint32_t room = max_rows - count(&read->scan);
    read->waits = !moving_scan(shard, s, table, part_rows < room ? part_rows : room, &part, e);
    if (read->waits)
        return e->status;
    moving_keep_foreign(shard, table, &shard->moving.next, &part);
    if (!read->is_final && !is_gone(&part))
        part.n_candidates = 0;
    read->cut = s->given;
    read->scan.n_rows += part.n_rows;
    read->scan.n_candidates += part.n_candidates;
    bool is_last = shard->moving.is_read && count(&read->scan) > 0; /* no rows come with `done` */
    read->is_full = is_last || is_gone(&part) || count(&read->scan) > max_rows / 2;
    return EMBD_OK;
}

/* Every push changes all rows of such a table, also those that came too early: they leave with the
 * last round alone. */
static struct table *next_table(struct shard *shard, bool is_final)
{
    struct table *table = shard->moving.loses ? moving_table(shard) : NULL;
    while (table != NULL && !is_final && optimizer_is_global(&table->schema.s.optimizer)) {
        shard->moving.is_read = true;
        table = moving_table(shard);
    }
    return table;
}

/* The next part of the block's table, of which little may leave. False: the block is to be answered
 * as it is. */
static bool read_part(struct shard *shard, struct moving_read *read, struct embd__error *e)
{
    struct table *table = next_table(shard, read->is_final);
    read->is_done = table == NULL;
    if (table == NULL || (read->table != NULL && read->table != table))
        return false;
    return scan_next(shard, table, read, e) == EMBD_OK && !read->waits && !read->is_full;
}

/* Parts for so much work. False: it is to be answered. */
static bool read_slice(struct shard *shard, struct moving_read *read, uint64_t most_ns,
                       struct embd__error *e)
{
    uint64_t began_ns = clock_work_ns(shard), ns;
    bool has_more;
    do {
        has_more = read_part(shard, read, e);
        ns = clock_work_ns(shard) - began_ns;
    } while (has_more && ns < most_ns);
    read->work_ns += ns;
    return has_more;
}

/* ---- its answer ---- */

static void write_block(const struct moving_read *read, struct msg *m)
{
    uint32_t n = count(&read->scan);
    embd__msg_result(m, read->request->frame->msgid);
    embd__msg_map(m, 4u + 4u * (n > 0));
    embd__msg_field_bool(m, "waits", read->waits && n == 0);
    embd__msg_field_bool(m, "done", read->is_done);
    embd__msg_field_uint(m, "rows", read->scan.n_rows);
    embd__msg_field_uint(m, "candidates", read->scan.n_candidates);
    if (n == 0)
        return;
    const embd_schema *schema = &read->table->schema.s;
    const struct row_block rows = block_of(&read->scan);
    embd__msg_field_str(m, "table", schema->name);
    embd__msg_field_uint(m, "partition", schema->partition);
    embd__msg_field_uint(m, "row_bytes", embd__value_bytes(schema->dtype, schema->dim));
    embd__msg_field_uint(m, "state_bytes", embd__schema_state_floats(schema) * sizeof(float));
    embd__row_block_write(m, schema, &rows);
}

static int check_tables(const struct shard *shard, struct embd__error *e)
{
    if (moving_lost_tables(shard))
        embd__error_set(e, EMBD_BUSY,
                        "move: tables were created, dropped or replaced while keys were moved; "
                        "try again");
    return e->status;
}

int moving_read(struct call *call, bool is_final)
{
    struct shard *shard = call->shard;
    struct moving_read *read = &shard->moving.read;
    bool has_slices = !is_final && !is_async(shard);
    uint64_t most_ns = has_slices ? slice_ns(&shard->moving) : is_final ? HELD_NS : ASYNC_NS;
    if (check_tables(shard, &call->error) != EMBD_OK)
        return call->error.status;
    if (read->request != NULL)
        return embd__error_set(&call->error, EMBD_BUSY, "move: rows are being read already");
    *read = (struct moving_read){.request = call->request, .is_final = is_final};
    bool has_more = read_slice(shard, read, most_ns, &call->error);
    if (has_more && call->error.status == EMBD_OK && has_slices)
        return CALL_LATER;
    if (call->error.status == EMBD_OK)
        write_block(read, call->answer);
    read->request = NULL;
    return call->error.status;
}

static void answer(struct shard *shard, struct embd__error *e)
{
    struct moving_read *read = &shard->moving.read;
    struct request *request = read->request;
    if (e->status == EMBD_OK) {
        write_block(read, &request->answer);
        embd__msg_end(&request->answer);
    }
    read->request = NULL;
    call_answer(shard, request, e);
}

bool moving_read_go_on(struct shard *shard)
{
    struct moving_read *read = &shard->moving.read;
    struct embd__error e = {.status = EMBD_OK};
    if (read->request == NULL)
        return false;
    if (check_tables(shard, &e) != EMBD_OK ||
        !read_slice(shard, read, slice_ns(&shard->moving), &e) || read->work_ns >= READ_NS)
        answer(shard, &e);
    return true;
}

void moving_read_forget(struct shard *shard, const struct request *request)
{
    if (shard->moving.read.request == request)
        shard->moving.read.request = NULL;
}
