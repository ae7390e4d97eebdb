/* messages.c - shares become messages. A pull or erase may be sliced anywhere between rows: a
 * message is filled until a limit of it or of its answer would be passed, then the next one begins.
 * A message of several parts has them as columns, if the server takes those. A push is one
 * optimizer step: the parts of a shard go in one message, which may be longer than others, or not
 * at all. Shards without keys get a message too, to keep the step counters equal. All have one
 * order, by which servers find out that they belong together. They have one msgid too, which is
 * the order to servers of earlier versions.
 *
 * A call's messages are kept, with their buffers, for the calls after it. */
#include "client/call/call.h"

#include <stdlib.h>
#include <string.h>

#include "client/core/clocks.h"
#include "proto/assert.h"
#include "proto/part_check.h"

#define HEAD_BYTES_MAX (64u << 10) /* kept free of the frame limit for what is not bins */
/* More of it for each part, where there may be many: its record and the ends of its arrays, or its
 * map in the answer. */
#define PART_BYTES_MAX 128u
/* Of the frame limit for each part there may be: most of it is left for keys and rows. */
#define SLICE_FRAME_BYTES 512u
/* Parts of a pull in one message, as maps: the most bytes that a part's map and the headers of its
 * bins can have, so often that LIMIT_HEADER_BYTES holds. */
#define PULL_PART_HEAD_BYTES 104u
#define PULL_PARTS           ((LIMIT_HEADER_BYTES - 64u) / PULL_PART_HEAD_BYTES)

#define LINE_BYTES     64u
#define MESSAGES_AHEAD 2u
#define ASKED_BYTES    448u /* of a message behind its exchange: up to the end of a short head */

#define PUSH_LESS   "push fewer samples or tables at once"
#define RAISE_LIMIT PUSH_LESS ", or raise the server's push_limit"

/* The room left in a message and its answer. */
struct room {
    uint64_t keys, rows, up_bytes, down_bytes;
};

struct builder {
    struct embd_call *call;
    uint32_t shard;
    struct message *message; /* NULL: the next slice begins one */
    struct room room;
    struct part *parts; /* [parts_capacity] of the message */
    uint32_t parts_capacity;
    union part_result *answers; /* [answers_capacity] of all: they are read one after the other */
    uint32_t answers_capacity;
};

static const struct {
    enum method method;
    enum exchange_kind exchange;
} kinds[] = {
    [PARTS_PULL] = {METHOD_PULL, EXCHANGE_PULL},
    [PARTS_PUSH] = {METHOD_PUSH, EXCHANGE_PUSH},
    [PARTS_ERASE] = {METHOD_ERASE, EXCHANGE_OTHER},
};

/* ---- messages ---- */

static bool grow_lists(struct embd_call *call)
{
    uint32_t capacity = call->messages_capacity == 0 ? 4 : call->messages_capacity * 2;
    struct message **messages = realloc(call->messages, capacity * sizeof *messages);
    if (messages != NULL)
        call->messages = messages;
    struct exchange **exchanges = realloc(call->exchanges, capacity * sizeof *exchanges);
    if (exchanges != NULL)
        call->exchanges = exchanges;
    if (messages == NULL || exchanges == NULL)
        return false;
    call->messages_capacity = capacity;
    return true;
}

static struct message *make_message(struct embd_call *call)
{
    if (call->messages_made == call->messages_capacity && !grow_lists(call))
        return NULL;
    struct message *message = embd__pool_take(&call->client->messages);
    if (message == NULL)
        return NULL;
    message->call = call;
    message->x = (struct exchange){.owner = &call->job,
                                   .on_bin = embd__message_on_bin,
                                   .on_units = embd__message_on_units,
                                   .on_end = embd__job_on_end};
    embd__msg_init(&message->x.msg);
    embd__msg_lend(&message->x.msg, message->first_head, MESSAGE_HEAD_BYTES, message->first_bins,
                   MESSAGE_BINS);
    call->messages[call->messages_made] = message;
    call->exchanges[call->messages_made++] = &message->x;
    return message;
}

/* The cluster is there if it does not answer. */
static void ask_replica(struct embd_call *call, struct exchange *x, uint32_t shard)
{
    uint32_t ms = x->deadline_ms < REPLICA_DEADLINE_MS ? x->deadline_ms : REPLICA_DEADLINE_MS;
    call->deadline_ns = x->deadline_ns;
    x->link = embd__replica_link(call->client, call->replica, shard);
    x->fail_fast = true;
    x->deadline_ns -= (uint64_t)(x->deadline_ms - ms) * 1000000;
    x->deadline_ms = ms;
}

