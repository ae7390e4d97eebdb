/* asks.c - shares become messages. A pull or erase may be cut anywhere between rows: a message is
 * filled until a limit of it or of its answer would be passed, then the next one begins. A push is
 * one optimizer step, so a shard's parts go in one message or not at all; shards without keys get
 * theirs too, to keep the step counters equal, and all have one msgid, by which servers find out
 * that they belong together.
 *
 * Before a pusher's first push on a shard goes the opening of its stream, on the same connection,
 * so that it costs no round trip. The openings of a push are drawn before its msgid: where a cut
 * waits for the push, they go with it. */
#include "client/call/call.h"
#include "client/members.h"

#include <stdlib.h>
#include <string.h>

#include "proto/opening.h"
#include "proto/assert.h"

#define HEAD_BYTES_MAX (64u << 10) /* kept free of the frame limit for what is not bins */

/* Parts of a pull in one message: the most bytes that a part's map and the headers of its bins can
 * have, so often that LIMIT_HEADER_BYTES holds. */
#define PULL_PART_HEAD_BYTES 104u
#define PULL_PARTS           ((LIMIT_HEADER_BYTES - 64u) / PULL_PART_HEAD_BYTES)

/* What a message and its answer still have room for. */
struct room {
    uint64_t keys, rows, up_bytes, down_bytes;
};

struct builder {
    struct embd_call *call;
    uint32_t shard;
    struct ask *ask; /* NULL: the next cut begins one */
    bool is_opening; /* and it is no push */
    struct room room;
    struct part parts[ASK_CUTS_MAX];
};

static int no_memory(struct embd_call *call)
{
    return embd__call_no_memory(call);
}

/* ---- answers ---- */

static struct ask *ask_of(struct exchange *x)
{
    return (struct ask *)(void *)x;
}

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    struct ask *ask = ask_of(x);
    if (index < ask->n_bins && ask->bins[index].bytes == bytes) {
        const struct answer_bin *bin = &ask->bins[index];
        ask->at = index;
        if (bin->window > 0)
            ask->cuts[bin->cut].next = ask->cuts[bin->cut].first;
        x->window = bin->window;
        return bin->to;
    }
    embd__error_set(&x->error, EMBD_PROTOCOL,
                    "bin %u of the answer has %u bytes; %llu of %u bins are expected", index, bytes,
                    (unsigned long long)(index < ask->n_bins ? ask->bins[index].bytes : 0),
                    ask->n_bins);
    return NULL;
}

static void on_window(struct exchange *x, uint32_t bytes)
{
    struct ask *ask = ask_of(x);
    struct cut *cut = &ask->cuts[ask->bins[ask->at].cut];
    const struct work *work = &ask->call->works[cut->work];
    uint32_t n = bytes / (uint32_t)work->row_bytes;
    embd__pull_place(ask->call, work, &work->shares[ask->shard], cut->next, n);
    cut->next += n;
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
    uint32_t expected = ask_of(x)->n_cuts;
    if (n >= 0 && (uint32_t)n != expected)
        embd__error_set(&x->error, EMBD_PROTOCOL, "the answer has %d parts; %u are expected", n,
                        expected);
}

/* What an erase and a push answer of a part's keys. */
static void check_keys(struct exchange *x, uint32_t part, uint32_t n_keys, bool has_status)
{
    const struct cut *cut = &ask_of(x)->cuts[part];
    if (n_keys != cut->n_keys)
        wrong(&x->error, part, "keys", n_keys, cut->n_keys);
    if (has_status != cut->has_status)
        wrong(&x->error, part, "status", has_status, cut->has_status);
}

static void on_pull_answer(struct exchange *x, struct reader *reader)
{
    struct ask *ask = ask_of(x);
    struct part_answer answers[ASK_CUTS_MAX];
    int n = embd__pull_answer_read(reader, answers, ASK_CUTS_MAX);
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < ask->n_cuts; i++) {
        const struct cut *cut = &ask->cuts[i];
        uint32_t dim = ask->call->works[cut->work].dim;
        if (answers[i].n_rows != cut->n_rows)
            wrong(&x->error, i, "rows", answers[i].n_rows, cut->n_rows);
        if (answers[i].dim != dim)
            wrong(&x->error, i, "dim", answers[i].dim, dim);
        if (answers[i].dtype != ask->call->wire)
            wrong(&x->error, i, "dtype", answers[i].dtype, ask->call->wire);
        if (answers[i].has_status != cut->has_status)
            wrong(&x->error, i, "status", answers[i].has_status, cut->has_status);
    }
}

static void on_erase_answer(struct exchange *x, struct reader *reader)
{
    struct ask *ask = ask_of(x);
    struct erase_answer answers[ASK_CUTS_MAX];
    int n = embd__erase_answer_read(reader, answers, ASK_CUTS_MAX);
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < ask->n_cuts; i++)
        check_keys(x, i, answers[i].n_keys, answers[i].statuses != NULL);
}

