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

void *embd__lent_take_block(struct embd_call *call, uint64_t bytes)
{
    struct shared_use *use = embd__arena_take(&call->arena, sizeof *use);
    void *block = use == NULL ? NULL : embd__shared_take(call->client->shared, bytes, false);
    if (block == NULL)
        return NULL;
    *use = (struct shared_use){call->uses, block};
    call->uses = use;
    return block;
}

void embd__lent_give_back(struct embd_call *call)
{
    struct shared *shared = call->client->shared;
    bool loose = embd__lent_is_loose(call);
    for (struct shared_use *use = call->uses; use != NULL && !loose; use = use->next)
        embd__shared_give(shared, use->block);
    call->uses = NULL;
    if (loose)
        embd__shared_detach(shared);
}
