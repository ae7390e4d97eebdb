/* messages.c - shares become messages, and their answers are checked. A pull or erase may be sliced
 * anywhere between rows: a message is filled until a limit of it or of its answer would be passed,
 * then the next one begins. A push is one optimizer step, so a shard's parts go in one message or
 * not at all; shards without keys get theirs too, to keep the step counters equal, and all have one
 * order, by which servers find out that they belong together. They have one msgid too, which is the
 * order to servers of earlier versions.
 *
 * A call's messages are kept, with their buffers, for the calls after it. */
#include "client/call/call.h"

#include <stdlib.h>
#include <string.h>

#include "client/core/clocks.h"
#include "proto/assert.h"

#define HEAD_BYTES_MAX (64u << 10) /* kept free of the frame limit for what is not bins */

/* Parts of a pull in one message: the most bytes that a part's map and the headers of its bins can
 * have, so often that LIMIT_HEADER_BYTES holds. */
#define PULL_PART_HEAD_BYTES 104u
#define PULL_PARTS           ((LIMIT_HEADER_BYTES - 64u) / PULL_PART_HEAD_BYTES)

/* The room left in a message and its answer. */
struct room {
    uint64_t keys, rows, up_bytes, down_bytes;
};

struct builder {
    struct embd_call *call;
    uint32_t shard;
    struct message *message; /* NULL: the next slice begins one */
    struct room room;
    struct part parts[MESSAGE_SLICES_MAX];
};

/* ---- answers ---- */

static struct message *message_of(struct exchange *x)
{
    return (struct message *)(void *)x;
}

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    struct message *message = message_of(x);
    if (index < message->n_bins && message->bins[index].bytes == bytes) {
        const struct answer_bin *bin = &message->bins[index];
        message->at = index;
        if (bin->window > 0)
            message->slices[bin->slice].next = message->slices[bin->slice].first;
        x->window = bin->window;
        return bin->to;
    }
    embd__error_set(&x->error, EMBD_PROTOCOL,
                    "bin %u of the answer has %u bytes; %llu of %u bins are expected", index, bytes,
                    (unsigned long long)(index < message->n_bins ? message->bins[index].bytes : 0),
                    message->n_bins);
    return NULL;
}

static void on_window(struct exchange *x, uint32_t bytes)
{
    struct message *message = message_of(x);
    struct slice *slice = &message->slices[message->bins[message->at].slice];
    const struct work *work = &message->call->works[slice->work];
    uint32_t n = bytes / (uint32_t)work->row_bytes;
    embd__pull_place(message->call, work, &work->shares[message->shard], slice->next, n);
    slice->next += n;
}

static void wrong(struct embd__error *e, uint32_t part, const char *field, uint64_t value,
                  uint64_t expected)
{
    embd__error_set(e, EMBD_PROTOCOL, "the answer's part %u has %s %llu; %llu is expected", part,
                    field, (unsigned long long)value, (unsigned long long)expected);
}

/* n < 0: the reader has said what is wrong. */
static void check_count(struct exchange *x, int n)
{
    uint32_t expected = message_of(x)->n_slices;
    if (n >= 0 && (uint32_t)n != expected)
        embd__error_set(&x->error, EMBD_PROTOCOL, "the answer has %d parts; %u are expected", n,
                        expected);
}

/* The counts of an erase's and a push's answer, by part. */
static void check_keys(struct exchange *x, uint32_t part, uint32_t n_keys, bool has_status)
{
    const struct slice *slice = &message_of(x)->slices[part];
    if (n_keys != slice->n_keys)
        wrong(&x->error, part, "keys", n_keys, slice->n_keys);
    if (has_status != slice->has_status)
        wrong(&x->error, part, "status", has_status, slice->has_status);
}

static void on_pull_answer(struct exchange *x, struct reader *reader)
{
    struct message *message = message_of(x);
    struct part_answer answers[MESSAGE_SLICES_MAX];
    int n = embd__pull_answer_read(reader, answers, MESSAGE_SLICES_MAX);
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < message->n_slices; i++) {
        const struct slice *slice = &message->slices[i];
        uint32_t dim = message->call->works[slice->work].dim;
        if (answers[i].n_rows != slice->n_rows)
            wrong(&x->error, i, "rows", answers[i].n_rows, slice->n_rows);
        if (answers[i].dim != dim)
            wrong(&x->error, i, "dim", answers[i].dim, dim);
        if (answers[i].dtype != message->call->wire)
            wrong(&x->error, i, "dtype", answers[i].dtype, message->call->wire);
        if (answers[i].has_status != slice->has_status)
            wrong(&x->error, i, "status", answers[i].has_status, slice->has_status);
    }
}

