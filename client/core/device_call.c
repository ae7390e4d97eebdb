/* device_call.c - embd/device.h: calls in lent memory of a GPU that begin and end in the order of a
 * stream of the caller's.
 *
 * The happy path: the request goes out at once; the server waits for the gate's word, then works,
 * and raises the other word, for which the stream waits. The answer comes by the socket behind that
 * and is read by embd_device_wait. What can fail: whatever ends the request, the loop's thread
 * raises the word too, so that no stream waits for a server that is gone. */
#include <pthread.h>
#include <stdlib.h>

#include "client/core/client.h"
#include "client/core/device_part.h"

_Static_assert(EMBD_DEVICE_GATE_BYTES == GATE_BYTES && EMBD_DEVICE_GATE_READY == GATE_READY_AT &&
                   EMBD_DEVICE_GATE_DONE == GATE_DONE_AT && EMBD_DEVICE_GATE_MOST == LIMIT_GATE,
               "the header says what the protocol has");

struct embd_device_call {
    embd_client *client;
    struct embd_device_call *next, *next_free; /* of the client's */
    struct started_request *request;
    enum method method;
    embd_device_gate gate;
    struct gate_turn turn; /* guarded by the client's turns_lock */
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
    if (call == NULL || embd__started_new(client, &call->request) != EMBD_OK) {
        free(call);
        embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a call");
        return NULL;
    }
    call->client = client;
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
        embd__started_free(call->request);
        free(call);
    }
}

/* ---- start ---- */

static int check_gate(embd_client *client, const embd_device_part *part,
                      const embd_device_gate *gate)
{
    struct embd__error *e = &client->error;
    if (!client->io.has_thread)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "the client has no thread of its own (own_thread), which lets a "
                               "stream go on when its server is gone");
    if (gate->number == 0 || gate->number > LIMIT_GATE || gate->needs >= gate->number)
        return embd__error_set(e, EMBD_INVALID,
                               "gate.number is %u and gate.needs %u; expected 1 to %u, and less",
                               gate->number, gate->needs, LIMIT_GATE);
    if (client->shared->base == NULL || client->shared->is_off)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "the client shares no memory with servers, or no more since a call "
                               "ended without its answer");
    if ((uintptr_t)gate->words % GATE_ALIGNMENT != 0 ||
        !embd__shared_has(client->shared, gate->words, GATE_BYTES))
        return embd__error_set(e, EMBD_INVALID,
                               "gate.words is not %u bytes, at a multiple of %u, of a buffer that "
                               "the server shares (embd_buffer_new)",
                               GATE_BYTES, GATE_ALIGNMENT);
    return embd__device_check_gates(part->keys_in);
}

/* The loop's thread. */
static void on_end(void *arg)
{
    embd_device_call *call = arg;
    embd_client *client = call->client;
    int status = embd__started_status(call->request);
    if (embd__is_silence(status)) /* the server may raise the words later, too */
        embd__shared_keep(client->shared, call->gate.words);
    pthread_mutex_lock(&client->turns_lock);
    embd__gate_end(&client->turns, &call->turn, status != EMBD_OK);
    pthread_mutex_unlock(&client->turns_lock);
}

static void enter(embd_device_call *call)
{
    embd_client *client = call->client;
    embd__shared_hold(client->shared, call->gate.words);
    pthread_mutex_lock(&client->turns_lock);
    embd__gate_begin(&client->turns, &call->turn, call->gate.words, call->gate.number);
    pthread_mutex_unlock(&client->turns_lock);
}

static void leave(embd_device_call *call)
{
    embd_client *client = call->client;
    pthread_mutex_lock(&client->turns_lock);
    embd__gate_leave(&client->turns, &call->turn);
    pthread_mutex_unlock(&client->turns_lock);
}

static int send_call(embd_device_call *call, const embd_device_part *part)
{
    embd_client *client = call->client;
    struct device_batch batch = embd__device_batch_of(part);
    batch.gate = (struct device_gate){embd__shared_at(client->shared, call->gate.words),
                                      call->gate.number, call->gate.needs};
    embd__device_batch_write(embd__started_begin(call->request, call->method), &batch);
    enter(call);
    int status = embd__started_send(call->request, 0, on_end, call);
    if (status != EMBD_OK)
        leave(call);
    return status;
}

static int start(embd_client *client, const embd_device_part *given, enum method method,
                 const embd_device_gate *gate, embd_device_call **call_out)
{
    embd_device_part part = {0};
    *call_out = NULL;
    if (embd__device_take(client, given, &part) != EMBD_OK ||
        embd__device_lend_again(&part) != EMBD_OK || check_gate(client, &part, gate) != EMBD_OK)
        return client->error.status;
    embd_device_call *call = take_call(client);
    if (call == NULL)
        return client->error.status;
    call->method = method;
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

bool embd_device_is_done(embd_device_call *call)
{
    return embd__started_is_done(call->request);
}

int embd_device_wait(embd_device_call *call)
{
    embd_client *client = call->client;
    struct answer *answer;
    client->error = (struct embd__error){0};
    int status = embd__started_wait(call->request, &answer);
    if (status == EMBD_OK)
        status = embd__device_end(client, call->method, answer);
    give_back(call);
    return embd__error_keep(&client->error, status);
}
