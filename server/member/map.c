/* map.c - the map of the cluster between etcd and the shards:
 *
 *     {"version": 3, "servers": {"a": [{"address": "10.0.0.7:7700", "admin":
 * "/run/embd/7700.sock", "shard": 0, "placement": 1}]}}
 *
 * A server has a list of its shards, each with its number and the version of the placement by
 * which it was put. A server of the configuration is found by its name, one that was added since by
 * the numbers of its shards. Whoever changes the map leaves the others' entries as they are, also
 * those of servers it does not know, but for a server that had the same shards by an earlier
 * placement: it has left the cluster. What is read is checked like any peer's word: text of bounded
 * length, for shards that there can be. Servers of earlier versions put entries without number and
 * placement. */
#include "server/member/map.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES  300u                  /* of an address, or a path */
#define VERSION_MAX ((json_int_t)1 << 53) /* far from where counting on would overflow */

#define ENTRY_PLACEMENT "placement"

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

/* A number that an entry may have; 0: it does not, or another one. */
static uint64_t number_of(const json_t *entry, const char *name)
{
    json_int_t number = json_integer_value(json_object_get(entry, name));
    return number > 0 && number <= VERSION_MAX ? (uint64_t)number : 0;
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
    map->placements[shard] = number_of(entry, ENTRY_PLACEMENT);
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

/* ---- servers that the configuration does not list ---- */

struct listing {
    const json_t *entries; /* by name */
    const struct member_server *servers;
    uint32_t n_servers;
};

static bool is_listed(const struct listing *of, const char *name)
{
    bool is = false;
    for (uint32_t i = 0; i < of->n_servers; i++)
        is = is || strcmp(of->servers[i].name, name) == 0;
    return is;
}

/* The server that the configuration lists for it is on the map. */
static bool is_found(const struct listing *of, uint64_t shard)
{
    bool is = false;
    for (uint32_t i = 0; i < of->n_servers; i++) {
        const struct member_server *s = &of->servers[i];
        bool has = shard >= s->first_shard && shard - s->first_shard < s->n_shards;
        is = is || (has && json_object_get(of->entries, s->name) != NULL);
    }
    return is;
}

/* The entry by the latest placement holds. */
static int read_added(const struct listing *of, const char *name, const json_t *list,
                      struct member_map *map, struct embd__error *e)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i, entry)
    {
        uint64_t shard = number_of(entry, ENTRY_SHARD);
        if (shard == 0 || shard >= map->n_shards || is_found(of, shard) ||
            number_of(entry, ENTRY_PLACEMENT) < map->placements[shard])
            continue;
        if (read_shard(entry, name, (uint32_t)shard, map, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

static void read_others(const struct listing *of, struct member_map *map, struct embd__error *e)
{
    const char *name;
    json_t *list;
    json_object_foreach((json_t *)of->entries, name,
                        list) if (e->status == EMBD_OK && !is_listed(of, name))
        read_added(of, name, list, map, e);
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
    if (e->status == EMBD_OK)
        read_others(&(struct listing){list, servers, n_servers}, &next, e);
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

static json_t *write_server(const struct member_server *self, const struct member_map *map,
                            uint64_t placement)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < self->n_shards; i++) {
        uint32_t shard = self->first_shard + i;
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:s,s:I,s:I}", "address", map->addresses[shard],
                                        "admin", map->admin_addresses[shard], "admin_tcp",
                                        map->admin_hosts[shard], ENTRY_SHARD, (json_int_t)shard,
                                        ENTRY_PLACEMENT, (json_int_t)placement));
    }
    return list;
}

/* Whether the list says what `own` does, by that placement or a later one. */
static bool is_same(const json_t *list, const json_t *own)
{
    static const char *const fields[] = {"address", "admin", "admin_tcp", ENTRY_SHARD};
    bool is = json_array_size(list) == json_array_size(own);
    for (size_t i = 0; is && i < json_array_size(own); i++) {
        const json_t *there = json_array_get(list, i), *here = json_array_get(own, i);
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            is = is &&
                 json_equal(json_object_get(there, fields[k]), json_object_get(here, fields[k]));
        is = is && number_of(there, ENTRY_PLACEMENT) >= number_of(here, ENTRY_PLACEMENT);
    }
    return is;
}

