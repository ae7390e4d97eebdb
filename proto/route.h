/* route.h - the pure function (table, slot, key) -> shard; the same code on both sides of the wire.
 */
#ifndef EMBD_PROTO_ROUTE_H
#define EMBD_PROTO_ROUTE_H

#include "proto/dtype.h"

/* All but the last step of the next, which leaves the upper 33 bits as they are. */
EMBD_INLINE uint64_t embd__mix64_high(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x;
}

/* murmur3's 64-bit finalizer: a bijection that spreads every input bit over the output. */
EMBD_INLINE uint64_t embd__mix64(uint64_t x)
{
    x = embd__mix64_high(x);
    return x ^ x >> 33;
}

/* The shard of a key after its slot offset was added. n_shards >= 1; slot < the table's slots. */
static inline uint32_t embd__route(embd_partition partition, uint32_t n_shards, uint32_t slot,
                                   uint64_t key)
{
    switch (partition) {
    case EMBD_PARTITION_MODULO:
        return (uint32_t)(key % n_shards);
    case EMBD_PARTITION_SLOT:
        return slot % n_shards;
    case EMBD_PARTITION_HASH:
        break;
    }
    return (uint32_t)(((embd__mix64(key) >> 54) * n_shards) >> 10);
}

/* A table's id on the wire, unless another table of the shard has it. Never 0. */
uint32_t embd__table_id(const char *name);
/* The ids that a shard tries, one after the other; n = 0: embd__table_id. Never 0. */
uint32_t embd__table_id_at(const char *name, uint32_t n);

#endif
