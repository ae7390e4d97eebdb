/* growth.c - the cluster of a handle has more shards than when it connected.
 *
 * The happy path: a shard has answered EMBD_MOVED, and the map has shards behind the client's
 * (placement.c). Links to these are opened and connected; then what the client has on each shard is
 * made there: ids of tables, streams of its pushes, workers of jobs. At last they count. Lists have
 * room for all shards that there can be, so nothing moves that the loop's thread or a call in
 * flight looks at; calls keep the number of shards that they were split for.
 *
 * What can fail: a new shard cannot be reached. Then the client's shards are as they were, and the
 * next call that is refused tries again. */
#include "client/core/clocks.h"
#include "client/core/client.h"
#include "client/core/request.h"

/* The loop of a handle with a thread of its own stands still for it. */
static int open_links(embd_client *client, const struct shard_entry *entries, uint32_t n,
                      uint64_t version)
{
    struct io_thread *io = &client->io;
    bool has_thread = io->has_thread;
    int status = EMBD_OK;
    embd__io_stop_thread(io);
    if (client->n_linked < n && version < client->map_refresh.version)
        client->map_refresh.version = version; /* a server that is behind may have them elsewhere */
    for (uint32_t i = client->n_linked; i < n && status == EMBD_OK; i++) {
        struct client_shard *shard = &client->shards[i];
        if (shard->link != NULL)
            status = embd__left_set_aside(client, i);
        if (status == EMBD_OK && shard->texts == NULL)
            status = embd__shard_keep(shard, &entries[i - client->n_shards], &client->error);
        if (status == EMBD_OK)
            status = embd__shard_link(client, i, n);
        client->n_linked += shard->link != NULL;
    }
    if (has_thread && embd__io_go_on(io, &client->error) != EMBD_OK)
        return client->error.status;
    return status;
}

static int ping(embd_client *client, uint32_t shard)
{
    struct answer *answer;
    embd__msg_map(embd__request_begin(client, METHOD_PING), 0);
    int status = embd__request_on(client, client->shards[shard].link, &answer);
    if (status == EMBD_OK)
        embd__answer_free(answer);
    return status;
}

static int grow_on(embd_client *client, uint32_t shard)
{
    int status = ping(client, shard);
    for (struct embd_table *t = client->tables; t != NULL && status == EMBD_OK; t = t->next)
        status = embd__table_grow(client, t, shard);
    return status == EMBD_OK ? embd__numbering_grow(client, shard) : status;
}

int embd__client_grow(embd_client *client, const struct shard_entry *entries, uint32_t n,
                      uint64_t version)
{
    int status = open_links(client, entries, n, version);
    for (uint32_t shard = client->n_shards; shard < n && status == EMBD_OK; shard++)
        status = grow_on(client, shard);
    if (status != EMBD_OK)
        return status;
    embd__members_grow(client, n);
    client->n_shards = n;
    return EMBD_OK;
}