/* Applied before, when the answer was lost, and with it what became of the keys. */
static void forget_statuses(struct ask *ask)
{
    for (uint32_t i = 0; i < ask->n_bins; i++)
        memset(ask->bins[i].to, EMBD_KEY_UNREPORTED, ask->bins[i].bytes);
}

static void on_push_answer(struct exchange *x, struct reader *reader)
{
    struct ask *ask = ask_of(x);
    struct push_answer answers[ASK_CUTS_MAX];
    bool again;
    int n = embd__push_answer_read(reader, answers, ASK_CUTS_MAX, &again);
    if (n == 0 && again && x->has_effect) {
        forget_statuses(ask);
        return;
    }
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < ask->n_cuts; i++)
        check_keys(x, i, answers[i].n_keys, answers[i].statuses != NULL);
}

static const struct {
    enum method method;
    void (*on_answer)(struct exchange *x, struct reader *reader);
} kinds[] = {
    [PARTS_PULL] = {METHOD_PULL, on_pull_answer},
    [PARTS_PUSH] = {METHOD_PUSH, on_push_answer},
    [PARTS_ERASE] = {METHOD_ERASE, on_erase_answer},
};

static void on_opening_answer(struct reader *reader)
{
    uint64_t last;
    bool was_opened;
    embd__opened_read(reader, &last, &was_opened);
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    struct embd_call *call = ask_of(x)->call;
    if (ask_of(x)->is_opening) {
        on_opening_answer(reader);
        return;
    }
    kinds[call->kind].on_answer(x, reader);
    embd__follow_told(call->client, x->link, reader->map);
}

/* ---- asks ---- */

static bool grow_lists(struct embd_call *call)
{
    uint32_t capacity = call->asks_capacity == 0 ? 4 : call->asks_capacity * 2;
    struct ask **asks = realloc(call->asks, capacity * sizeof *asks);
    if (asks != NULL)
        call->asks = asks;
    struct exchange **exchanges = realloc(call->exchanges, capacity * sizeof *exchanges);
    if (exchanges != NULL)
        call->exchanges = exchanges;
    if (asks == NULL || exchanges == NULL)
        return false;
    call->asks_capacity = capacity;
    return true;
}

static struct ask *make_ask(struct embd_call *call)
{
    if (call->asks_made == call->asks_capacity && !grow_lists(call))
        return NULL;
    struct ask *ask = malloc(sizeof *ask);
    if (ask == NULL)
        return NULL;
    ask->call = call;
    ask->x = (struct exchange){.owner = &call->job,
                               .on_bin = on_bin,
                               .on_window = on_window,
                               .on_end = embd__job_exchange_ended};
    embd__msg_init(&ask->x.msg);
    call->asks[call->asks_made] = ask;
    call->exchanges[call->asks_made++] = &ask->x;
    return ask;
}

static int begin_ask(struct builder *b)
{
    struct embd_call *call = b->call;
    struct ask *ask = call->n_asks < call->asks_made ? call->asks[call->n_asks] : make_ask(call);
    if (ask == NULL)
        return no_memory(call);
    struct link *link = call->client->shards[b->shard].link;
    uint64_t frame_bytes = embd__link_frame_bytes(link) - HEAD_BYTES_MAX;
    embd__exchange_begin(call->client, &ask->x, call->deadline_ms);
    uint32_t first = b->is_opening ? 0 : call->n_openings;
    if (call->kind == PARTS_PUSH && call->n_asks > first)
        ask->x.msgid = call->asks[first]->x.msgid;
    ask->is_opening = b->is_opening;
    ask->x.link = link;
    ask->x.on_answer = on_answer;
    ask->x.has_effect = call->kind == PARTS_PUSH && call->extra.writer.sequence > 0;
    ask->x.may_repeat = call->kind == PARTS_PULL || ask->x.has_effect;
    ask->shard = b->shard;
    ask->n_cuts = 0;
    ask->n_bins = 0;
    b->ask = ask;
    b->room = (struct room){embd__link_keys(link), LIMIT_ROWS, frame_bytes, frame_bytes};
    return EMBD_OK;
}

