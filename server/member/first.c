/* first.c - see first.h. Each question is a connection of its own: it is asked where those to the
 * cluster were lost. */
#include "server/member/first.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/log/monotonic.h"
#include "server/member/map.h"
#include "server/member/member_inside.h"

/* NULL: no server of the map has shard 0. */
static const json_t *find_entry(const json_t *servers)
{
    const char *name;
    json_t *list;
    json_object_foreach((json_t *)servers, name, list)
    {
        const json_t *entry = json_array_get(list, 0), *shard = json_object_get(entry, ENTRY_SHARD);
        if (json_is_integer(shard) && json_integer_value(shard) == 0)
            return entry;
    }
    return NULL;
}

static const char *text_of(const json_t *entry, const char *name)
{
    const char *text = json_string_value(json_object_get(entry, name));
    return text != NULL ? text : "";
}

static int choose(const char *map, char *admin_out, size_t bytes, struct embd__error *e)
{
    json_t *object = json_loads(map, 0, NULL);
    const json_t *entry = find_entry(json_object_get(object, "servers"));
    const char *path = text_of(entry, "admin"), *host = text_of(entry, "admin_tcp");
    const char *admin = path[0] == '/' && access(path, W_OK) == 0 ? path : host;
    if (entry == NULL)
        embd__error_set(e, EMBD_UNREACHABLE, "the map in etcd has no server of shard 0");
    else if (admin[0] == '\0' || strlen(admin) >= bytes)
        embd__error_set(e, EMBD_UNREACHABLE,
                        "%.200s: has no admin listener that this server can reach: it has ended, "
                        "or needs admin_listen",
                        text_of(entry, "address"));
    else
        snprintf(admin_out, bytes, "%s", admin);
    json_decref(object);
    return e->status;
}

static int ask(const struct etcd_place *place, char *admin_out, size_t bytes, struct embd__error *e)
{
    static const atomic_bool stops;
    struct etcd *etcd;
    struct etcd_value map = {.text = NULL};
    if (etcd_open(place, &stops, &etcd, e) != EMBD_OK)
        return e->status;
    if (etcd_get(etcd, MAP_KEY, &map, e) == EMBD_OK && map.text == NULL)
        embd__error_set(e, EMBD_UNREACHABLE, "etcd has no map of a cluster at %s", place->prefix);
    etcd_close(etcd);
    if (e->status == EMBD_OK)
        choose(map.text, admin_out, bytes, e);
    free(map.text);
    return e->status;
}

int member_find_first(struct member_first *first, const struct etcd_place *place, char *admin_out,
                      size_t bytes, struct embd__error *e)
{
    pthread_mutex_lock(&first->lock);
    if (monotonic_ns() >= first->until_ns) {
        first->error = (struct embd__error){.status = EMBD_OK};
        ask(place, first->admin, sizeof first->admin, &first->error);
        first->until_ns = monotonic_ns() + MEMBER_FIRST_MS * 1000000u;
    }
    *e = first->error;
    snprintf(admin_out, bytes, "%s", first->admin);
    pthread_mutex_unlock(&first->lock);
    return e->status;
}
