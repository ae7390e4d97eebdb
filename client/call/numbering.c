/* numbering.c - see numbering.h.
 *
 * The happy path: a push takes the next number of each shard's stream, and that is all.
 *
 * Before that, once: the streams are opened, on all shards at the same time. A shard without room
 * for a stream, or of a version without streams, gets pushes without numbers.
 *
 * What can fail (embd__numbering_failed): a push was refused, or its result is unknown; pushes
 * behind it are EMBD_GAP then, without any fault of the shard. Or the shard has gone back. */
#include "client/call/numbering.h"

#include <stdlib.h>

#include "client/call/call.h"
#include "client/core/request.h"
#include "proto/opening.h"

#define FULL_NS UINT64_C(60000000000) /* until a shard without room is asked again */

void embd__numbering_fini(struct numbering *numbering)
{
    free(numbering->streams[0]);
    free(numbering->streams[1]);
}

/* ---- opening ---- */

static bool is_journaled(const struct embd_call *call)
{
    return call->works[0].schema->durability != EMBD_DURABILITY_SNAPSHOT;
}

/* The streams of tables of one kind. NULL: the client's error is set. */
static struct own_stream *find_streams(struct embd_client *client, bool is_journaled)
{
    struct numbering *numbering = &client->numbering;
    struct own_stream **streams = &numbering->streams[is_journaled];
    bool is_new = numbering->streams[0] == NULL && numbering->streams[1] == NULL;
    if (is_new && embd_pusher_new(&numbering->pusher) != EMBD_OK) {
        embd__error_set(&client->error, EMBD_IO, "the system has no random numbers");
        return NULL;
    }
    if (*streams == NULL)
        *streams = calloc(LIMIT_SHARDS, sizeof **streams);
    if (*streams == NULL)
        embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for streams of pushes");
    return *streams;
}

static bool is_to_be_opened(const struct own_stream *own, uint64_t now_ns)
{
    return own->next == 0 && (own->full_ns == 0 || now_ns - own->full_ns > FULL_NS);
}

/* Streams of journaled tables have odd numbers, others have even ones: a table may change from one
 * kind to the other, and a shard finds the stream of a push by its number. */
static uint32_t number_of(struct own_stream *own, bool is_journaled)
{
    return 2 * own->n_streams++ + is_journaled;
}

static int add_openings(struct embd_call *call, uint64_t now_ns)
{
    const embd_pusher *pusher = &call->client->numbering.pusher;
    for (uint32_t s = 0; s < call->n_shards; s++) {
        if (!is_to_be_opened(&call->own[s], now_ns))
            continue;
        call->extra.number =
            (struct push_number){.high = pusher->high,
                                 .low = pusher->low,
                                 .stream = number_of(&call->own[s], is_journaled(call))};
        struct message *message = embd__numbered_opening(call, s);
        if (message == NULL)
            return call->client->error.status;
        message->stream = (uint32_t)call->extra.number.stream;
        message->x.may_repeat = true;
    }
    return EMBD_OK;
}

/* The shard's answer: the stream is open, or pushes go without. */
static int take_opening(struct own_stream *own, const struct message *message, uint64_t now_ns,
                        struct embd__error *e)
{
    const struct embd__error *answer = &message->x.error;
    bool is_open = answer->status == EMBD_OK;
    if (!is_open && answer->status != EMBD_FULL && answer->status != EMBD_UNKNOWN_METHOD)
        return embd__error_set(e, answer->status, "%s; the push was not sent", answer->text);
    own->stream = message->stream;
    own->next = is_open;
    own->full_ns = is_open ? 0 : now_ns;
    return EMBD_OK;
}

static void open_all(struct embd_call *call, uint64_t now_ns)
{
    call->job.exchanges = call->exchanges;
    call->job.n = call->n_messages;
    embd__io_submit(&call->client->io, &call->job);
    embd__io_await(&call->client->io, &call->job);
    for (uint32_t i = 0; i < call->n_messages; i++)
        take_opening(&call->own[call->messages[i]->shard], call->messages[i], now_ns,
                     &call->client->error);
    call->opening_ns = uv_hrtime() - now_ns;
}

int embd__numbering_begin(struct embd_call *call)
{
    bool is_open = true;
    call->own = find_streams(call->client, is_journaled(call)); /* a push is of one kind */
    if (call->own == NULL)
        return call->client->error.status;
    for (uint32_t s = 0; s < call->n_shards; s++)
        is_open = is_open && call->own[s].next > 0;
    if (is_open)
        return EMBD_OK;
    uint64_t now_ns = uv_hrtime();
    if (add_openings(call, now_ns) == EMBD_OK && call->n_messages > 0)
        open_all(call, now_ns);
    call->n_messages = 0;
    return call->client->error.status;
}