static int end_ask(struct builder *b)
{
    struct ask *ask = b->ask;
    struct embd_call *call = b->call;
    b->ask = NULL;
    if (ask == NULL)
        return EMBD_OK;
    embd__msg_request(&ask->x.msg, ask->x.msgid, kinds[call->kind].method);
    if (call->extra.round.n_workers > 0)
        call->extra.round.epoch = call->member->beats[b->shard].epoch;
    if (call->kind == PARTS_PUSH)
        embd__push_write(&ask->x.msg, b->parts, ask->n_cuts, &call->extra);
    else
        embd__parts_write(&ask->x.msg, b->parts, ask->n_cuts, call->kind);
    int status = embd__msg_end(&ask->x.msg);
    if (status != EMBD_OK)
        return embd__error_set(&call->client->error, status, "a message of %u parts: %s",
                               ask->n_cuts, embd_status_text(status));
    if (ask->x.msg.head_bytes > LIMIT_HEADER_BYTES)
        return embd__error_set(
            &call->client->error, EMBD_TOO_LARGE,
            "a message of %u parts has a header of %u bytes, the limit is %u: push fewer tables "
            "at once",
            ask->n_cuts, ask->x.msg.head_bytes, LIMIT_HEADER_BYTES);
    call->n_asks++;
    return EMBD_OK;
}

/* ---- cuts ---- */

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
static const uint32_t *cut_offsets(struct embd_call *call, const struct share *share,
                                   uint32_t first, uint32_t n)
{
    if (first == 0 || share->offsets == NULL)
        return share->offsets;
    uint32_t *offsets = embd__arena_array(&call->arena, (uint64_t)n + 1, sizeof *offsets);
    for (uint32_t i = 0; i <= n && offsets != NULL; i++)
        offsets[i] = share->offsets[first + i] - share->offsets[first];
    return offsets;
}

static void expect(struct ask *ask, void *to, uint64_t bytes)
{
    EMBD_ASSERT(ask->n_bins < sizeof ask->bins / sizeof *ask->bins);
    ask->bins[ask->n_bins++] = (struct answer_bin){.to = to, .bytes = bytes};
}

/* The rows of the newest cut. */
static void expect_rows(struct ask *ask, const struct work *work, const struct share *share,
                        uint32_t first, uint32_t n)
{
    uint32_t window = work->window_rows * (uint32_t)work->row_bytes;
    uint64_t bytes = n * work->row_bytes;
    expect(ask, share->values + (window > 0 ? 0 : first * work->row_bytes), bytes);
    ask->bins[ask->n_bins - 1].window = window;
    ask->bins[ask->n_bins - 1].cut = ask->n_cuts - 1;
}

/* Rows first .. end of a share go into the message. */
static int add_cut(struct builder *b, uint32_t w, uint32_t first, uint32_t end)
{
    struct embd_call *call = b->call;
    const struct work *work = &call->works[w];
    const struct share *share = &work->shares[b->shard];
    struct room need = room_of(call, work, share, first, end);
    uint32_t key = key_at(share, first), n_rows = end - first, n_keys = (uint32_t)need.keys;
    bool has_status = share->statuses != NULL && n_keys > 0;
    EMBD_ASSERT(b->ask->n_cuts < ASK_CUTS_MAX && first < end && end <= share->n_rows);
    struct part *part = &b->parts[b->ask->n_cuts];
    *part = (struct part){.table = work->part->table->id,
                          .dtype = call->wire,
                          .n_keys = n_keys,
                          .n_rows = n_rows,
                          .want_status = has_status,
                          .keys = share->keys + key};
    part->offsets = cut_offsets(call, share, first, n_rows);
    if (share->offsets != NULL && part->offsets == NULL)
        return no_memory(call);
    part->slots = share->slots == NULL ? NULL : share->slots + first;
    part->weights = share->weights == NULL ? NULL : share->weights + key;
    b->ask->cuts[b->ask->n_cuts++] = (struct cut){w, n_rows, n_keys, first, first, has_status};
    if (call->kind == PARTS_PUSH) {
        const uint8_t *grads = share->given != NULL ? share->given : share->grads;
        part->grads = grads + first * work->row_bytes;
        part->grads_bytes = n_rows * work->row_bytes;
    } else if (call->kind == PARTS_PULL) {
        part->zero_missing = call->zero_missing;
        part->scale = call->client->n_shards == 1 && work->is_pooled && !work->by_rows;
        expect_rows(b->ask, work, share, first, n_rows);
    }
    if (has_status)
        expect(b->ask, share->statuses + key, n_keys);
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
        if (b->ask == NULL)
            status = begin_ask(b);
        if (status != EMBD_OK)
            return status;
        uint32_t end = b->ask->n_cuts == PULL_PARTS ? first : end_that_fits(b, work, share, first);
        if (end == first && b->ask->n_cuts == 0)
            return refuse_size(b, w, first, "a row has too many keys");
        if (end > first)
            status = add_cut(b, w, first, end);
        if (end < share->n_rows && status == EMBD_OK)
            status = end_ask(b);
        first = end;
    }
    return status;
}

