/* share.c - see share.h. */
#include "proto/share.h"

#include "proto/limit.h"

#define PLACES 1024u /* of keys by hash: embd__route */

struct part {
    uint64_t largest, whole; /* of the keys */
};

static struct part part_of(const embd_schema *schema, uint32_t n_shards)
{
    uint64_t n = n_shards, whole = n;
    if (schema->partition == EMBD_PARTITION_HASH)
        whole = PLACES;
    else if (schema->partition == EMBD_PARTITION_SLOT)
        whole = schema->slots;
    return (struct part){(whole + n - 1) / n, whole};
}

uint64_t embd__share_of(const embd_schema *schema, uint32_t n_shards, uint64_t rows)
{
    const struct part p = part_of(schema, n_shards);
    uint64_t most = LIMIT_CAPACITY * p.whole / p.largest;
    if (rows >= most)
        return LIMIT_CAPACITY;
    return (rows * p.largest + p.whole - 1) / p.whole;
}

uint64_t embd__share_total(const embd_schema *schema, uint32_t n_shards, uint64_t share)
{
    const struct part p = part_of(schema, n_shards);
    return share * p.whole / p.largest;
}