/* It will be built: with many shards it is in no near cache. */
static void ask_for(const struct message *message)
{
    const uint8_t *x = (const uint8_t *)&message->x, *rest = (const uint8_t *)&message->call;
    for (size_t at = 0; at < offsetof(struct exchange, error) + LINE_BYTES; at += LINE_BYTES)
        __builtin_prefetch(x + at, 1);
    for (size_t at = 0; at < ASKED_BYTES; at += LINE_BYTES)
        __builtin_prefetch(rest + at, 1);
    __builtin_prefetch(&message->x.state, 1);
}

/* An answer to a push says the step of its table, so it is like others to the same push alone; and
 * with few shards like none of them, since each has another number of keys. */
static bool may_be_known(const struct embd_call *call)
{
    return call->kind != PARTS_PUSH || call->client->n_shards >= KNOWN_PUSH_SHARDS;
}

/* A push of a round that the server knows again, by its order: a step's record names so many
 * pushes. */
static bool is_of_round(const struct embd_call *call, const struct link *link)
{
    return call->kind == PARTS_PUSH && call->extra.round.n_workers > 0 &&
           call->extra.round.n_workers <= PUSH_SOURCES_MAX && call->extra.order > 0 &&
           embd__link_terms(link)->takes_rounds_again;
}

struct message *embd__message_begin(struct embd_call *call, uint32_t shard)
{
    struct message *message = call->n_messages < call->messages_made
                                  ? call->messages[call->n_messages]
                                  : make_message(call);
    if (message == NULL) {
        embd__call_no_memory(call);
        return NULL;
    }
    if (call->n_messages + MESSAGES_AHEAD < call->messages_made)
        ask_for(call->messages[call->n_messages + MESSAGES_AHEAD]);
    if (call->n_messages == 0)
        call->begun_ns = uv_hrtime();
    embd__client_begin_at(call->client, &message->x, call->deadline_ms, call->begun_ns);
    message->x.link = call->client->shards[shard].link;
    if (call->replica > 0)
        ask_replica(call, &message->x, shard);
    message->x.kind = kinds[call->kind].exchange;
    message->x.on_answer = embd__message_on_answer;
    bool may_know = may_be_known(call);
    message->x.knows = may_know ? embd__message_knows : NULL;
    message->x.take_known = may_know ? embd__message_take_known : NULL;
    message->x.has_effect = call->kind == PARTS_PUSH && call->extra.number.sequence > 0;
    message->x.is_of_round = is_of_round(call, message->x.link);
    message->x.may_repeat =
        call->kind == PARTS_PULL || message->x.has_effect || message->x.is_of_round;
    message->x.waits_refused = call->kind == PARTS_ERASE;
    message->shard = shard;
    message->has_columns = false;
    message->n_slices = 0;
    message->n_bins = 0;
    return message;
}

/* Of a message that carries gradients, or of any other. */
static uint64_t bytes_up(const struct embd_call *call, const struct link_terms *terms)
{
    return call->kind == PARTS_PUSH ? terms->push_bytes : terms->frame_bytes;
}

/* Parts that a message to the server may have. */
static uint32_t most_slices(const struct embd_call *call, const struct message *message)
{
    uint64_t frame_bytes = embd__link_terms(message->x.link)->frame_bytes;
    if (!message->may_have_columns)
        return call->kind == PARTS_PUSH ? LIMIT_PART_MAPS : PULL_PARTS;
    return frame_bytes / SLICE_FRAME_BYTES < LIMIT_PARTS
               ? (uint32_t)(frame_bytes / SLICE_FRAME_BYTES)
               : LIMIT_PARTS;
}

/* Room for slices and for what is answered about them: also for answers with too many. */
static bool make_room(struct builder *b, struct message *message)
{
    struct embd_call *call = b->call;
    uint32_t most = most_slices(call, message), n = call->n_works < most ? call->n_works : most;
    message->capacity = n;
    uint32_t n_answers = n > LIMIT_PART_MAPS ? n : LIMIT_PART_MAPS;
    message->slices = embd__arena_array(&call->arena, n, sizeof *message->slices);
    message->bins = embd__arena_array(&call->arena, 2 * (uint64_t)n, sizeof *message->bins);
    if (n_answers > b->answers_capacity) {
        b->answers = embd__arena_array(&call->arena, n_answers, sizeof *b->answers);
        b->answers_capacity = n_answers;
    }
    message->answers = b->answers;
    message->answers_capacity = b->answers_capacity;
    return message->slices != NULL && message->bins != NULL && message->answers != NULL;
}