static void on_erase_answer(struct exchange *x, struct reader *reader)
{
    struct message *message = message_of(x);
    struct erase_answer answers[MESSAGE_SLICES_MAX];
    int n = embd__erase_answer_read(reader, answers, MESSAGE_SLICES_MAX);
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < message->n_slices; i++)
        check_keys(x, i, answers[i].n_keys, answers[i].statuses != NULL);
}

/* A numbered push that was applied before, when the answer was lost, and with it the statuses. */
static void forget_statuses(const struct message *message)
{
    for (uint32_t i = 0; i < message->n_bins; i++)
        memset(message->bins[i].to, EMBD_KEY_UNREPORTED, message->bins[i].bytes);
}

static void on_push_answer(struct exchange *x, struct reader *reader)
{
    struct message *message = message_of(x);
    struct push_answer answers[MESSAGE_SLICES_MAX];
    bool again;
    int n = embd__push_answer_read(reader, answers, MESSAGE_SLICES_MAX, &again);
    if (n == 0 && again && x->has_effect) {
        forget_statuses(message);
        return;
    }
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < message->n_slices; i++)
        check_keys(x, i, answers[i].n_keys, answers[i].statuses != NULL);
}

static const struct {
    enum method method;
    enum exchange_kind exchange;
    void (*on_answer)(struct exchange *x, struct reader *reader);
} kinds[] = {
    [PARTS_PULL] = {METHOD_PULL, EXCHANGE_PULL, on_pull_answer},
    [PARTS_PUSH] = {METHOD_PUSH, EXCHANGE_PUSH, on_push_answer},
    [PARTS_ERASE] = {METHOD_ERASE, EXCHANGE_OTHER, on_erase_answer},
};

static void on_answer(struct exchange *x, struct reader *reader)
{
    embd_client *client = message_of(x)->call->client;
    kinds[message_of(x)->call->kind].on_answer(x, reader);
    if (reader->map > client->map_refresh.version)
        embd__map_refresh_from(client, x->link);
}

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
    struct message *message = malloc(sizeof *message);
    if (message == NULL)
        return NULL;
    message->call = call;
    message->x = (struct exchange){
        .owner = &call->job, .on_bin = on_bin, .on_window = on_window, .on_end = embd__job_on_end};
    embd__msg_init(&message->x.msg);
    call->messages[call->messages_made] = message;
    call->exchanges[call->messages_made++] = &message->x;
    return message;
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
    embd__client_begin(call->client, &message->x, call->deadline_ms);
    message->x.link = call->client->shards[shard].link;
    message->x.kind = kinds[call->kind].exchange;
    message->x.on_answer = on_answer;
    message->x.has_effect = call->kind == PARTS_PUSH && call->extra.number.sequence > 0;
    message->x.may_repeat = call->kind == PARTS_PULL || message->x.has_effect;
    message->shard = shard;
    message->n_slices = 0;
    message->n_bins = 0;
    return message;
}

static int begin_message(struct builder *b)
{
    struct embd_call *call = b->call;
    if (call->own != NULL)
        call->extra.number = embd__numbering_next(&call->client->numbering, &call->own[b->shard]);
    b->message = embd__message_begin(call, b->shard);
    if (b->message == NULL)
        return call->client->error.status;
    const struct link *link = b->message->x.link;
    uint64_t frame_bytes = embd__link_frame_bytes(link) - HEAD_BYTES_MAX;
    if (call->kind == PARTS_PUSH && call->n_messages > call->n_openings)
        b->message->x.msgid = call->messages[call->n_openings]->x.msgid;
    b->message->stream = (uint32_t)call->extra.number.stream;
    b->message->sequence = call->own != NULL ? call->extra.number.sequence : 0;
    b->room = (struct room){embd__link_keys(link), LIMIT_ROWS, frame_bytes, frame_bytes};
    return EMBD_OK;
}

