/* map_lists.c - copies of the lists of a map. */
#include <stdlib.h>
#include <string.h>

#include "server/member/map.h"

static char **list_new(uint32_t n)
{
    return calloc(n, sizeof(char *));
}

static void list_free(char **list, uint32_t n)
{
    for (uint32_t i = 0; list != NULL && i < n; i++)
        free(list[i]);
    free(list);
}

static bool list_copy(char **to, char **from, uint32_t n)
{
    bool is_whole = to != NULL;
    for (uint32_t i = 0; is_whole && i < n; i++) {
        to[i] = strdup(from[i] != NULL ? from[i] : "");
        is_whole = to[i] != NULL;
    }
    return is_whole;
}

void map_fini(struct member_map *map)
{
    list_free(map->addresses, map->n_shards);
    list_free(map->admin_addresses, map->n_shards);
    list_free(map->admin_hosts, map->n_shards);
    free(map->placements);
    *map = (struct member_map){0};
}

int map_copy(const struct member_map *from, struct member_map *out, struct embd__error *e)
{
    uint32_t n = from->n_shards;
    *out = (struct member_map){.version = from->version,
                               .n_shards = n,
                               .addresses = list_new(n),
                               .admin_addresses = list_new(n),
                               .admin_hosts = list_new(n),
                               .placements = calloc(n, sizeof *out->placements)};
    if (out->placements != NULL && from->placements != NULL)
        memcpy(out->placements, from->placements, n * sizeof *out->placements);
    if (out->placements != NULL && list_copy(out->addresses, from->addresses, n) &&
        list_copy(out->admin_addresses, from->admin_addresses, n) &&
        list_copy(out->admin_hosts, from->admin_hosts, n))
        return EMBD_OK;
    map_fini(out);
    return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the map of the cluster");
}
