/* placement.c - see placement.h. A map is only ever made here, so each one names a shard that there
 * is for each of its vshards. */
#include "proto/placement.h"

#include <string.h>
#include <xxhash.h>

#include "proto/little.h"

#define N PLACEMENT_VSHARDS

/* ---- making ---- */

/* The first vshard of a shard in the even map. */
static uint32_t even_first(uint32_t shard, uint32_t n_shards)
{
    return (shard * N + n_shards - 1) / n_shards;
}

static bool is_even(const struct placement *p)
{
    bool is = p->base == p->n_shards;
    for (uint32_t v = 0; v < N && is; v++)
        is = p->of_vshard[v] == v * p->n_shards / N;
    return is;
}

static void finish(struct placement *p)
{
    p->n_residues = p->base * (N / p->base);
    for (uint32_t r = 0; r < N; r++) {
        uint32_t vshard = even_first(r % p->base, p->base) + r / p->base;
        p->of_residue[r] = r < p->n_residues ? p->of_vshard[vshard] : 0;
    }
    p->is_even = is_even(p);
}

void embd__placement_even(struct placement *p, uint64_t version, uint32_t n_shards)
{
    *p = (struct placement){
        .version = version, .n_shards = n_shards, .base = n_shards, .n_filled = N};
    for (uint32_t v = 0; v < N; v++)
        p->of_vshard[v] = (uint16_t)(v * n_shards / N);
    finish(p);
}

void embd__placement_weighted(struct placement *p, uint64_t version, uint32_t n_shards,
                              const uint32_t *weights)
{
    uint64_t whole = 0, before = 0;
    for (uint32_t s = 0; s < n_shards; s++)
        whole += weights[s];
    embd__placement_even(p, version, n_shards);
    for (uint32_t s = 0; s < n_shards; s++) {
        uint64_t first = (before * N + whole - 1) / whole;
        before += weights[s];
        for (uint64_t v = first; v < (before * N + whole - 1) / whole; v++)
            p->of_vshard[v] = (uint16_t)s;
    }
    finish(p);
}

void embd__placement_rebalance(struct placement *p, const struct placement *from,
                               const uint32_t *weights)
{
    struct placement wanted;
    uint32_t has[LIMIT_SHARDS], wants[LIMIT_SHARDS], to = 0;
    embd__placement_weighted(&wanted, 1, from->n_shards, weights);
    for (uint32_t s = 0; s < from->n_shards; s++) {
        has[s] = embd__placement_count(from, s);
        wants[s] = embd__placement_count(&wanted, s);
    }
    *p = *from;
    p->version = from->version + 1;
    for (uint32_t v = N; v-- > 0;) { /* from the end of a shard's runs, so that these stay whole */
        uint16_t *of = &p->of_vshard[v];
        if (has[*of] <= wants[*of])
            continue;
        while (has[to] >= wants[to])
            to++;
        has[*of]--;
        has[to]++;
        *of = (uint16_t)to;
    }
    finish(p);
}

void embd__placement_move(struct placement *p, const struct placement *from, uint32_t first,
                          uint32_t n, uint32_t to)
{
    *p = *from;
    p->version = from->version + 1;
    for (uint32_t v = first; v < first + n; v++)
        p->of_vshard[v] = (uint16_t)to;
    finish(p);
}

void embd__placement_resize(struct placement *p, const struct placement *from, uint32_t n_shards)
{
    *p = *from;
    p->version = from->version + 1;
    p->n_shards = n_shards;
    finish(p);
}

uint32_t embd__placement_moved(const struct placement *a, const struct placement *b)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < N; v++)
        n += a->of_vshard[v] != b->of_vshard[v];
    return n;
}

int embd__placement_begin(struct placement *p, uint64_t version, uint32_t n_shards, uint64_t base,
                          struct embd__error *e)
{
    *p = (struct placement){.version = version, .n_shards = n_shards, .base = (uint32_t)base};
    if (version == 0 || version > PLACEMENT_VERSION_MAX)
        return embd__error_set(e, EMBD_INVALID, "the placement's version is %llu, not 1 to 2^53",
                               (unsigned long long)version);
    if (base == 0 || base > N)
        return embd__error_set(e, EMBD_INVALID, "the placement's base is %llu, not 1 to %u",
                               (unsigned long long)base, N);
    return EMBD_OK;
}

int embd__placement_add(struct placement *p, uint64_t shard, uint64_t count, struct embd__error *e)
{
    if (shard >= p->n_shards)
        return embd__error_set(e, EMBD_INVALID,
                               "the placement has vshards of shard %llu, and there are %u shards",
                               (unsigned long long)shard, p->n_shards);
    if (count == 0 || count > N - p->n_filled)
        return embd__error_set(e, EMBD_INVALID,
                               "the placement has a run of %llu vshards behind %u; there are %u",
                               (unsigned long long)count, p->n_filled, N);
    for (uint64_t i = 0; i < count; i++)
        p->of_vshard[p->n_filled++] = (uint16_t)shard;
    return EMBD_OK;
}

int embd__placement_end(struct placement *p, struct embd__error *e)
{
    if (p->n_filled < N)
        return embd__error_set(e, EMBD_INVALID,
                               "the placement's runs are of %u vshards together; expected %u",
                               p->n_filled, N);
    finish(p);
    return EMBD_OK;
}

/* ---- looking ---- */

uint32_t embd__placement_run(const struct placement *p, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < N && p->of_vshard[end] == p->of_vshard[first])
        end++;
    return end - first;
}

uint32_t embd__placement_runs(const struct placement *p)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < N; v += embd__placement_run(p, v))
        n++;
    return n;
}

uint32_t embd__placement_count(const struct placement *p, uint32_t shard)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < N; v++)
        n += p->of_vshard[v] == shard;
    return n;
}

void embd__placement_set(const struct placement *p, embd_partition partition, uint32_t shard,
                         uint8_t *set)
{
    bool is_hash = partition == EMBD_PARTITION_HASH;
    const uint16_t *of = is_hash ? p->of_vshard : p->of_residue;
    memset(set, 0, PLACEMENT_SET_BYTES);
    for (uint32_t v = 0; v < (is_hash ? N : p->n_residues); v++)
        set[v / 8] = (uint8_t)(set[v / 8] | (uint32_t)(of[v] == shard) << v % 8);
}

bool embd__placement_is_same(const struct placement *a, const struct placement *b)
{
    return a->n_shards == b->n_shards && a->base == b->base &&
           memcmp(a->of_vshard, b->of_vshard, sizeof a->of_vshard) == 0;
}

uint64_t embd__placement_digest(const struct placement *p)
{
    uint8_t bytes[16 + 2 * N];
    embd__put_u64(bytes, p->version);
    embd__put_u32(bytes + 8, p->n_shards);
    embd__put_u32(bytes + 12, p->base);
    for (uint32_t v = 0; v < N; v++) {
        bytes[16 + 2 * v] = (uint8_t)p->of_vshard[v];
        bytes[17 + 2 * v] = (uint8_t)(p->of_vshard[v] >> 8);
    }
    uint64_t digest = XXH3_64bits(bytes, sizeof bytes);
    return digest + (digest == 0);
}
