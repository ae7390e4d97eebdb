/* shard_map.c - where the shards of the cluster are: one block of memory that goes from the thread
 * which learns of it to a shard's. */
#include <stdlib.h>
#include <string.h>

#include "server/service/state.h"

static size_t bytes_of(const char *const *list, uint32_t n)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += strlen(list[i]) + 1;
    return bytes;
}

/* Copies the texts to `at` and returns where the next ones go. */
static char *put(const char **to, const char *const *list, uint32_t n, char *at)
{
    for (uint32_t i = 0; i < n; i++) {
        to[i] = at;
        at = stpcpy(at, list[i]) + 1;
    }
    return at;
}

struct shard_map *shard_map_new(uint64_t version, uint32_t n_shards, const char *const *addresses,
                                const char *const *admin_addresses, const char *const *admin_hosts)
{
    size_t lists_bytes = 3 * (size_t)n_shards * sizeof(char *);
    struct shard_map *map =
        malloc(sizeof *map + lists_bytes + bytes_of(addresses, n_shards) +
               bytes_of(admin_addresses, n_shards) + bytes_of(admin_hosts, n_shards));
    if (map == NULL)
        return NULL;
    const char **lists = (const char **)(map + 1);
    char *at = (char *)(lists + 3 * (size_t)n_shards);
    map->version = version;
    map->addresses = lists;
    map->admin_addresses = lists + n_shards;
    map->admin_hosts = lists + 2 * (size_t)n_shards;
    at = put(lists, addresses, n_shards, at);
    at = put(lists + n_shards, admin_addresses, n_shards, at);
    put(lists + 2 * (size_t)n_shards, admin_hosts, n_shards, at);
    return map;
}

void shard_set_map(struct shard *shard, struct shard_map *map)
{
    shard->config.map_version = map->version;
    shard->config.addresses = map->addresses;
    shard->config.admin_addresses = map->admin_addresses;
    shard->config.admin_hosts = map->admin_hosts;
    free(shard->map);
    shard->map = map;
}

struct shard_map shard_map_of_admins(const struct shard *shard)
{
    const struct shard_config *config = &shard->config;
    if (shard->following != NULL && config->own_map != NULL)
        return *config->own_map;
    return (struct shard_map){config->map_version, config->addresses, config->admin_addresses,
                              config->admin_hosts};
}
