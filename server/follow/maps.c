/* maps.c - see maps.h. */
#include "server/follow/maps.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct follow_maps {
    uint32_t n;
    void (*wake)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    struct follow_map of[]; /* [n], under the lock */
};

struct follow_maps *follow_maps_new(uint32_t n_shards, void (*wake)(void *arg), void *arg)
{
    struct follow_maps *maps = calloc(1, sizeof *maps + n_shards * sizeof *maps->of);
    if (maps == NULL)
        return NULL;
    maps->n = n_shards;
    maps->wake = wake;
    maps->arg = arg;
    pthread_mutex_init(&maps->lock, NULL);
    return maps;
}

void follow_maps_free(struct follow_maps *maps)
{
    if (maps != NULL)
        pthread_mutex_destroy(&maps->lock);
    free(maps);
}

void follow_maps_note(struct follow_maps *maps, uint32_t shard, const struct follow_map *map)
{
    pthread_mutex_lock(&maps->lock);
    struct follow_map *own = &maps->of[shard];
    bool is_news = own->version != map->version || own->decision != map->decision ||
                   own->prepared != map->prepared || own->is_settled != map->is_settled;
    *own = *map;
    pthread_mutex_unlock(&maps->lock);
    if (is_news)
        maps->wake(maps->arg);
}

/* With the lock. */
static bool is_prepared(const struct follow_maps *maps, uint64_t version, uint64_t decision)
{
    for (uint32_t i = 1; i < maps->n; i++)
        if (maps->of[i].version < version &&
            (maps->of[i].version == 0 || maps->of[i].prepared != decision))
            return false;
    return true;
}

bool follow_maps_may_move(struct follow_maps *maps, uint32_t shard, uint64_t version,
                          uint64_t decision)
{
    pthread_mutex_lock(&maps->lock);
    bool may = shard == 0 ? is_prepared(maps, version, decision) : maps->of[0].version >= version;
    pthread_mutex_unlock(&maps->lock);
    return may;
}

bool follow_maps_are_known(struct follow_maps *maps)
{
    bool are = true;
    pthread_mutex_lock(&maps->lock);
    for (uint32_t i = 0; i < maps->n; i++)
        are = are && maps->of[i].version > 0;
    pthread_mutex_unlock(&maps->lock);
    return are;
}

bool follow_maps_are_settled(struct follow_maps *maps)
{
    bool are = true;
    pthread_mutex_lock(&maps->lock);
    for (uint32_t i = 0; i < maps->n; i++)
        are = are && maps->of[i].is_settled;
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

bool follow_maps_agree(struct follow_maps *maps, char *why_out, size_t why_bytes)
{
    bool do_agree = true;
    pthread_mutex_lock(&maps->lock);
    for (uint32_t i = 0; i < maps->n && do_agree; i++) {
        do_agree = agrees(&maps->of[0], &maps->of[i]);
        if (!do_agree)
            snprintf(why_out, why_bytes,
                     "shard 0 has version %llu of the placement, and shard %u version %llu (0: it "
                     "takes its base): keys have moved, and the records of it have not come for "
                     "all shards",
                     (unsigned long long)maps->of[0].version, i,
                     (unsigned long long)maps->of[i].version);
    }
    pthread_mutex_unlock(&maps->lock);
    return do_agree;
}
