/* share.h - a bound of a table as shares of its shards. Every shard has the same one: enough for
 * the shard with the largest part of the keys, where these are spread evenly. */
#ifndef EMBD_PROTO_SHARE_H
#define EMBD_PROTO_SHARE_H

#include "embd/schema.h"
#include "proto/placement.h"

/* The share of n_shards when the table is to have `rows`, rounded up; at most LIMIT_CAPACITY. */
uint64_t embd__share_of(const embd_schema *schema, uint32_t n_shards, uint64_t rows);
/* The rows that a table has with this share, rounded down. */
uint64_t embd__share_total(const embd_schema *schema, uint32_t n_shards, uint64_t share);

/* The same of shards that a map gives unequal parts. */
uint64_t embd__share_of_placed(const embd_schema *schema, const struct placement *p, uint64_t rows);
uint64_t embd__share_total_placed(const embd_schema *schema, const struct placement *p,
                                  uint64_t share);

#endif
