/* device_call.c - embd/device.h: calls in lent memory of a GPU that begin and end in the order of a
 * stream of the caller's.
 *
 * The happy path: a request goes out to each shard at once; the servers wait for the words of their
 * gates, then work, and raise the other words, for which the stream waits. The answers come by the
 * sockets behind that and are read by embd_device_wait. What can fail: whatever ends a request, the
 * loop's thread raises its word too, so that no stream waits for a server that is gone. A call of
 * keys that have moved fails, as the stream has gone on: the next one goes by the new map. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/core/device_sending.h"

_Static_assert(EMBD_DEVICE_GATE_BYTES == GATE_BYTES && EMBD_DEVICE_GATE_READY == GATE_READY_AT &&
                   EMBD_DEVICE_GATE_DONE == GATE_DONE_AT && EMBD_DEVICE_GATE_MOST == LIMIT_GATE,
               "the header says what the protocol has");

struct embd_device_call {
    struct device_sending sending; /* first */
    embd_client *client;
    struct embd_device_call *next, *next_free; /* of the client's */
    embd_device_gate gate;                     /* of shard 0, with those of the others behind it */
};

/* ---- the pool ---- */

static embd_device_call *take_call(embd_client *client)
{
    embd_device_call *call = client->free_device_calls;
    if (call != NULL) {
        client->free_device_calls = call->next_free;
        return call;
    }
    call = calloc(1, sizeof *call);
    if (call == NULL) {
        embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a call");
        return NULL;
    }
    call->client = call->sending.client = client;
    call->next = client->device_calls;
    client->device_calls = call;
    return call;
}

static void give_back(embd_device_call *call)
{
    call->next_free = call->client->free_device_calls;
    call->client->free_device_calls = call;
}

void embd__device_calls_init(embd_client *client)
{
    pthread_mutex_init(&client->turns_lock, NULL);
}

void embd__device_calls_fini(embd_client *client)
{
    pthread_mutex_destroy(&client->turns_lock);
    while (client->device_calls != NULL) {
        embd_device_call *call = client->device_calls;
        client->device_calls = call->next;
        embd__device_sending_fini(&call->sending);
        free(call);
    }
}

/* ---- start ---- */

static uint8_t *words_of(const embd_device_call *call, uint32_t shard)
{
    return (uint8_t *)call->gate.words + shard * (size_t)GATE_BYTES;
}

static int check_numbers(embd_client *client, const embd_device_gate *gate)
{
    if (gate->number == 0 || gate->number > LIMIT_GATE || gate->needs >= gate->number)
        return embd__error_set(&client->error, EMBD_INVALID,
                               "gate.number is %u and gate.needs %u; expected 1 to %u, and less",
                               gate->number, gate->needs, LIMIT_GATE);
    return EMBD_OK;
}

/* On the connection that the memory was lent on, while it is there. */
static bool shares_nothing(const embd_client *client, const embd_device_part *part, uint32_t shard)
{
    const struct link *link = client->shards[shard].link;
    bool shares = atomic_load(&embd__link_terms(link)->shares);
    return !shares && embd__device_is_lent(part->keys_in, shard);
}

/* Gates for all shards, in memory that these share. */
static int check_words(embd_client *client, const embd_device_part *part,
                       const embd_device_gate *gate)
{
    struct embd__error *e = &client->error;
    uint32_t n = part->n_gates == 0 ? 1 : part->n_gates;
    if ((uintptr_t)gate->words % GATE_ALIGNMENT != 0 ||
        !embd__shared_has(client->shared, gate->words, n * (uint64_t)GATE_BYTES))
        return embd__error_set(e, EMBD_INVALID,
                               "gate.words is not %u gates of %u bytes, at a multiple of %u, of a "
                               "buffer that the server shares (embd_buffer_new)",
                               n, GATE_BYTES, GATE_ALIGNMENT);
    if (part->n_gates == 0 && client->n_shards > 1)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "part.n_gates is 0, as in programs of an earlier version, and the "
                               "cluster has %u shards, of which each needs a gate",
                               client->n_shards);
    if (n < client->n_shards)
        return embd__error_set(e, EMBD_INVALID,
                               "part.n_gates is %u, and the cluster has %u shards, of which each "
                               "needs a gate",
                               n, client->n_shards);
    for (uint32_t i = 0; i < client->n_shards && client->n_shards > 1; i++)
        if (shares_nothing(client, part, i))
            return embd__error_set(e, EMBD_UNSUPPORTED,
                                   "the server at %s shares no memory with this process",
                                   client->shards[i].address);
    return EMBD_OK;
}

static int check_gate(embd_client *client, const embd_device_part *part,
                      const embd_device_gate *gate)
{
    struct embd__error *e = &client->error;
    if (!client->io.has_thread)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "the client has no thread of its own (own_thread), which lets a "
                               "stream go on when its server is gone");
    if (check_numbers(client, gate) != EMBD_OK)
        return e->status;
    if (client->shared->base == NULL || client->shared->is_off)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "the client shares no memory with servers, or no more since a call "
                               "ended without its answer");
    if (check_words(client, part, gate) != EMBD_OK)
        return e->status;
    return embd__device_check_gates(part->keys_in);
}

static embd_device_call *call_of(const struct device_leg *leg)
{
    return (embd_device_call *)(void *)leg->sending; /* its first member */
}

