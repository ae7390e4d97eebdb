/* places.c - see places.h. */
#include "server/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where clients reach a port of a server. */
static char *name_address(const struct config_server *server, const struct listen_address *address,
                          uint16_t port)
{
    char text[sizeof server->advertise + 16];
    bool has_colon = strchr(server->advertise, ':') != NULL;
    if (server->advertise[0] != '\0')
        snprintf(text, sizeof text, has_colon ? "[%s]:%u" : "%s:%u", server->advertise, port);
    else
        listen_address_write(address, port, text, sizeof text);
    return strdup(text);
}

/* The texts are taken. */
static int name_shard(struct places *places, uint32_t shard, char *address, char *admin_address,
                      char *admin_host, struct embd__error *e)
{
    places->addresses[shard] = address;
    places->admin_addresses[shard] = admin_address;
    places->admin_hosts[shard] = admin_host;
    if (address == NULL || admin_address == NULL || admin_host == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
    return EMBD_OK;
}

static int list_shard(struct places *places, const struct config *config,
                      const struct config_server *server, struct loop *const *loops, uint32_t i,
                      struct embd__error *e)
{
    char own[24];
    snprintf(own, sizeof own, "inproc:%u", i);
    if (server->is_private)
        return name_shard(places, server->first_shard + i, strdup(own), strdup(""), strdup(""), e);
    bool is_self = server == &config->servers[config->self];
    bool is_known = is_self || server->is_listed || !config->has_etcd;
    uint32_t shard = server->first_shard + i;
    uint16_t port = is_self ? loop_port(loops[i]) : (uint16_t)(server->address.port + i);
    uint16_t admin = 0;
    if (server->has_admin)
        admin = is_self ? loop_admin_port(loops[i]) : (uint16_t)(server->admin.port + i);
    char path[108];
    if (admin_socket_path(server->admin_dir, port, path, e) != EMBD_OK)
        return e->status;
    return name_shard(places, shard,
                      is_known ? name_address(server, &server->address, port) : strdup(""),
                      strdup(is_known ? path : ""),
                      admin != 0 ? name_address(server, &server->admin, admin) : strdup(""), e);
}

int places_init(struct places *places, const struct config *config, struct loop *const *loops,
                struct embd__error *e)
{
    *places = (struct places){.addresses = calloc(LIMIT_SHARDS, sizeof(char *)),
                              .admin_addresses = calloc(LIMIT_SHARDS, sizeof(char *)),
                              .admin_hosts = calloc(LIMIT_SHARDS, sizeof(char *))};
    if (places->addresses == NULL || places->admin_addresses == NULL || places->admin_hosts == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
    int status = EMBD_OK;
    for (uint32_t s = 0; s < config->n_servers; s++)
        for (uint32_t i = 0; i < config->servers[s].shards && status == EMBD_OK; i++)
            status = list_shard(places, config, &config->servers[s], loops, i, e);
    return status;
}

int places_add(struct places *places, const struct config *config, struct loop *const *loops,
               uint32_t shard, struct embd__error *e)
{
    const struct config_server *self = &config->servers[config->self];
    return list_shard(places, config, self, loops, shard - self->first_shard, e);
}

int places_set(struct places *places, uint32_t shard, const struct shard_entry *entry,
               struct embd__error *e)
{
    free(places->addresses[shard]);
    free(places->admin_addresses[shard]);
    free(places->admin_hosts[shard]);
    return name_shard(places, shard, strdup(entry->address), strdup(entry->admin),
                      strdup(entry->admin_tcp), e);
}

static void free_list(char **list)
{
    for (uint32_t i = 0; list != NULL && i < LIMIT_SHARDS; i++)
        free(list[i]);
    free(list);
}

void places_fini(struct places *places)
{
    free_list(places->addresses);
    free_list(places->admin_addresses);
    free_list(places->admin_hosts);
}
