/* share.c - see share.h. */
#include "proto/share.h"

#include "proto/limit.h"

struct part {
    uint64_t largest, whole; /* of the keys */
};

/* The part of the shard that has most of n places. */
static struct part largest_of(const uint16_t *shards, uint32_t n_places, uint64_t n)
{
    uint32_t counts[PLACEMENT_VSHARDS] = {0}, most = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t count = ++counts[shards[i % n_places]];
        most = count > most ? count : most;
    }
    return (struct part){most, n};
}

static struct part part_of(const embd_schema *schema, const struct placement *p)
{
    switch (schema->partition) {
    case EMBD_PARTITION_MODULO:
        return largest_of(p->of_residue, p->n_residues, p->n_residues);
    case EMBD_PARTITION_SLOT:
        return largest_of(p->of_residue, p->n_residues, schema->slots);
    case EMBD_PARTITION_HASH:
        break;
    }
    return largest_of(p->of_vshard, PLACEMENT_VSHARDS, PLACEMENT_VSHARDS);
}

uint64_t embd__share_of_placed(const embd_schema *schema, const struct placement *p, uint64_t rows)
{
    const struct part part = part_of(schema, p);
    uint64_t most = LIMIT_CAPACITY * part.whole / part.largest;
    if (rows >= most)
        return LIMIT_CAPACITY;
    return (rows * part.largest + part.whole - 1) / part.whole;
}

uint64_t embd__share_total_placed(const embd_schema *schema, const struct placement *p,
                                  uint64_t share)
{
    const struct part part = part_of(schema, p);
    return share * part.whole / part.largest;
}

uint64_t embd__share_of(const embd_schema *schema, uint32_t n_shards, uint64_t rows)
{
    struct placement even;
    embd__placement_even(&even, 1, n_shards);
    return embd__share_of_placed(schema, &even, rows);
}

uint64_t embd__share_total(const embd_schema *schema, uint32_t n_shards, uint64_t share)
{
    struct placement even;
    embd__placement_even(&even, 1, n_shards);
    return embd__share_total_placed(schema, &even, share);
}
