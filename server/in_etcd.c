/* in_etcd.c - see in_etcd.h.
 *
 * The happy path: the member reads a map and gives it to all shards. Where the map in etcd has no
 * entry of a shard yet, or one from before the shard was added, the shard is where its coordinator
 * said (p->places). Own shards are where they listen, whatever the map says.
 *
 * Each map that shards get is made with `growing` held, so the last one is the newest. Lists have
 * room for all shards that there can be: a shard may get a map before it counts with its shards. */
#include "server/in_etcd.h"

#include <stdlib.h>

#include "proto/placement.h"
#include "server/growing.h"
#include "server/member/map.h"
#include "server/rank.h"

struct lists {
    const char *addresses[LIMIT_SHARDS], *admin_addresses[LIMIT_SHARDS], *admin_hosts[LIMIT_SHARDS];
};

/* With failover another process may have them: the map says which. */
static bool is_own(const struct process *p, uint32_t shard)
{
    uint32_t first = process_self(p)->first_shard;
    return p->failover == NULL && shard >= first && shard - first < p->n;
}

static const char *choose(const char *text, const char *fallback)
{
    if (text != NULL)
        return text;
    return fallback != NULL ? fallback : "";
}

static void merge(const struct process *p, struct lists *out)
{
    const struct member_map *map = &p->etcd_map;
    const struct places *places = &p->places;
    for (uint32_t i = 0; i < LIMIT_SHARDS; i++) {
        bool holds = map->n_shards > 0 && !is_own(p, i) && map->addresses[i][0] != '\0' &&
                     map->placements[i] >= p->added_by[i];
        out->addresses[i] = choose(holds ? map->addresses[i] : NULL, places->addresses[i]);
        out->admin_addresses[i] =
            choose(holds ? map->admin_addresses[i] : NULL, places->admin_addresses[i]);
        out->admin_hosts[i] = choose(holds ? map->admin_hosts[i] : NULL, places->admin_hosts[i]);
    }
}

static struct shard_map *copy(const struct process *p, const struct lists *lists)
{
    uint64_t version = p->etcd_map.version;
    struct shard_map *map = shard_map_new(version, LIMIT_SHARDS, lists->addresses,
                                          lists->admin_addresses, lists->admin_hosts);
    if (map == NULL)
        log_event(LOG_ERROR, "map", "why=\"no memory for version %llu of the cluster's map\"",
                  (unsigned long long)version);
    return map;
}

/* To all shards, and to the thread that asks other servers. */
static void hand_out(struct process *p, const struct lists *lists)
{
    if (p->identity != NULL)
        identity_set_addresses(p->identity, lists->addresses);
    for (uint32_t i = 0; i < p->n_started; i++) {
        struct shard_map *map = copy(p, lists);
        if (map != NULL)
            loop_set_map(p->loops[i], map);
    }
}

/* ---- the member's thread ---- */

static void take_map(struct process *p, const struct member_map *map)
{
    struct embd__error e = {.status = EMBD_OK};
    struct member_map next;
    struct lists lists;
    if (map_copy(map, &next, &e) != EMBD_OK) {
        log_event(LOG_ERROR, "map", "why=\"%s\"", e.text);
        return;
    }
    map_fini(&p->etcd_map);
    p->etcd_map = next;
    merge(p, &lists);
    hand_out(p, &lists);
}

static void on_map(void *arg, const struct member_map *map)
{
    struct process *p = arg;
    uv_mutex_lock(&p->growing);
    take_map(p, map);
    uv_mutex_unlock(&p->growing);
}

static void on_etcd(void *arg, bool answers)
{
    struct process *p = arg;
    atomic_store(&p->etcd_silent, !answers);
    if (!answers && p->identity != NULL)
        identity_go_on(p->identity);
}

/* ---- opening ---- */

static int open_member(struct process *p, struct embd__error *e)
{
    const struct config *config = &p->config;
    const struct member_map start = {SHARD_MAP_OF_FILE,     LIMIT_SHARDS,
                                     p->places.addresses,   p->places.admin_addresses,
                                     p->places.admin_hosts, NULL};
    const struct member_config member = {
        .place = config->etcd,
        .lease_s = config->etcd_lease_s,
        .servers = p->member_servers,
        .n_servers = config->n_servers,
        .self = config->self,
        .start = &start,
        .standing = p->standing,
        .failover = p->failover,
        .promotion = p->promotion,
        .node = p->failover != NULL ? rank_node(p) : 0,
        .replicas = config->replicas,
        .on_map = on_map,
        .on_lost = p->failover != NULL ? running_on_lost : running_on_drain,
        .on_etcd = on_etcd,
        .arg = p,
    };
    return member_open(&member, &p->member, e);
}

int in_etcd_open(struct process *p, struct embd__error *e)
{
    const struct config *config = &p->config;
    if (!config->has_etcd)
        return EMBD_OK;
    p->member_servers = calloc(config->n_servers, sizeof *p->member_servers);
    if (p->member_servers == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the list of servers");
    for (uint32_t i = 0; i < config->n_servers; i++)
        p->member_servers[i] = (struct member_server){
            config->servers[i].name, config->servers[i].first_shard, config->servers[i].shards};
    uv_mutex_lock(&p->growing); /* shards are running, and may find more in their journals */
    if (p->identity == NULL)
        p->standing = (struct member_standing){MEMBERSHIP_HELD, 1, config->n_shards, 1};
    open_member(p, e);
    uv_mutex_unlock(&p->growing);
    return e->status;
}

void in_etcd_close(struct process *p)
{
    uv_mutex_lock(&p->growing);
    struct member *member = p->member;
    p->member = NULL;
    uv_mutex_unlock(&p->growing);
    member_close(member);
}

/* ---- a shard's thread ---- */

static void stand(struct process *p, const struct placement *place)
{
    struct member_standing *standing = &p->standing;
    bool has_left = place->n_shards <= process_self(p)->first_shard;
    if (standing->is == MEMBERSHIP_NONE)
        standing->placement = place->version;
    standing->is = has_left ? MEMBERSHIP_LEFT : MEMBERSHIP_HELD;
    standing->n_shards = place->n_shards;
    standing->latest = place->version;
    if (p->member != NULL)
        member_set_standing(p->member, standing);
}

/* NULL: shards look at the lists of places. */
static struct shard_map *tell(struct process *p, const struct placement *place)
{
    struct lists lists;
    if (!p->config.has_etcd)
        return NULL;
    stand(p, place);
    if (p->etcd_map.n_shards == 0) /* none has come */
        return NULL;
    merge(p, &lists);
    hand_out(p, &lists);
    return copy(p, &lists);
}

int in_etcd_take(void *process, const struct placement *place, struct shard_map **map_out,
                 struct embd__error *e)
{
    struct process *p = process;
    uv_mutex_lock(&p->growing);
    int status = growing_take(p, place, e);
    *map_out = status == EMBD_OK ? tell(p, place) : NULL;
    uv_mutex_unlock(&p->growing);
    return status;
}