static bool make_parts(struct builder *b, uint32_t n)
{
    if (n <= b->parts_capacity)
        return true;
    b->parts = embd__arena_array(&b->call->arena, n, sizeof *b->parts);
    b->parts_capacity = b->parts != NULL ? n : 0;
    return b->parts != NULL;
}

static int begin_message(struct builder *b)
{
    struct embd_call *call = b->call;
    if (call->again != NULL)
        call->extra.number = call->again[b->shard];
    else if (call->own != NULL)
        call->extra.number = embd__numbering_next(&call->client->numbering, &call->own[b->shard]);
    b->message = embd__message_begin(call, b->shard);
    if (b->message == NULL)
        return call->client->error.status;
    const struct link_terms *terms = embd__link_terms(b->message->x.link);
    b->message->may_have_columns = terms->takes_columns;
    if (!make_room(b, b->message) || !make_parts(b, b->message->capacity))
        return embd__call_no_memory(call);
    uint64_t kept_free = HEAD_BYTES_MAX + (b->message->capacity > LIMIT_PART_MAPS
                                               ? b->message->capacity * (uint64_t)PART_BYTES_MAX
                                               : 0);
    if (call->kind == PARTS_PUSH && call->n_messages > call->n_openings)
        b->message->x.msgid = call->messages[call->n_openings]->x.msgid;
    b->message->stream = (uint32_t)call->extra.number.stream;
    b->message->sequence = call->own != NULL ? call->extra.number.sequence : 0;
    b->room = (struct room){terms->keys, LIMIT_ROWS, bytes_up(call, terms) - kept_free,
                            terms->frame_bytes - kept_free};
    return EMBD_OK;
}

static int end_message(struct builder *b)
{
    struct message *message = b->message;
    struct embd_call *call = b->call;
    b->message = NULL;
    if (message == NULL)
        return EMBD_OK;
    if (call->kind == PARTS_PUSH &&
        embd__push_check_keys(&call->client->error, b->parts, message->n_slices) != EMBD_OK)
        return call->client->error.status;
    embd__msg_request(&message->x.msg, message->x.msgid, kinds[call->kind].method);
    embd__lent_name(call, message);
    if (call->extra.round.n_workers > 0)
        call->extra.round.epoch = call->member->heartbeats[b->shard].epoch;
    const struct part_list list = {b->parts, sizeof *b->parts, message->n_slices};
    const struct push_extra split = {.placement = call->placement,
                                     .asks_lag = call->replica > 0,
                                     .max_behind_ms = call->client->options.max_behind_ms};
    call->extra.placement = call->placement;
    message->has_columns = message->may_have_columns && message->n_slices > 1;
    if (message->has_columns)
        embd__columns_write(&message->x.msg, &list, call->kind,
                            call->kind == PARTS_PUSH ? &call->extra : &split);
    else if (call->kind == PARTS_PUSH)
        embd__push_write(&message->x.msg, b->parts, message->n_slices, &call->extra);
    else
        embd__parts_write_split(&message->x.msg, b->parts, message->n_slices, call->kind, &split);
    message->x.is_shared |= message->x.msg.names_shared;
    int status = embd__msg_end(&message->x.msg);
    if (status != EMBD_OK)
        return embd__error_set(&call->client->error, status, "a message of %u parts: %s",
                               message->n_slices, embd_status_text(status));
    if (message->x.msg.head_bytes > LIMIT_HEADER_BYTES)
        return embd__error_set(
            &call->client->error, EMBD_TOO_LARGE,
            "a message of %u parts has a header of %u bytes, the limit is %u: push fewer tables "
            "at once",
            message->n_slices, message->x.msg.head_bytes, LIMIT_HEADER_BYTES);
    call->n_messages++;
    return EMBD_OK;
}

/* ---- slices ---- */

static uint32_t key_at(const struct share *share, uint32_t row)
{
    return share->offsets == NULL ? row : share->offsets[row];
}

/* Bytes that a row of gradients counts: i8 and i4 become f32 in the server. */
static uint64_t wide_bytes(const struct embd_call *call, const struct work *work)
{
    return embd__is_packed(call->wire) && work->row_bytes < work->dim * sizeof(float)
               ? work->dim * sizeof(float)
               : work->row_bytes;
}