static int end_message(struct builder *b)
{
    struct message *message = b->message;
    struct embd_call *call = b->call;
    b->message = NULL;
    if (message == NULL)
        return EMBD_OK;
    embd__msg_request(&message->x.msg, message->x.msgid, kinds[call->kind].method);
    if (call->extra.round.n_workers > 0)
        call->extra.round.epoch = call->member->heartbeats[b->shard].epoch;
    if (call->kind == PARTS_PUSH)
        embd__push_write(&message->x.msg, b->parts, message->n_slices, &call->extra);
    else
        embd__parts_write(&message->x.msg, b->parts, message->n_slices, call->kind);
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

static struct room room_of(const struct embd_call *call, const struct work *work,
                           const struct share *share, uint32_t first, uint32_t end)
{
    uint64_t rows = end - first, keys = key_at(share, end) - key_at(share, first);
    uint64_t values = call->kind == PARTS_ERASE ? 0 : rows * work->row_bytes,
             statuses = share->statuses != NULL ? keys : 0;
    uint64_t up = 8 * keys + (share->offsets != NULL ? 4 * (rows + 1) : 0) +
                  (share->slots != NULL ? 2 * rows : 0) + (share->weights != NULL ? 4 * keys : 0);
    if (call->kind == PARTS_PUSH)
        return (struct room){keys, rows, up + values, statuses};
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
    EMBD_ASSERT(message->n_bins < sizeof message->bins / sizeof *message->bins);
    message->bins[message->n_bins++] = (struct answer_bin){.to = to, .bytes = bytes};
}

/* The rows of the newest slice. */
static void expect_rows(struct message *message, const struct work *work, const struct share *share,
                        uint32_t first, uint32_t n)
{
    uint32_t window = work->window_rows * (uint32_t)work->row_bytes;
    uint64_t bytes = n * work->row_bytes;
    expect(message, share->values + (window > 0 ? 0 : first * work->row_bytes), bytes);
    message->bins[message->n_bins - 1].window = window;
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
    EMBD_ASSERT(b->message->n_slices < MESSAGE_SLICES_MAX && first <= end && end <= share->n_rows);
    struct part *part = &b->parts[b->message->n_slices];
    *part = (struct part){.table = work->part->table->id,
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
    b->message->slices[b->message->n_slices++] =
        (struct slice){w, n_rows, n_keys, first, first, has_status};
    if (call->kind == PARTS_PUSH) {
        const uint8_t *grads = share->given != NULL ? share->given : share->grads;
        part->grads = grads + first * work->row_bytes;
        part->grads_bytes = n_rows * work->row_bytes;
        part->lr = work->part->lr;
    } else if (call->kind == PARTS_PULL) {
        part->zero_missing = call->zero_missing;
        part->scale = call->client->n_shards == 1 && work->is_pooled && !work->by_rows;
        expect_rows(b->message, work, share, first, n_rows);
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
    struct room need = room_of(b->call, work, share, first, share->n_rows);
    return embd__error_set(
        &b->call->client->error, EMBD_TOO_LARGE,
        "part %u: %llu keys, %llu rows, %llu bytes for %s; a message takes %llu keys, %u rows, "
        "%llu bytes: %s",
        w, (unsigned long long)need.keys, (unsigned long long)need.rows,
        (unsigned long long)need.up_bytes, b->call->client->shards[b->shard].address,
        (unsigned long long)embd__link_keys(b->call->client->shards[b->shard].link), LIMIT_ROWS,
        (unsigned long long)embd__link_frame_bytes(b->call->client->shards[b->shard].link), advice);
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
        uint32_t end =
            b->message->n_slices == PULL_PARTS ? first : end_that_fits(b, work, share, first);
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
    if (!fits(&need, &b->room) || b->message->n_slices == MESSAGE_SLICES_MAX)
        return refuse_size(b, w, 0, "push fewer samples or tables at once");
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
        if (!embd__link_takes_order(client->shards[s].link))
            return 0;
    return ++client->last_order;
}

int embd__messages_build(struct embd_call *call)
{
    struct builder b;
    b.call = call;
    b.message = NULL;
    int status = EMBD_OK;
    if (call->kind == PARTS_PUSH)
        call->extra.order = next_order(call->client);
    for (b.shard = 0; b.shard < call->client->n_shards && status == EMBD_OK; b.shard++)
        status = build_shard(&b);
    return status;
}

void embd__messages_fini(struct embd_call *call)
{
    for (uint32_t i = 0; i < call->messages_made; i++) {
        embd__msg_fini(&call->messages[i]->x.msg);
        free(call->messages[i]);
    }
    free(call->messages);
    free(call->exchanges);
}
