/* shard_link.c - the links of a shard: to its data listener, and to its admin listener, which
 * connects with its first request. */
#include "client/core/client.h"

int embd__shard_link(embd_client *client, uint32_t i, uint32_t n_shards)
{
    struct client_shard *shard = &client->shards[i];
    struct link_config config = embd__link_config(client, shard->address);
    config.shard = i;
    config.n_shards = n_shards;
    config.client_id = client->id;
    config.transport = client->transport;
    config.shared = client->shared;
    config.rings = &client->io.rings;
    config.trunks = client->dialer == NULL ? &client->io.trunks : NULL;
    config.pool = &client->io.links;
    config.on_unreached = client->dialer == NULL ? embd__map_refresh : NULL;
    config.arg = client;
    int status = embd__link_open(&config, &shard->link, &client->error);
    if (status != EMBD_OK)
        return status;
    config.client_id = 0;
    config.trunks = NULL;
    config.pool = NULL; /* it is seldom needed */
    config.transport = TRANSPORT_TCP;
    if (!embd__choose_admin(shard, &config))
        return EMBD_OK;
    if (config.is_path)
        config.credentials = NULL;
    shard->asks_admin = client->came_by_socket && config.is_path;
    return embd__link_open(&config, &shard->admin, &client->error);
}