static struct room room_of(const struct embd_call *call, const struct work *work,
                           const struct share *share, uint32_t first, uint32_t end)
{
    uint64_t rows = end - first, keys = key_at(share, end) - key_at(share, first);
    uint64_t values = call->kind == PARTS_ERASE ? 0 : rows * work->row_bytes,
             statuses = share->statuses != NULL ? keys : 0;
    uint64_t up = 8 * keys + (share->offsets != NULL ? 4 * (rows + 1) : 0) +
                  (share->slots != NULL ? 2 * rows : 0) + (share->weights != NULL ? 4 * keys : 0) +
                  (share->scores != NULL ? 4 * keys : 0);
    if (call->kind == PARTS_PUSH)
        return (struct room){keys, rows, up + rows * wide_bytes(call, work), statuses};
    return (struct room){keys, rows, up, values + statuses};
}

static bool fits(const struct room *need, const struct room *room)
{
    return need->keys <= room->keys && need->rows <= room->rows &&
           need->up_bytes <= room->up_bytes && need->down_bytes <= room->down_bytes;
}

/* The last row that still fits, by bisection: need never falls with more rows. Returns `first` for
 * none. */
static uint32_t end_that_fits(const struct builder *b, const struct work *work,
                              const struct share *share, uint32_t first)
{
    uint32_t low = first, high = share->n_rows;
    struct room all = room_of(b->call, work, share, first, high);
    if (fits(&all, &b->room))
        return high;
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        struct room need = room_of(b->call, work, share, first, middle);
        if (fits(&need, &b->room))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Offsets that begin at 0 again. */
static const uint32_t *slice_offsets(struct embd_call *call, const struct share *share,
                                     uint32_t first, uint32_t n)
{
    if (first == 0 || share->offsets == NULL)
        return share->offsets;
    uint32_t *offsets = embd__arena_array(&call->arena, (uint64_t)n + 1, sizeof *offsets);
    for (uint32_t i = 0; i <= n && offsets != NULL; i++)
        offsets[i] = share->offsets[first + i] - share->offsets[first];
    return offsets;
}

static void expect(struct message *message, void *to, uint64_t bytes)
{
    EMBD_ASSERT(message->n_bins < 2 * message->capacity);
    message->bins[message->n_bins++] = (struct answer_bin){.to = to, .bytes = bytes};
    message->x.answer_bytes += bytes;
}

/* The rows of the newest slice. */
static void expect_rows(struct message *message, const struct work *work, const struct share *share,
                        uint32_t first, uint32_t n)
{
    uint64_t bytes = n * work->row_bytes;
    expect(message, share->values + (work->is_placed ? 0 : first * work->row_bytes), bytes);
    message->bins[message->n_bins - 1].unit = work->is_placed ? (uint32_t)work->row_bytes : 0;
    message->bins[message->n_bins - 1].slice = message->n_slices - 1;
}

/* Rows first .. end of a share go into the message. */
static int add_slice(struct builder *b, uint32_t w, uint32_t first, uint32_t end)
{
    struct embd_call *call = b->call;
    const struct work *work = &call->works[w];
    const struct share *share = &work->shares[b->shard];
    struct room need = room_of(call, work, share, first, end);
    uint32_t key = key_at(share, first), n_rows = end - first, n_keys = (uint32_t)need.keys;
    bool has_status = share->statuses != NULL && n_keys > 0;
    EMBD_ASSERT(b->message->n_slices < b->message->capacity && first <= end &&
                end <= share->n_rows);
    struct part *part = &b->parts[b->message->n_slices];
    *part = (struct part){.table = work->part->table->ids[b->shard],
                          .dtype = call->wire,
                          .n_keys = n_keys,
                          .n_rows = n_rows,
                          .want_status = has_status,
                          .keys = share->keys + key};
    part->offsets = slice_offsets(call, share, first, n_rows);
    if (share->offsets != NULL && part->offsets == NULL)
        return embd__call_no_memory(call);
    part->slots = share->slots == NULL ? NULL : share->slots + first;
    part->weights = share->weights == NULL ? NULL : share->weights + key;
    part->scores = share->scores == NULL ? NULL : share->scores + key;
    b->message->slices[b->message->n_slices++] =
        (struct slice){w, n_rows, n_keys, first, first, has_status};
    if (call->kind == PARTS_PUSH) {
        const uint8_t *grads = share->given != NULL ? share->given : share->grads;
        part->grads = grads + first * work->row_bytes;
        part->grads_bytes = n_rows * work->row_bytes;
        part->lr = work->part->lr;
    } else if (call->kind == PARTS_PULL) {
        part->zero_missing = call->zero_missing;
        part->scale = call->n_shards == 1 && work->is_pooled && !work->by_rows;
        expect_rows(b->message, work, share, first, n_rows);
        if (share->into != NULL)
            part->into = embd__lent_into(call, b->shard, share->into + first * work->row_bytes,
                                         n_rows * work->row_bytes);
        b->message->x.is_shared |= part->into > 0;
    }
    if (has_status)
        expect(b->message, share->statuses + key, n_keys);
    b->room.keys -= need.keys;
    b->room.rows -= need.rows;
    b->room.up_bytes -= need.up_bytes;
    b->room.down_bytes -= need.down_bytes;
    return EMBD_OK;
}

static int refuse_size(struct builder *b, uint32_t w, uint32_t first, const char *advice)
{
    const struct work *work = &b->call->works[w];
    const struct share *share = &work->shares[b->shard];
    const struct link_terms *terms = embd__link_terms(b->call->client->shards[b->shard].link);
    struct room need = room_of(b->call, work, share, first, share->n_rows);
    return embd__error_set(
        &b->call->client->error, EMBD_TOO_LARGE,
        "part %u: %llu keys, %llu rows, %llu bytes for %s; a message takes %llu keys, %u rows, "
        "%llu bytes: %s",
        w, (unsigned long long)need.keys, (unsigned long long)need.rows,
        (unsigned long long)need.up_bytes, b->call->client->shards[b->shard].address,
        (unsigned long long)terms->keys, LIMIT_ROWS, (unsigned long long)bytes_up(b->call, terms),
        advice);
}

static int add_pulled(struct builder *b, uint32_t w)
{
    const struct work *work = &b->call->works[w];
    const struct share *share = &work->shares[b->shard];
    uint32_t first = 0;
    int status = EMBD_OK;
    if (share->n_keys == 0)
        return EMBD_OK;
    while (first < share->n_rows && status == EMBD_OK) {
        if (b->message == NULL)
            status = begin_message(b);
        if (status != EMBD_OK)
            return status;
        uint32_t end = b->message->n_slices == b->message->capacity
                           ? first
                           : end_that_fits(b, work, share, first);
        if (end == first && b->message->n_slices == 0)
            return refuse_size(b, w, first, "a row has too many keys");
        if (end > first)
            status = add_slice(b, w, first, end);
        if (end < share->n_rows && status == EMBD_OK)
            status = end_message(b);
        first = end;
    }
    return status;
}

static int add_pushed(struct builder *b, uint32_t w)
{
    const struct work *work = &b->call->works[w];
    const struct share *share = &work->shares[b->shard];
    struct room need = room_of(b->call, work, share, 0, share->n_rows);
    b->room.keys = embd__link_terms(b->message->x.link)->keys; /* each part has its own */
    b->room.rows = LIMIT_ROWS;
    if (!fits(&need, &b->room) || b->message->n_slices == b->message->capacity)
        return refuse_size(b, w, 0, need.up_bytes > b->room.up_bytes ? RAISE_LIMIT : PUSH_LESS);
    return add_slice(b, w, 0, share->n_rows);
}

static int build_shard(struct builder *b)
{
    bool is_push = b->call->kind == PARTS_PUSH;
    int status = is_push && b->call->n_works > 0 ? begin_message(b) : EMBD_OK;
    for (uint32_t w = 0; w < b->call->n_works && status == EMBD_OK; w++)
        status = is_push ? add_pushed(b, w) : add_pulled(b, w);
    return status == EMBD_OK ? end_message(b) : status;
}

/* ---- all ---- */

/* The order of the push, where all shards take it. */
static uint64_t next_order(struct embd_client *client)
{
    for (uint32_t s = 0; s < client->n_shards; s++)
        if (!embd__link_terms(client->shards[s].link)->takes_order)
            return 0;
    return ++client->last_order;
}

int embd__messages_build(struct embd_call *call)
{
    struct builder b;
    b.call = call;
    b.message = NULL;
    b.parts = NULL;
    b.parts_capacity = 0;
    b.answers = NULL;
    b.answers_capacity = 0;
    int status = EMBD_OK;
    if (call->kind == PARTS_PUSH)
        call->extra.order = next_order(call->client);
    for (b.shard = 0; b.shard < call->n_shards && status == EMBD_OK; b.shard++)
        status = build_shard(&b);
    return status;
}

void embd__messages_fini(struct embd_call *call)
{
    for (uint32_t i = 0; i < call->messages_made; i++) {
        embd__msg_fini(&call->messages[i]->x.msg);
        embd__pool_give(&call->client->messages, call->messages[i]);
    }
    free(call->messages);
    free(call->exchanges);
}