/* ---- one stream ---- */

/* A shard without room for a stream, or of an earlier version, gets pushes and puts without
 * numbers. `answer` is set where the status is EMBD_OK. */
static int take_opened(struct embd_client *client, struct own_stream *own, int status,
                       struct answer *answer)
{
    uint64_t last;
    bool was_opened;
    if (status == EMBD_FULL || status == EMBD_UNKNOWN_METHOD) {
        client->error = (struct embd__error){0};
        own->full_ns = uv_hrtime();
        return EMBD_OK;
    }
    if (status != EMBD_OK)
        return status;
    status = embd__opened_read(&answer->reader, &last, &was_opened);
    embd__answer_free(answer);
    own->next = status == EMBD_OK;
    own->full_ns = 0;
    return status;
}

/* ---- a shard more ---- */

/* Streams of a shard that was added have numbers from here on: it has those that shard 0 had when
 * it was, by the same pusher. */
#define ADDED_STREAMS (1u << 20)

static int open_on(struct embd_client *client, uint32_t shard, bool is_journaled)
{
    const embd_pusher *pusher = &client->numbering.pusher;
    struct own_stream *own = &client->numbering.streams[is_journaled][shard];
    const struct stream_opening opening = {.stream = {.high = pusher->high,
                                                      .low = pusher->low,
                                                      .stream = number_of(own, is_journaled)},
                                           .is_journaled = is_journaled};
    struct answer *answer;
    embd__opening_write(embd__request_begin(client, METHOD_STREAM_OPEN), &opening, false);
    int status = embd__request_on(client, client->shards[shard].link, &answer);
    if (status == EMBD_OK)
        own->stream = (uint32_t)opening.stream.stream;
    return take_opened(client, own, status, answer);
}

int embd__numbering_grow(struct embd_client *client, uint32_t shard)
{
    for (int is_journaled = 0; is_journaled < 2; is_journaled++) {
        struct own_stream *streams = client->numbering.streams[is_journaled];
        if (streams == NULL)
            continue;
        struct own_stream *own = &streams[shard];
        own->n_streams = own->n_streams > 0 ? own->n_streams : ADDED_STREAMS;
        if (streams[0].n_streams > 0 && own->next == 0 &&
            open_on(client, shard, is_journaled) != EMBD_OK)
            return client->error.status;
    }
    return EMBD_OK;
}

void embd__numbering_leave(struct embd_client *client, uint32_t shard)
{
    for (int is_journaled = 0; is_journaled < 2; is_journaled++) {
        struct own_stream *streams = client->numbering.streams[is_journaled];
        if (streams == NULL)
            continue;
        uint32_t n = streams[shard].n_streams;
        streams[shard] = (struct own_stream){.n_streams = n > ADDED_STREAMS ? n : ADDED_STREAMS};
    }
}

/* ---- numbers ---- */

void embd__numbering_sent(struct embd_call *call)
{
    call->number = ++call->client->numbering.n_pushes;
    for (uint32_t i = 0; i < call->n_messages; i++) {
        struct message *message = call->messages[i];
        message->x.deadline_ns -= call->opening_ns;
        call->own[message->shard].next += message->sequence > 0;
    }
}

/* ---- failures ---- */

static bool is_lost(int status)
{
    return status == EMBD_GAP || status == EMBD_FORGOTTEN;
}

/* Whether it was sent once at most, and not applied: no copy of it can be applied later. */
static bool is_over(const struct exchange *x)
{
    return !x->was_begun && (x->is_refused || !x->is_out);
}

/* A push that failed by itself. */
static void leave_stream(struct own_stream *own, const struct exchange *x, uint64_t stream,
                         uint64_t sequence)
{
    if (stream != own->stream || own->next == 0)
        return;
    if (is_over(x) && own->next == sequence + 1) {
        own->next = sequence;
        return;
    }
    own->n_left = own->stream + 1;
    own->why = x->error.status;
    own->next = 0;
}

/* The pushes before this one must be looked at first. */
static void note(struct embd_call *call)
{
    if (call->is_noted)
        return;
    call->is_noted = true;
    for (uint32_t i = 0; i < call->n_messages; i++) {
        const struct message *message = call->messages[i];
        int status = message->x.error.status;
        if (message->sequence > 0 && status != EMBD_OK && !is_lost(status))
            leave_stream(&call->own[message->shard], &message->x, message->stream,
                         message->sequence);
    }
}

/* Pushes that the caller has not waited for yet; they ended before this one did, as shards take
 * them in order. */
