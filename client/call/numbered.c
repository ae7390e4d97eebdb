/* numbered.c - numbered pushes: a pusher's stream of pushes, each applied once however often it is
 * sent.
 *
 * The opening of its stream goes before a pusher's first push to a shard, on the same connection,
 * so that it costs no round trip. The openings of a push get their msgid before the push does: if a
 * cut waits for the push, they go with it. */
#include "client/call/numbered.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/call/call.h"
#include "client/core/request.h"
#include "proto/opening.h"

/* ---- streams that were opened: a list, searched for first pushes alone ---- */

/* A shard forgets no stream that was opened so lately. */
#define REMEMBERED_NS UINT64_C(300000000000)

struct opened_stream {
    uint64_t high, low;
    uint32_t stream, shard;
    uint64_t since_ns; /* 0: it was answered */
};

void embd__opened_fini(struct opened *opened)
{
    free(opened->list);
    free(opened->parted);
}

/* NULL: none. */
static struct opened_stream *find(const struct opened *opened, const struct push_number *stream,
                                  uint32_t shard)
{
    for (uint32_t i = opened->n; i > 0; i--) {
        struct opened_stream *s = &opened->list[i - 1];
        if (s->high == stream->high && s->low == stream->low && s->stream == stream->stream &&
            s->shard == shard)
            return s;
    }
    return NULL;
}

static bool has_room(struct opened *opened)
{
    if (opened->n < opened->capacity)
        return true;
    uint32_t capacity = 2 * opened->capacity + 8;
    struct opened_stream *list = realloc(opened->list, capacity * sizeof *list);
    if (list == NULL)
        return false;
    opened->list = list;
    opened->capacity = capacity;
    return true;
}

/* *opens_out: the first push of the stream follows an opening; call end_opening when that is
 * answered. There is no opening if the shard has answered one, or if one was sent so long ago
 * without an answer that the shard may have forgotten the stream since. EMBD_NO_MEMORY. */
static int begin_opening(struct opened *opened, const struct push_number *stream, uint32_t shard,
                         uint64_t now_ns, bool *opens_out)
{
    const struct opened_stream *s = find(opened, stream, shard);
    *opens_out = s == NULL || (s->since_ns != 0 && now_ns - s->since_ns < REMEMBERED_NS);
    if (s != NULL)
        return EMBD_OK;
    if (!has_room(opened))
        return EMBD_NO_MEMORY;
    opened->list[opened->n++] =
        (struct opened_stream){stream->high, stream->low, (uint32_t)stream->stream, shard, now_ns};
    return EMBD_OK;
}

/* For the opening that was begun at began_ns. */
static void end_opening(struct opened *opened, const struct push_number *stream, uint32_t shard,
                        uint64_t began_ns, enum opened_end end)
{
    struct opened_stream *s = find(opened, stream, shard);
    if (s == NULL)
        return; /* another call's, which was not opened either */
    if (end == OPENED)
        s->since_ns = 0;
    else if (end == NOT_OPENED && s->since_ns == began_ns)
        *s = opened->list[--opened->n];
}

/* ---- pushes that were applied in part ---- */

static bool is_of_stream(const struct push_number *a, const struct push_number *b)
{
    return a->high == b->high && a->low == b->low && a->stream == b->stream;
}

/* NULL: none that ends the stream before this push, or with it. */
static const struct push_number *find_parted(const struct opened *opened,
                                             const struct push_number *number)
{
    for (uint32_t i = 0; i < opened->n_parted; i++)
        if (is_of_stream(&opened->parted[i], number) &&
            number->sequence >= opened->parted[i].sequence)
            return &opened->parted[i];
    return NULL;
}

bool embd__numbered_has_ended(const struct opened *opened, const struct push_number *number)
{
    return find_parted(opened, number) != NULL;
}

void embd__numbered_part(struct opened *opened, const struct push_number *number)
{
    if (embd__numbered_has_ended(opened, number))
        return;
    size_t bytes = (opened->n_parted + 1) * sizeof *opened->parted;
    struct push_number *grown = realloc(opened->parted, bytes);
    if (grown == NULL)
        return; /* the caller was told all the same */
    opened->parted = grown;
    opened->parted[opened->n_parted++] = *number;
}

