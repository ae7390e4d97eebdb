/* sources.c - see sources.h. A hash table with linear probing, half full at most. */
#include "server/engine/sources.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define N_PLACES (2 * SOURCES_MAX)

void sources_fini(struct sources *sources)
{
    free(sources->table);
    free(sources->born);
    *sources = (struct sources){.n = 0};
}

static bool open_memory(struct sources *sources)
{
    if (sources->table != NULL)
        return true;
    if (getrandom(&sources->seed, sizeof sources->seed, 0) != sizeof sources->seed)
        return false;
    if (sources->born == NULL)
        sources->born = calloc(N_PLACES, sizeof *sources->born);
    if (sources->born != NULL)
        sources->table = calloc(N_PLACES, sizeof *sources->table);
    return sources->table != NULL;
}

/* Where it is, or would be. */
static struct push_source *place_of(const struct sources *sources, uint64_t client)
{
    uint64_t at = XXH3_64bits_withSeed(&client, sizeof client, sources->seed) % N_PLACES;
    while (sources->table[at].client != 0 && sources->table[at].client != client)
        at = (at + 1) % N_PLACES;
    return &sources->table[at];
}

static void forget_all(struct sources *sources)
{
    memset(sources->table, 0, N_PLACES * sizeof *sources->table);
    sources->n = 0;
}

/* Places rise, and begin anew behind 2^32 - 1. */
static bool is_behind(const struct push_source *push, const struct push_source *known)
{
    return known->client != 0 && (int32_t)(push->place - known->place) < 0;
}

void sources_note(struct sources *sources, const struct push_source *push)
{
    if (push->client == 0 || !open_memory(sources))
        return;
    struct push_source *own = place_of(sources, push->client);
    if (own->client == 0 && sources->n == SOURCES_MAX) {
        forget_all(sources);
        own = place_of(sources, push->client);
    }
    if (is_behind(push, own))
        return;
    if (own->client == 0) {
        sources->n++;
        sources->born[own - sources->table] = ++sources->n_ever;
    }
    *own = *push;
}

bool sources_have(const struct sources *sources, const struct push_source *push)
{
    uint32_t place;
    return sources_find(sources, push->client, &place) && (int32_t)(place - push->place) >= 0;
}

bool sources_find(const struct sources *sources, uint64_t client, uint32_t *place_out)
{
    if (sources->table == NULL || client == 0)
        return false;
    const struct push_source *own = place_of(sources, client);
    *place_out = own->place;
    return own->client != 0;
}

uint32_t sources_born(const struct sources *sources, uint64_t client)
{
    uint32_t place;
    return sources_find(sources, client, &place)
               ? sources->born[place_of(sources, client) - sources->table]
               : 0;
}

void sources_list(const struct sources *sources, uint64_t *clients, uint32_t *places)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_PLACES && n < sources->n; i++) {
        const struct push_source *own = &sources->table[i];
        if (own->client == 0)
            continue;
        clients[n] = own->client;
        places[n++] = own->place;
    }
}