/* What an entry's list says of its shards. */
struct span {
    uint64_t first, last; /* of shards; last 0: it does not say it */
    uint64_t by;          /* the latest placement */
};

static struct span span_of(const json_t *list)
{
    size_t i;
    const json_t *entry;
    struct span span = {.first = UINT64_MAX};
    json_array_foreach(list, i, entry)
    {
        uint64_t shard = number_of(entry, ENTRY_SHARD), by = number_of(entry, ENTRY_PLACEMENT);
        span.first = shard < span.first ? shard : span.first;
        span.last = shard > span.last ? shard : span.last;
        span.by = by > span.by ? by : span.by;
    }
    return span;
}

/* Servers that had our shards before us are removed, and by the server of shard 0, which decides
 * who is a member, those that have left. False: one has our shards after us, and our entry is none
 * any more. */
static bool remove_earlier(json_t *servers, const struct member_server *self,
                           const struct member_standing *standing, bool *changed_out)
{
    const char *name;
    void *next;
    json_t *list;
    bool is_last = true;
    json_object_foreach_safe(servers, next, name, list)
    {
        const struct span span = span_of(list);
        if (strcmp(name, self->name) == 0 || span.last == 0)
            continue;
        bool is_ours =
            span.first < self->first_shard + self->n_shards && span.last >= self->first_shard;
        bool has_left = self->first_shard == 0 && span.first >= standing->n_shards &&
                        span.by < standing->latest;
        is_last = is_last && !(is_ours && span.by > standing->placement);
        if (!has_left && !(is_ours && span.by < standing->placement))
            continue;
        *changed_out = true;
        json_object_del(servers, name);
    }
    return is_last;
}

/* A process that takes another one's place may have become a member by an earlier one: readers
 * believe the latest. */
static uint64_t placement_of(const json_t *servers, const struct member_server *self,
                             const struct member_standing *standing)
{
    uint64_t before = span_of(json_object_get(servers, self->name)).by;
    return before > standing->placement ? before : standing->placement;
}

/* One version on. The caller's; the object is taken. */
static char *write_on(json_t *object, uint64_t known, struct embd__error *e)
{
    json_int_t version = json_integer_value(json_object_get(object, "version"));
    version = version > (json_int_t)known ? version : (json_int_t)known;
    json_object_set_new(object, "version", json_integer(version + 1));
    char *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the map of the cluster");
    json_decref(object);
    return text;
}

char *map_write(const char *before, const struct member_server *self, const struct member_map *map,
                uint64_t known, const struct member_standing *standing, struct embd__error *e)
{
    bool changed = false;
    json_t *object = before != NULL ? parse(before, e)
                                    : json_pack("{s:I,s:{}}", "version", (json_int_t)1, "servers");
    if (object == NULL)
        return NULL;
    json_t *servers = json_object_get(object, "servers"),
           *own = write_server(self, map, placement_of(servers, self, standing));
    bool is_last = remove_earlier(servers, self, standing, &changed);
    if (is_last && !is_same(json_object_get(servers, self->name), own)) {
        json_object_set(servers, self->name, own);
        changed = true;
    }
    json_decref(own);
    changed |= json_integer_value(json_object_get(object, "version")) < (json_int_t)known;
    if (is_last && changed)
        return write_on(object, known, e);
    json_decref(object);
    return NULL;
}

char *map_remove(const char *before, const struct member_server *self, const struct member_map *map,
                 uint64_t known, struct embd__error *e)
{
    json_t *object = before != NULL ? parse(before, e) : NULL;
    json_t *servers = json_object_get(object, "servers"),
           *list = json_object_get(servers, self->name);
    const char *address = json_string_value(json_object_get(json_array_get(list, 0), "address"));
    if (address == NULL || strcmp(address, map->addresses[self->first_shard]) != 0) {
        json_decref(object);
        return NULL;
    }
    json_object_del(servers, self->name);
    return write_on(object, known, e);
}
