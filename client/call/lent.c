/* lent.c - memory of a call that servers on this host share (client/io/shared.h): blocks for its
 * rows and gradients, until it ends. The caller's own arrays may lie there, too: buffers.c.
 *
 * Where a call ended without an answer, and its server lives, the server may still write rows, or
 * read gradients. So the call's blocks are never used again. If the caller has buffers, they become
 * the caller's alone, and the client shares nothing any more. */
#include "client/call/call.h"

struct shared_use {
    struct shared_use *next;
    void *block;
};

void embd__lent_begin(struct embd_call *call)
{
    embd_client *client = call->client;
    call->uses = NULL;
    call->shares = false;
    for (uint32_t s = 0; s < client->n_shards && !client->shared->is_off && call->replica == 0; s++)
        call->shares |= embd__link_shares(client->shards[s].link);
}

void *embd__lent_take(struct embd_call *call, uint64_t bytes)
{
    if (!call->shares || bytes < SHARED_LEAST_BYTES_OF_CALL)
        return NULL;
    struct shared_use *use = embd__arena_take(&call->arena, sizeof *use);
    void *block = use == NULL ? NULL : embd__shared_take(call->client->shared, bytes, false);
    if (block == NULL)
        return NULL;
    *use = (struct shared_use){call->uses, block};
    call->uses = use;
    return block;
}

uint64_t embd__lent_into(const struct embd_call *call, uint32_t shard, const void *to,
                         uint64_t bytes)
{
    const struct shared *shared = call->client->shared;
    if (!call->shares || !embd__link_shares(call->client->shards[shard].link) ||
        !embd__shared_has(shared, to, bytes))
        return 0;
    uint64_t at = embd__shared_at(shared, to);
    return at % 8 == 0 ? at : 0;
}

void embd__lent_name(const struct embd_call *call, struct message *message)
{
    const struct shared *shared = call->client->shared;
    if (!call->shares || !embd__link_shares(message->x.link))
        return;
    const struct shared_range range = {shared->base, shared->bytes};
    embd__msg_share(&message->x.msg, &range);
}

static bool is_loose(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->messages[i]->x.is_loose)
            return true;
    return false;
}

void embd__lent_end(struct embd_call *call)
{
    struct shared *shared = call->client->shared;
    bool loose = call->shares && is_loose(call);
    for (struct shared_use *use = call->uses; use != NULL && !loose; use = use->next)
        embd__shared_give(shared, use->block);
    call->uses = NULL;
    if (loose)
        embd__shared_detach(shared);
}
