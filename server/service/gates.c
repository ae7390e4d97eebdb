/* gates.c - see gates.h. The memory is the peer's, who may write there what it likes: a word says
 * when a request is handled, and nothing else depends on it. */
#include "server/service/gates.h"

#include "server/service/behind.h"
#include "server/service/state.h"

#define GATE_LONGEST_NS UINT64_C(60000000000)

/* Of its gate. */
static uint8_t *memory_of(const struct request *request)
{
    return request->session->shared.base + request->gate.at;
}

static bool is_open(const struct request *request)
{
    return embd__gate_has(memory_of(request), GATE_READY_AT, request->gate.number);
}

bool gate_is_open(struct call *call)
{
    struct request *request = call->request;
    const struct shared_memory *shared = &request->session->shared;
    struct device_batch batch;
    bool is_push = call->reader.method == METHOD_DEVICE_PUSH;
    bool counts = push_progress_counts(&call->reader);
    request->gate.number = 0;
    if (embd__device_batch_read(&call->reader, is_push, &batch) != EMBD_OK ||
        batch.gate.number == 0 || shared->base == NULL || shared->bytes < GATE_BYTES ||
        batch.gate.at > shared->bytes - GATE_BYTES)
        return true;
    request->gate = batch.gate;
    request->is_lent_pull = !is_push;
    request->is_push = counts;
    return is_open(request);
}

void gate_park(struct shard *shard, struct request *request)
{
    shard->counters.parked++;
    request->state = REQUEST_PARKED;
    request->waits = WAITS_GATE;
    request->session->gated = request;
    request->next = shard->gated;
    shard->gated = request;
    if (request->session->has_ended)
        gate_refuse_ended(shard, request);
}

void gate_drop(struct shard *shard, struct request *request)
{
    struct request **at = &shard->gated;
    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    request->next = NULL;
    request->session->gated = NULL;
    request->state = REQUEST_RECEIVED;
}

void gate_refuse(struct shard *shard, struct request *request, int status, const char *why)
{
    struct shard_session *session = request->session;
    struct embd__error e = {0};
    embd__error_set(&e, status, "a call in lent memory whose keys were not written yet: %s", why);
    gate_drop(shard, request);
    gate_enter(request);
    behind_go_on(shard, session);
    call_answer(shard, request, &e);
}

void gate_refuse_ended(struct shard *shard, struct request *request)
{
    gate_refuse(shard, request, EMBD_CLOSED, "the peer has closed its side of the connection");
}

/* It goes before those behind it, and is read again. */
static void go_on(struct shard *shard, struct request *request)
{
    gate_drop(shard, request);
    hold_park(&shard->hold, request);
    behind_go_on(shard, request->session);
}

bool gates_look(struct shard *shard)
{
    struct request *next, *late = NULL; /* one at a time: an answer may end a connection */
    bool any = false;
    for (struct request *request = shard->gated; request != NULL; request = next) {
        next = request->next;
        if (is_open(request))
            go_on(shard, request);
        else if (shard->now_ns > request->received_ns + GATE_LONGEST_NS)
            late = request;
        else
            continue;
        any = true;
    }
    if (late != NULL)
        gate_refuse(shard, late, EMBD_DEADLINE, "the stream has not come to it in 60 s");
    return any;
}

/* ---- from a gate to the answer ---- */

void gate_enter(struct request *request)
{
    embd__gate_begin(&request->session->turns, &request->turn, memory_of(request),
                     request->gate.number);
}

/* The pull that it needs has failed: at its own gate, or at one of those of other shards. */
static bool has_lost(const struct request *request, const struct device_gate *gate)
{
    const uint8_t *all = request->session->shared.base + gate->all_at;
    for (uint32_t i = 0; i < gate->n_all; i++)
        if (embd__gate_has(all + i * (uint64_t)GATE_BYTES, GATE_FAILED_AT, gate->needs))
            return true;
    return embd__gate_has(memory_of(request), GATE_FAILED_AT, gate->needs);
}

int gate_check(struct call *call, const struct device_gate *gate)
{
    const struct request *request = call->request;
    const struct shared_memory *shared = &request->session->shared;
    if (gate->number != 0 && request->gate.number == 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "%s: the gate at %llu has %u bytes; the connection shares %llu",
                               call->reader.method_name, (unsigned long long)gate->at, GATE_BYTES,
                               (unsigned long long)shared->bytes);
    if (gate->all_at > shared->bytes ||
        gate->n_all > (shared->bytes - gate->all_at) / GATE_BYTES) /* 0: there are none */
        return embd__error_set(
            &call->error, EMBD_INVALID,
            "%s: %u gates at %llu have %u bytes each; the connection shares %llu",
            call->reader.method_name, gate->n_all, (unsigned long long)gate->all_at, GATE_BYTES,
            (unsigned long long)shared->bytes);
    if (gate->number != 0 && embd__gate_has(memory_of(request), GATE_DONE_AT, gate->number))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "%s: call %u of its gate has ended already: its client has given it "
                               "up, or numbers do not rise",
                               call->reader.method_name, gate->number);
    if (gate->needs != 0 && has_lost(request, gate))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "%s: it needs call %u of its gate, which has failed",
                               call->reader.method_name, gate->needs);
    return EMBD_OK;
}