/* Before the word that ends a part of a pull is raised: a push that needs it fails on all shards,
 * not only where the pull did. */
static void tell_others(const embd_device_call *call)
{
    for (uint32_t i = 0; i < call->sending.n; i++)
        embd__gate_raise(words_of(call, i), GATE_FAILED_AT, call->gate.number);
}

/* The loop's thread. */
static void on_end(void *arg)
{
    struct device_leg *leg = arg;
    embd_client *client = leg->sending->client;
    int status = embd__started_exchange(leg->request)->error.status;
    bool fails_pull = status != EMBD_OK && leg->sending->method == METHOD_DEVICE_PULL;
    if (embd__is_silence(status)) /* the server may raise the words later, too */
        embd__shared_keep(client->shared, leg->turn.gate);
    pthread_mutex_lock(&client->turns_lock);
    if (fails_pull)
        tell_others(call_of(leg));
    embd__gate_end(&client->turns, &leg->turn, fails_pull);
    pthread_mutex_unlock(&client->turns_lock);
}

static void enter(embd_device_call *call)
{
    embd_client *client = call->client;
    for (uint32_t i = 0; i < call->sending.n; i++) {
        uint8_t *words = words_of(call, i);
        embd__shared_hold(client->shared, words);
        pthread_mutex_lock(&client->turns_lock);
        embd__gate_begin(&client->turns, &call->sending.legs[i].turn, words, call->gate.number);
        pthread_mutex_unlock(&client->turns_lock);
    }
}

static void leave(embd_device_call *call)
{
    embd_client *client = call->client;
    pthread_mutex_lock(&client->turns_lock);
    for (uint32_t i = 0; i < call->sending.n; i++)
        embd__gate_leave(&client->turns, &call->sending.legs[i].turn);
    pthread_mutex_unlock(&client->turns_lock);
}

static int send_call(embd_device_call *call, const embd_device_part *part)
{
    embd_client *client = call->client;
    struct device_sending *s = &call->sending;
    const struct device_gate gate = {.at = embd__shared_at(client->shared, call->gate.words),
                                     .number = call->gate.number,
                                     .needs = call->gate.needs};
    s->deadline_ns = uv_hrtime() + (uint64_t)client->options.deadline_ms * 1000000;
    if (embd__device_split(s, part) != EMBD_OK || embd__device_write(s, part, &gate) != EMBD_OK)
        return client->error.status;
    enter(call);
    int status = embd__device_send(s, on_end);
    if (status != EMBD_OK)
        leave(call);
    return status;
}

/* Nothing is sent yet: the call goes by the map that is learnt. */
static int lend(embd_client *client, const embd_device_part *part)
{
    if (embd__device_lend(part) == EMBD_OK || !embd__device_follow(client))
        return client->error.status;
    return embd__device_lend(part);
}

static int start(embd_client *client, const embd_device_part *given, enum method method,
                 const embd_device_gate *gate, embd_device_call **call_out)
{
    embd_device_part part = {0};
    *call_out = NULL;
    if (embd__device_take(client, given, &part) != EMBD_OK || lend(client, &part) != EMBD_OK ||
        check_gate(client, &part, gate) != EMBD_OK)
        return client->error.status;
    embd_device_call *call = take_call(client);
    if (call == NULL)
        return client->error.status;
    call->sending.method = method;
    call->gate = *gate;
    if (send_call(call, &part) == EMBD_OK)
        *call_out = call;
    else
        give_back(call);
    return client->error.status;
}

int embd_device_pull_start(embd_client *client, const embd_device_part *part,
                           const embd_device_gate *gate, embd_device_call **call_out)
{
    return embd__error_keep(&client->error,
                            start(client, part, METHOD_DEVICE_PULL, gate, call_out));
}

int embd_device_push_start(embd_client *client, const embd_device_part *part,
                           const embd_device_gate *gate, embd_device_call **call_out)
{
    return embd__error_keep(&client->error,
                            start(client, part, METHOD_DEVICE_PUSH, gate, call_out));
}

/* ---- end ---- */

uint32_t embd_device_call_shards(const embd_device_call *call)
{
    return call->sending.n;
}

bool embd_device_is_done(embd_device_call *call)
{
    for (uint32_t i = 0; i < call->sending.n; i++)
        if (!embd__started_is_done(call->sending.legs[i].request))
            return false;
    return true;
}

/* Its stream has gone on, so it is not made again; the next one goes by the map that is learnt. */
static void end_failed(struct device_sending *s, int status)
{
    embd_client *client = s->client;
    struct embd__error *e = &client->error;
    bool is_news = embd__device_learn(s);
    if (is_news && status == EMBD_UNSUPPORTED) {
        embd__error_set(e, EMBD_MOVED,
                        "the call went to the only shard, and the cluster has %u now: it was not "
                        "made, and the next one goes to all",
                        client->n_shards);
        return;
    }
    embd__device_outcome(s);
    size_t at = strlen(e->text);
    if (is_news && embd__device_is_untaken(s))
        snprintf(e->text + at, sizeof e->text - at,
                 "; the call was not made, and the next one goes by that version");
}

int embd_device_wait(embd_device_call *call)
{
    embd_client *client = call->client;
    embd__device_await(&call->sending);
    int status = embd__device_outcome(&call->sending);
    if (status != EMBD_OK)
        end_failed(&call->sending, status);
    give_back(call);
    return embd__error_keep(&client->error, client->error.status);
}