static void note_before(struct embd_client *client, const struct own_stream *own, uint64_t number)
{
    for (struct embd_call *c = client->calls; c != NULL; c = c->next) {
        if (!c->is_started || c->own != own || c->number >= number)
            continue;
        embd__io_await(&c->client->io, &c->job);
        if (!embd__call_is_moved(c)) /* it has not failed yet: it will be sent again */
            note(c);
    }
}

static void explain_behind(const struct own_stream *own, struct exchange *x)
{
    struct embd__error *e = &x->error;
    bool may_come = x->was_begun; /* a copy, behind one of the push that failed */
    e->status = EMBD_OK;
    embd__error_set(e, may_come ? EMBD_UNANSWERED : own->why,
                    "%s: the push was sent behind one that failed (%s), and was not applied",
                    embd__link_address(x->link), embd_status_text(own->why));
}

static void explain_lost(struct own_stream *own, struct exchange *x, uint64_t stream)
{
    struct embd__error *e = &x->error, plain = *e;
    e->status = EMBD_OK;
    embd__error_set(e, plain.status,
                    "%.*s; the shard has lost acknowledged pushes: it went back to an older "
                    "snapshot or data directory. Restore all servers and the trainer from one "
                    "snapshot, or push on without what is lost",
                    (int)(LIMIT_ERROR_TEXT / 2 - 30), plain.text);
    if (stream == own->stream)
        own->next = 0;
}

/* A push that is behind one that failed, or is one of many that the shard has lost. */
static void explain(struct own_stream *own, struct exchange *x, uint64_t stream)
{
    if (stream < own->n_left)
        explain_behind(own, x);
    else
        explain_lost(own, x, stream);
}

void embd__numbering_failed(struct embd_call *call)
{
    note(call);
    for (uint32_t i = 0; i < call->n_messages; i++) {
        struct message *message = call->messages[i];
        struct own_stream *own = &call->own[message->shard];
        if (message->sequence == 0 || !is_lost(message->x.error.status))
            continue;
        note_before(call->client, call->own, call->number);
        explain(own, &message->x, message->stream);
    }
}

/* ---- puts: one at a time, to one shard, between the pushes of the same streams ---- */

static int open_for_put(struct embd_client *client, struct own_stream *own, uint32_t shard,
                        bool is_journaled)
{
    const embd_pusher *pusher = &client->numbering.pusher;
    const struct stream_opening opening = {.stream = {.high = pusher->high,
                                                      .low = pusher->low,
                                                      .stream = number_of(own, is_journaled)},
                                           .is_journaled = is_journaled};
    struct answer *answer = NULL;
    own->stream = (uint32_t)opening.stream.stream;
    struct msg *m = embd__request_begin(client, METHOD_STREAM_OPEN);
    client->request.may_repeat = true;
    embd__opening_write(m, &opening, false);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    return take_opened(client, own, status, answer);
}

int embd__numbering_put_begin(struct embd_client *client, const embd_table *table, uint32_t shard,
                              struct push_number *out)
{
    bool is_journaled = embd__table_is_journaled(table);
    struct own_stream *streams = find_streams(client, is_journaled);
    *out = (struct push_number){.sequence = 0};
    if (streams == NULL)
        return client->error.status;
    struct own_stream *own = &streams[shard];
    if (is_to_be_opened(own, uv_hrtime()) &&
        open_for_put(client, own, shard, is_journaled) != EMBD_OK)
        return client->error.status;
    if (own->next > 0 && embd__link_terms(client->shards[shard].link)->takes_put_numbers)
        *out = embd__numbering_next(&client->numbering, own);
    return EMBD_OK;
}

void embd__numbering_put_sent(struct embd_client *client, const embd_table *table, uint32_t shard)
{
    client->request.may_repeat = client->request.has_effect = true;
    client->numbering.streams[embd__table_is_journaled(table)][shard].next++;
}

int embd__numbering_put_failed(struct embd_client *client, const embd_table *table, uint32_t shard,
                               const struct push_number *number)
{
    struct exchange *x = &client->request;
    struct own_stream *streams = client->numbering.streams[embd__table_is_journaled(table)],
                      *own = &streams[shard];
    if (x->error.status ==
        EMBD_OK) { /* it was not built, or applied and its answer not understood */
        own->next -= x->msg.status != EMBD_OK;
        return client->error.status;
    }
    if (!is_lost(x->error.status)) {
        leave_stream(own, x, number->stream, number->sequence);
        return client->error.status;
    }
    note_before(client, streams, UINT64_MAX);
    explain(own, x, number->stream);
    client->error = (struct embd__error){0};
    return embd__error_set(&client->error, x->error.status, "%s", x->error.text);
}
