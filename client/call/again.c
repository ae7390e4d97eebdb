/* again.c - calls that are sent a second time: by a newer map of keys (moved.c), or to the cluster
 * where a replica did not answer. */
#include "client/call/call.h"

/* ---- again ---- */

/* The numbers that its messages have, and those of shards that it had none for; and their deadline.
 */
static int keep_numbers(struct embd_call *call, uint64_t *deadline_ns_out)
{
    uint32_t n = call->client->n_shards;
    call->again = embd__arena_array(&call->arena, n, sizeof *call->again);
    if (call->again == NULL)
        return EMBD_NO_MEMORY;
    for (uint32_t s = 0; s < n; s++)
        call->again[s] = s >= call->n_shards && call->own != NULL
                             ? embd__numbering_take(&call->client->numbering, &call->own[s])
                             : call->extra.number;
    for (uint32_t i = call->n_openings; i < call->n_messages && call->own != NULL; i++) {
        const struct message *message = call->messages[i];
        if (message->shard >= n)
            continue; /* it has left */
        call->again[message->shard].stream = message->stream;
        call->again[message->shard].sequence = message->sequence;
    }
    *deadline_ns_out = call->messages[call->n_openings]->x.deadline_ns;
    return EMBD_OK;
}

static void send_again(struct embd_call *call, uint64_t deadline_ns)
{
    embd__lent_end(call);
    call->n_messages = call->n_openings = 0;
    embd__lent_begin(call);
    call->again_status = embd__call_prepare(call);
    if (call->again_status != EMBD_OK)
        return;
    for (uint32_t i = 0; i < call->n_messages; i++)
        call->messages[i]->x.deadline_ns = deadline_ns;
    embd__call_submit(call);
}

void embd__call_again(struct embd_call *call)
{
    uint64_t deadline_ns;
    call->replica = 0;
    call->again_status = keep_numbers(call, &deadline_ns);
    if (call->again_status == EMBD_OK)
        send_again(call, deadline_ns);
}

/* ---- replicas ---- */

static const struct exchange *first_failed(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->exchanges[i]->error.status != EMBD_OK)
            return call->exchanges[i];
    return NULL;
}

/* A request that the replica has refused says nothing of its health. */
static uint64_t rest_of(const struct exchange *failed)
{
    if (!embd__is_silence(failed->error.status))
        return 0;
    return failed->is_refused ? REPLICA_REST_LAG_NS : REPLICA_REST_NS;
}

void embd__call_leave_replica(struct embd_call *call)
{
    const struct exchange *failed = first_failed(call);
    if (failed == NULL)
        return;
    embd__replica_rest(call->client, call->replica, rest_of(failed));
    call->replica = 0;
    send_again(call, call->deadline_ns);
    embd__io_await(&call->client->io, &call->job);
}
