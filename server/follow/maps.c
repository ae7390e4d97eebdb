/* maps.c - see maps.h. */
#include "server/follow/maps.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limit.h"

struct told_map {
    bool is_known; /* its shard has told it: */
    struct follow_map map;
};

struct follow_maps {
    uint32_t first, n;
    bool is_part; /* other processes have other shards */
    void (*wake)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    struct told_map of[]; /* [LIMIT_SHARDS], under the lock */
};

struct follow_maps *follow_maps_new(uint32_t first, uint32_t n_shards, bool is_part,
                                    void (*wake)(void *arg), void *arg)
{
    struct follow_maps *maps = calloc(1, sizeof *maps + LIMIT_SHARDS * sizeof *maps->of);
    if (maps == NULL)
        return NULL;
    maps->first = first;
    maps->n = n_shards;
    maps->is_part = is_part;
    maps->wake = wake;
    maps->arg = arg;
    pthread_mutex_init(&maps->lock, NULL);
    return maps;
}

void follow_maps_set_room(struct follow_maps *maps, uint32_t n_shards)
{
    pthread_mutex_lock(&maps->lock);
    maps->n = n_shards;
    pthread_mutex_unlock(&maps->lock);
}

uint32_t follow_maps_room(struct follow_maps *maps)
{
    pthread_mutex_lock(&maps->lock);
    uint32_t n = maps->n;
    pthread_mutex_unlock(&maps->lock);
    return n;
}

void follow_maps_free(struct follow_maps *maps)
{
    if (maps != NULL)
        pthread_mutex_destroy(&maps->lock);
    free(maps);
}

static bool is_same(const struct follow_map *a, const struct follow_map *b)
{
    return a->version == b->version && a->n_shards == b->n_shards && a->decision == b->decision &&
           a->prepared == b->prepared && a->is_settled == b->is_settled &&
           a->is_connected == b->is_connected;
}

void follow_maps_note(struct follow_maps *maps, uint32_t shard, const struct follow_map *map)
{
    pthread_mutex_lock(&maps->lock);
    struct told_map *own = &maps->of[shard];
    bool is_news = !own->is_known || !is_same(&own->map, map);
    *own = (struct told_map){true, *map};
    pthread_mutex_unlock(&maps->lock);
    if (is_news)
        maps->wake(maps->arg);
}

/* All shards of the later map but shard 0: those that leave have no rows. With the lock. */
static bool is_prepared(const struct follow_maps *maps, const struct follow_map *next)
{
    uint32_t end = maps->first + maps->n;
    bool is = maps->is_part || next->n_shards <= maps->n;
    for (uint32_t i = maps->first + 1; i < next->n_shards && i < end && is; i++) {
        const struct follow_map *own = &maps->of[i].map;
        is = own->version >= next->version ||
             (own->version != 0 && own->prepared != 0 && own->prepared == next->decision);
    }
    return is;
}

bool follow_maps_may_move(struct follow_maps *maps, uint32_t shard, const struct follow_map *next)
{
    pthread_mutex_lock(&maps->lock);
    const struct follow_map *first = &maps->of[maps->first].map;
    bool may = shard == maps->first ? is_prepared(maps, next) : first->version >= next->version;
    pthread_mutex_unlock(&maps->lock);
    return may;
}

bool follow_maps_are_known(struct follow_maps *maps)
{
    bool are = true;
    pthread_mutex_lock(&maps->lock);
    for (uint32_t i = 0; i < maps->n; i++)
        are = are && maps->of[maps->first + i].is_known;
    pthread_mutex_unlock(&maps->lock);
    return are;
}

uint32_t follow_maps_shards(struct follow_maps *maps, uint64_t *version_out)
{
    pthread_mutex_lock(&maps->lock);
    const struct follow_map first = maps->of[maps->first].map;
    pthread_mutex_unlock(&maps->lock);
    *version_out = first.version;
    return first.version == 0 ? 0 : first.n_shards;
}

uint32_t follow_maps_bases(struct follow_maps *maps)
{
    uint32_t n = 0;
    pthread_mutex_lock(&maps->lock);
    while (n < maps->n && maps->of[n].map.version > 0 && maps->of[n].map.is_connected)
        n++; /* of one that has all */
    pthread_mutex_unlock(&maps->lock);
    return n;
}

bool follow_maps_are_settled(struct follow_maps *maps)
{
    bool are = true;
    pthread_mutex_lock(&maps->lock);
    for (uint32_t i = 0; i < maps->n; i++)
        are = are && maps->of[maps->first + i].map.is_settled;
    pthread_mutex_unlock(&maps->lock);
    return are;
}

static bool agrees(const struct follow_map *first, const struct follow_map *other)
{
    if (other->version == 0 || first->version == 0)
        return false;
    return other->version == first->version ||
           (other->version < first->version && other->prepared != 0 &&
            other->prepared == first->decision);
}

/* With the lock. */
static bool refuse_room(const struct follow_maps *maps, char *why_out, size_t why_bytes)
{
    snprintf(why_out, why_bytes,
             "the cluster has %u shards, and this server has room for %u: start it with as many "
             "shards",
             maps->of[maps->first].map.n_shards, maps->n);
    return false;
}

bool follow_maps_agree(struct follow_maps *maps, char *why_out, size_t why_bytes)
{
    bool do_agree = true;
    pthread_mutex_lock(&maps->lock);
    const struct follow_map *first = &maps->of[maps->first].map;
    uint32_t end = maps->first + maps->n;
    uint32_t n = first->n_shards < end ? first->n_shards : end;
    for (uint32_t i = maps->first; (i == maps->first || i < n) && do_agree; i++) {
        do_agree = agrees(first, &maps->of[i].map);
        if (!do_agree)
            snprintf(why_out, why_bytes,
                     "shard %u has version %llu of the placement, and shard %u version %llu (0: it "
                     "takes its base): keys have moved, and the records of it have not come for "
                     "all shards",
                     maps->first, (unsigned long long)first->version, i,
                     (unsigned long long)maps->of[i].map.version);
    }
    if (do_agree && !maps->is_part && first->n_shards > maps->n)
        do_agree = refuse_room(maps, why_out, why_bytes);
    pthread_mutex_unlock(&maps->lock);
    return do_agree;
}
