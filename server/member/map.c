/* map.c - the map of the cluster between etcd and the shards:
 *
 *     {"version": 3, "servers": {"a": [{"address": "10.0.0.7:7700", "admin":
 * "/run/embd/7700.sock"}]}}
 *
 * A server has a list of its shards. Whoever changes the map leaves the others' entries as they
 * are, also those of servers it does not know. What is read is checked like any peer's word: text
 * of bounded length, for shards that there are. */
#include "server/member/map.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES  300u                  /* of an address, or a path */
#define VERSION_MAX ((json_int_t)1 << 53) /* far from where counting on would overflow */

/* ---- copies ---- */

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
        to[i] = strdup(from[i]);
        is_whole = to[i] != NULL;
    }
    return is_whole;
}

void map_fini(struct member_map *map)
{
    list_free(map->addresses, map->n_shards);
    list_free(map->admin_addresses, map->n_shards);
    list_free(map->admin_hosts, map->n_shards);
    *map = (struct member_map){0};
}

int map_copy(const struct member_map *from, struct member_map *out, struct embd__error *e)
{
    uint32_t n = from->n_shards;
    *out = (struct member_map){.version = from->version,
                               .n_shards = n,
                               .addresses = list_new(n),
                               .admin_addresses = list_new(n),
                               .admin_hosts = list_new(n)};
    if (list_copy(out->addresses, from->addresses, n) &&
        list_copy(out->admin_addresses, from->admin_addresses, n) &&
        list_copy(out->admin_hosts, from->admin_hosts, n))
        return EMBD_OK;
    map_fini(out);
    return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the map of the cluster");
}

/* ---- reading ---- */

/* Printable ASCII, not too long; an empty text only where it may be. */
static bool is_text(const json_t *value, bool may_be_empty)
{
    const char *text = json_string_value(value);
    if (text == NULL || strlen(text) > TEXT_BYTES || (!may_be_empty && text[0] == '\0'))
        return false;
    for (; *text != '\0'; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

static bool set(char **to, const json_t *value)
{
    const char *text = json_string_value(value);
    char *copy = strdup(text != NULL ? text : "");
    if (copy == NULL)
        return false;
    free(*to);
    *to = copy;
    return true;
}

static int read_shard(const json_t *entry, const char *server, uint32_t shard,
                      struct member_map *map, struct embd__error *e)
{
    const json_t *address = json_object_get(entry, "address"),
                 *admin = json_object_get(entry, "admin"),
                 *host = json_object_get(entry, "admin_tcp");
    if (!is_text(address, false) || (admin != NULL && !is_text(admin, true)) ||
        (host != NULL && !is_text(host, true)))
        return embd__error_set(
            e, EMBD_CORRUPT, "the map in etcd: server '%.60s' has no readable address of shard %u",
            server, shard);
    if (!set(&map->addresses[shard], address) || !set(&map->admin_addresses[shard], admin) ||
        !set(&map->admin_hosts[shard], host))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the map of the cluster");
    return EMBD_OK;
}

static int read_server(const json_t *list, const struct member_server *server,
                       struct member_map *map, struct embd__error *e)
{
    if (list == NULL)
        return EMBD_OK;
    if (!json_is_array(list) || json_array_size(list) != server->n_shards)
        return embd__error_set(e, EMBD_CORRUPT,
                               "the map in etcd: server '%.60s' has %zu shards, the configuration "
                               "says %u",
                               server->name, json_array_size(list), server->n_shards);
    for (uint32_t i = 0; i < server->n_shards; i++)
        if (read_shard(json_array_get(list, i), server->name, server->first_shard + i, map, e) !=
            EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* The object; NULL: it is not a map. */
static json_t *parse(const char *text, struct embd__error *e)
{
    json_error_t why;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    json_int_t version = json_integer_value(json_object_get(object, "version"));
    if (json_is_object(json_object_get(object, "servers")) && version > 0 && version <= VERSION_MAX)
        return object;
    json_decref(object);
    embd__error_set(e, EMBD_CORRUPT, "the map in etcd is not an object with version and servers");
    return NULL;
}

int map_read(const char *text, const struct member_server *servers, uint32_t n_servers,
             struct member_map *map, struct embd__error *e)
{
    struct member_map next;
    if (map_copy(map, &next, e) != EMBD_OK)
        return e->status;
    json_t *object = parse(text, e);
    const json_t *list = json_object_get(object, "servers");
    for (uint32_t i = 0; i < n_servers && e->status == EMBD_OK; i++)
        read_server(json_object_get(list, servers[i].name), &servers[i], &next, e);
    next.version = (uint64_t)json_integer_value(json_object_get(object, "version"));
    json_decref(object);
    if (e->status != EMBD_OK) {
        map_fini(&next);
        return e->status;
    }
    map_fini(map);
    *map = next;
    return EMBD_OK;
}

/* ---- writing ---- */

static json_t *write_server(const struct member_server *self, const struct member_map *map)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < self->n_shards; i++) {
        uint32_t shard = self->first_shard + i;
        json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "address", map->addresses[shard],
                                              "admin", map->admin_addresses[shard], "admin_tcp",
                                              map->admin_hosts[shard]));
    }
    return list;
}

char *map_write(const char *before, const struct member_server *self, const struct member_map *map,
                uint64_t known, struct embd__error *e)
{
    char *text = NULL;
    json_t *object = before != NULL ? parse(before, e)
                                    : json_pack("{s:I,s:{}}", "version", (json_int_t)1, "servers");
    if (object == NULL)
        return NULL;
    json_t *servers = json_object_get(object, "servers"), *own = write_server(self, map);
    if (!json_equal(json_object_get(servers, self->name), own)) {
        json_int_t version = json_integer_value(json_object_get(object, "version"));
        version = version > (json_int_t)known ? version : (json_int_t)known;
        json_object_set(servers, self->name, own);
        json_object_set_new(object, "version", json_integer(version + 1));
        text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
        if (text == NULL)
            embd__error_set(e, EMBD_NO_MEMORY, "no memory for the map of the cluster");
    }
    json_decref(own);
    json_decref(object);
    return text;
}