/* By the map of now its number would stand for other keys on the shards that have it. */
static int refuse_parted(const struct opened *opened, const struct push_number *number,
                         struct embd__error *e)
{
    const struct push_number *parted = find_parted(opened, number);
    if (parted == NULL)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_MOVED,
        "push %llu of the stream is applied in part, and keys have moved since: the stream ends "
        "there, and push %llu was not sent. Go back to a checkpoint with a new client, or go on "
        "with another stream",
        (unsigned long long)parted->sequence, (unsigned long long)number->sequence);
}

/* ---- a numbered push ---- */

int embd__numbered_take(struct embd_call *call, const embd_pusher *pusher, uint64_t sequence)
{
    struct push_number *number = &call->extra.number;
    struct embd__error *e = &call->client->error;
    if (call->kind != PARTS_PUSH)
        return embd__error_set(e, EMBD_INVALID, "this call has a pusher; only a push may have one");
    if (call->extra.round.n_workers > 0)
        return embd__error_set(e, EMBD_INVALID,
                               "a push has a round and a pusher; it may have one of them");
    if (sequence == 0 || sequence == UINT64_MAX)
        return embd__error_set(e, EMBD_INVALID, "sequence is %llu; a pusher's first push is 1",
                               (unsigned long long)sequence);
    *number = (struct push_number){pusher->high, pusher->low, sequence, pusher->stream};
    return refuse_parted(&call->client->opened, number, e);
}

static int write_opening(struct message *message)
{
    struct embd_call *call = message->call;
    struct msg *m = &message->x.msg;
    const struct stream_opening opening = {
        .stream = call->extra.number,
        .is_journaled = call->works[0].schema->durability != EMBD_DURABILITY_SNAPSHOT,
    };
    embd__msg_request(m, message->x.msgid, METHOD_STREAM_OPEN);
    embd__opening_write(m, &opening, false);
    return embd__msg_end(m) == EMBD_OK ? EMBD_OK : embd__call_no_memory(call);
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    uint64_t last;
    bool was_opened;
    (void)x;
    embd__opened_read(reader, &last, &was_opened);
}

struct message *embd__numbered_opening(struct embd_call *call, uint32_t shard)
{
    struct message *message = embd__message_begin(call, shard);
    if (message == NULL)
        return NULL;
    if (call->n_messages > 0)
        message->x.msgid = call->messages[0]->x.msgid;
    message->x.on_answer = on_answer;
    message->x.kind = EXCHANGE_OTHER;
    call->n_messages++;
    return write_opening(message) == EMBD_OK ? message : NULL;
}

static int open_stream(struct embd_call *call, uint32_t shard)
{
    bool opens;
    struct opened *opened = &call->client->opened;
    uint64_t now_ns = uv_hrtime();
    if (begin_opening(opened, &call->extra.number, shard, now_ns, &opens) != EMBD_OK)
        return embd__call_no_memory(call);
    if (!opens)
        return EMBD_OK;
    struct message *message = embd__numbered_opening(call, shard);
    if (message == NULL) {
        end_opening(opened, &call->extra.number, shard, now_ns, NOT_OPENED);
        return call->client->error.status;
    }
    message->began_ns = now_ns;
    call->n_openings++;
    return EMBD_OK;
}

int embd__numbered_open(struct embd_call *call)
{
    int status = EMBD_OK;
    if (call->extra.number.sequence != 1 || call->n_works == 0)
        return EMBD_OK;
    for (uint32_t s = 0; s < call->n_shards && status == EMBD_OK; s++)
        status = open_stream(call, s);
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

void embd__numbered_end(struct embd_call *call, bool were_sent)
{
    for (uint32_t i = 0; i < call->n_openings; i++)
        end_opening(&call->client->opened, &call->extra.number, call->messages[i]->shard,
                    call->messages[i]->began_ns,
                    were_sent ? end_of(&call->messages[i]->x) : NOT_OPENED);
}

/* ---- who pushes ---- */

int embd_pusher_new(embd_pusher *pusher_out)
{
    uint64_t id[2];
    if (getrandom(id, sizeof id, 0) != sizeof id)
        return embd__error_keep(&(struct embd__error){EMBD_IO, "the system has no random numbers"},
                                EMBD_IO);
    *pusher_out = (embd_pusher){.high = id[0], .low = id[1]};
    return EMBD_OK;
}
