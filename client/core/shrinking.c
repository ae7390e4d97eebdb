/* shrinking.c - the cluster of a handle has fewer shards than the handle: the last ones have left.
 *
 * The happy path: a shard has answered EMBD_MOVED, and the map lacks the client's last shards
 * (placement.c), or the loop's thread has found that so (map_refresh.c). Their links are given up:
 * nothing is dialed any more, and what waits there ends with EMBD_MOVED, as if the shard had said
 * it. The entries stay, since messages that have ended name their links, until the handle is closed
 * or another shard gets the number: nothing of the one before is kept for it. */
#include <stdlib.h>

#include "client/core/client.h"
#include "client/io/link_figures.h"

static uint64_t read_counter(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

static void leave(embd_client *client, uint32_t i)
{
    static const char why[] = "the shard has left the cluster";
    struct client_shard *shard = &client->shards[i];
    const struct link_figures *f = embd__link_figures(shard->link);
    embd__link_retire(shard->link, why);
    if (shard->admin != NULL)
        embd__link_retire(shard->admin, why);
    client->left_restarts += read_counter(&f->restarts);
    client->left_rollbacks += read_counter(&f->rollbacks);
    client->left_replicated_rollbacks += read_counter(&f->replicated_rollbacks);
    embd__numbering_leave(client, i);
}

/* The loop of a handle with a thread of its own stands still for it. */
int embd__client_shrink(embd_client *client, uint32_t n)
{
    bool has_thread = client->io.has_thread;
    embd__io_stop_thread(&client->io);
    client->n_shards = n;
    while (client->n_linked > n)
        leave(client, --client->n_linked);
    return has_thread ? embd__io_go_on(&client->io, &client->error) : EMBD_OK;
}

/* ---- another shard has the number ---- */

int embd__left_set_aside(embd_client *client, uint32_t i)
{
    struct client_shard *shard = &client->shards[i];
    struct left_shard *left = calloc(1, sizeof *left);
    if (left == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for shards that left");
    left->shard = *shard;
    left->next = client->left;
    client->left = left;
    *shard = (struct client_shard){.link = NULL};
    return EMBD_OK;
}

void embd__left_close(embd_client *client)
{
    for (struct left_shard *left = client->left; left != NULL; left = left->next) {
        embd__link_close(left->shard.link);
        if (left->shard.admin != NULL)
            embd__link_close(left->shard.admin);
    }
}

void embd__left_fini(embd_client *client)
{
    while (client->left != NULL) {
        struct left_shard *left = client->left;
        client->left = left->next;
        free(left->shard.texts);
        free(left);
    }
}
