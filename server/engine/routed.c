/* routed.c - see routed.h.
 *
 * This is on the data path: whether any key is another shard's is found out without branches. With
 * the even map a hash table's keys are those of a range, looked at in blocks of fixed size that
 * compilers turn into vector code; with another one each key's shard is looked up. Only then the
 * culprit is looked for, with what decides for clients too. */
#include "server/engine/routed.h"

#include <stdio.h>

#include "proto/route.h"

/* ---- hash ---- */

#define BLOCK 256u /* keys at a time: a count known to the compiler */

/* A shard's virtual shards are those from `first` to `last`. */
struct range {
    uint64_t first, last;
};

static struct range range_of(const struct routed_place *place)
{
    uint64_t n = place->n_shards, shard = place->shard;
    return (struct range){(shard * 1024 + n - 1) / n, ((shard + 1) * 1024 + n - 1) / n - 1};
}

/* The top bit is set where a difference is below 0. */
static inline __attribute__((always_inline)) uint64_t outside(const uint64_t *keys, uint64_t n,
                                                              struct range range)
{
    uint64_t signs = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t virtual = embd__mix64_high(keys[i]) >> 54;
        signs |= (virtual - range.first) | (range.last - virtual);
    }
    return signs;
}

typedef uint64_t outside_block(const uint64_t *keys, struct range range);

#ifdef __x86_64__
__attribute__((target("avx2"))) static uint64_t outside_avx2(const uint64_t *keys,
                                                             struct range range)
{
    return outside(keys, BLOCK, range);
}

/* Which has products of 64 bits. */
__attribute__((target("avx512f,avx512dq,avx512vl"))) static uint64_t outside_avx512(
    const uint64_t *keys, struct range range)
{
    return outside(keys, BLOCK, range);
}

static outside_block *widest(void)
{
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return outside_avx512;
    return __builtin_cpu_supports("avx2") ? outside_avx2 : NULL;
}
#else
static outside_block *widest(void)
{
    return NULL;
}
#endif

static bool has_other_hash(const uint64_t *keys, uint64_t n, const struct routed_place *place)
{
    const struct range range = range_of(place);
    uint64_t at = 0, signs = 0;
    outside_block *block = n < BLOCK ? NULL : widest();
    for (; block != NULL && n - at >= BLOCK; at += BLOCK)
        signs |= block(keys + at, range);
    signs |= outside(keys + at, n - at, range);
    return signs >> 63;
}

/* ---- remainders ----
 * x % n == r, without dividing: n = 2^twos * odd, and (x - r) times the inverse of `odd` (mod
 * 2^64), turned right by `twos`, is (x - r) / n where n divides it and r <= x, else more than can
 * be (Granlund and Montgomery 1994, section 9). */
struct remainder {
    uint64_t r, inverse, limit;
    uint32_t twos;
};

static struct remainder remainder_of(const struct routed_place *place)
{
    struct remainder m = {.r = place->shard, .twos = (uint32_t)__builtin_ctz(place->n_shards)};
    uint64_t odd = place->n_shards >> m.twos;
    m.inverse = odd; /* right in the last 3 bits; each step doubles them */
    for (int i = 0; i < 5; i++)
        m.inverse *= 2 - odd * m.inverse;
    m.limit = (UINT64_MAX - m.r) / place->n_shards;
    return m;
}

static bool is_other(const struct remainder *m, uint64_t x)
{
    uint64_t y = (x - m->r) * m->inverse;
    return (y >> m->twos | y << (-m->twos & 63)) > m->limit;
}

static bool has_other_modulo(const uint64_t *keys, uint64_t n, const struct routed_place *place)
{
    const struct remainder m = remainder_of(place);
    bool has = false;
    for (uint64_t i = 0; i < n; i++)
        has |= is_other(&m, keys[i]);
    return has;
}

static bool has_other_slot(const uint16_t *slots, uint64_t n, const struct routed_place *place)
{
    const struct remainder m = remainder_of(place);
    bool has = false;
    for (uint64_t i = 0; i < n; i++)
        has |= is_other(&m, slots[i]);
    return has;
}

/* ---- maps that are not even ---- */

static bool has_other_placed(embd_partition partition, const struct store_keys *in,
                             const struct routed_place *place)
{
    const struct placement *p = place->placement;
    uint32_t others = 0;
    if (partition == EMBD_PARTITION_SLOT)
        for (uint32_t row = 0; row < in->n_rows; row++)
            others |= p->of_residue[in->slots[row] % p->n_residues] ^ place->shard;
    else if (partition == EMBD_PARTITION_MODULO)
        for (uint32_t i = 0; i < in->n_keys; i++)
            others |= p->of_residue[in->keys[i] % p->n_residues] ^ place->shard;
    else
        for (uint32_t i = 0; i < in->n_keys; i++)
            others |= p->of_vshard[embd__mix64_high(in->keys[i]) >> 54] ^ place->shard;
    return others != 0;
}

/* ---- all ---- */

static bool is_even(const struct routed_place *place)
{
    return place->placement == NULL || place->placement->is_even;
}

static bool has_other(embd_partition partition, const struct store_keys *in,
                      const struct routed_place *place)
{
    if (!is_even(place))
        return has_other_placed(partition, in, place);
    switch (partition) {
    case EMBD_PARTITION_MODULO:
        return has_other_modulo(in->keys, in->n_keys, place);
    case EMBD_PARTITION_SLOT:
        return has_other_slot(in->slots, in->n_rows, place);
    case EMBD_PARTITION_HASH:
        break;
    }
    return has_other_hash(in->keys, in->n_keys, place);
}

static uint32_t owner_of(embd_partition partition, uint32_t slot, uint64_t key,
                         const struct routed_place *place)
{
    return is_even(place) ? embd__route(partition, place->n_shards, slot, key)
                          : embd__placement_shard(place->placement, partition, slot, key);
}

static int refuse(const struct store_keys *in, uint64_t i, uint32_t row, uint32_t owner,
                  const struct routed_place *place, const char *what, struct embd__error *e)
{
    char slot[24] = "";
    if (in->slots != NULL)
        snprintf(slot, sizeof slot, " of slot %u", in->slots[row]);
    return embd__error_set(e, EMBD_INVALID,
                           "%s keys[%llu]: %llu%s belongs to shard %u of %u, this is shard %u (map "
                           "version %llu)",
                           what, (unsigned long long)i, (unsigned long long)in->keys[i], slot,
                           owner, place->n_shards, place->shard,
                           (unsigned long long)place->map_version);
}

/* A row without keys has none that could be another shard's, whatever its slot is. */
static int find_other(embd_partition partition, const struct store_keys *in,
                      const struct routed_place *place, const char *what, struct embd__error *e)
{
    for (uint32_t row = 0; row < in->n_rows; row++) {
        uint32_t end = in->offsets != NULL ? in->offsets[row + 1] : row + 1;
        for (uint32_t i = in->offsets != NULL ? in->offsets[row] : row; i < end; i++) {
            uint32_t slot = in->slots != NULL ? in->slots[row] : 0,
                     owner = owner_of(partition, slot, in->keys[i], place);
            if (owner != place->shard)
                return refuse(in, i, row, owner, place, what, e);
        }
    }
    return EMBD_OK;
}

int routed_check(const struct table *table, const struct store_keys *in,
                 const struct routed_place *place, const char *what, struct embd__error *e)
{
    embd_partition partition = table->schema.s.partition;
    if (place->n_shards == 1 || in->n_keys == 0 || !has_other(partition, in, place))
        return EMBD_OK;
    return find_other(partition, in, place, what, e);
}