static int add_pushed(struct builder *b, uint32_t w)
{
    const struct work *work = &b->call->works[w];
    const struct share *share = &work->shares[b->shard];
    struct room need = room_of(b->call, work, share, 0, share->n_rows);
    if (!fits(&need, &b->room) || b->ask->n_cuts == ASK_CUTS_MAX)
        return refuse_size(b, w, 0, "push fewer samples or tables at once");
    return add_cut(b, w, 0, share->n_rows);
}

static int build_shard(struct builder *b)
{
    bool is_push = b->call->kind == PARTS_PUSH;
    int status = is_push && b->call->n_works > 0 ? begin_ask(b) : EMBD_OK;
    for (uint32_t w = 0; w < b->call->n_works && status == EMBD_OK; w++)
        status = is_push ? add_pushed(b, w) : add_pulled(b, w);
    return status == EMBD_OK ? end_ask(b) : status;
}

/* ---- openings ---- */

static int write_opening(struct ask *ask)
{
    struct embd_call *call = ask->call;
    struct msg *m = &ask->x.msg;
    const struct stream_opening opening = {
        .stream = call->extra.writer,
        .is_journaled = call->works[0].schema->durability != EMBD_DURABILITY_SNAPSHOT,
    };
    embd__msg_request(m, ask->x.msgid, METHOD_STREAM_OPEN);
    embd__opening_write(m, &opening, false);
    return embd__msg_end(m) == EMBD_OK ? EMBD_OK : no_memory(call);
}

static int open_stream(struct builder *b)
{
    bool opens;
    struct embd_call *call = b->call;
    uint64_t now_ns = uv_hrtime();
    if (embd__opened_begin(&call->client->opened, &call->extra.writer, b->shard, now_ns, &opens) !=
        EMBD_OK)
        return no_memory(call);
    if (!opens)
        return EMBD_OK;
    if (begin_ask(b) != EMBD_OK) {
        embd__opened_end(&call->client->opened, &call->extra.writer, b->shard, now_ns, NOT_OPENED);
        return call->client->error.status;
    }
    struct ask *ask = b->ask;
    b->ask = NULL;
    ask->began_ns = now_ns;
    call->n_asks++;
    call->n_openings++;
    return write_opening(ask);
}

static int open_streams(struct builder *b)
{
    struct embd_call *call = b->call;
    int status = EMBD_OK;
    if (call->kind != PARTS_PUSH || call->extra.writer.sequence != 1 || call->n_works == 0)
        return EMBD_OK;
    b->is_opening = true;
    for (b->shard = 0; b->shard < call->client->n_shards && status == EMBD_OK; b->shard++)
        status = open_stream(b);
    b->is_opening = false;
    return status;
}

/* A server of an earlier version has the first push open the stream. */
static enum opened_end end_of(struct exchange *x)
{
    if (x->error.status == EMBD_UNKNOWN_METHOD)
        x->error.status = EMBD_OK;
    return x->error.status == EMBD_OK           ? OPENED
           : x->error.status == EMBD_UNANSWERED ? MAY_BE_OPENED
                                                : NOT_OPENED;
}

void embd__asks_end_openings(struct embd_call *call, bool were_sent)
{
    for (uint32_t i = 0; i < call->n_openings; i++)
        embd__opened_end(&call->client->opened, &call->extra.writer, call->asks[i]->shard,
                         call->asks[i]->began_ns,
                         were_sent ? end_of(&call->asks[i]->x) : NOT_OPENED);
}

/* ---- all ---- */

int embd__asks_build(struct embd_call *call)
{
    struct builder b;
    b.call = call;
    b.ask = NULL;
    b.is_opening = false;
    call->n_openings = 0;
    int status = open_streams(&b);
    for (uint32_t s = 0; s < call->client->n_shards && status == EMBD_OK; s++) {
        b.shard = s;
        status = build_shard(&b);
    }
    return status;
}

/* The pieces of the first part up to the header of its gradients. */
static uint32_t pieces_before_grads(const struct embd_call *call, const struct ask *ask)
{
    const struct work *work = &call->works[ask->cuts[0].work];
    const struct share *share = &work->shares[ask->shard];
    uint32_t bins =
        1u + (share->offsets != NULL) + (share->slots != NULL) + (share->weights != NULL);
    return 2 * bins + 1;
}

void embd__asks_hold(struct embd_call *call)
{
    for (uint32_t i = call->n_openings; i < call->n_asks; i++)
        call->asks[i]->x.held = pieces_before_grads(call, call->asks[i]);
}

void embd__asks_go_on(struct embd_call *call)
{
    for (uint32_t i = call->n_openings; i < call->n_asks; i++)
        embd__link_go_on(&call->asks[i]->x);
}

void embd__asks_fini(struct embd_call *call)
{
    for (uint32_t i = 0; i < call->asks_made; i++) {
        embd__msg_fini(&call->asks[i]->x.msg);
        free(call->asks[i]);
    }
    free(call->asks);
    free(call->exchanges);
}
