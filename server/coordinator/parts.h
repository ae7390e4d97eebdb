/* parts.h - the parts that shards wrote for a snapshot, as the coordinator passes them on. */
#ifndef EMBD_COORDINATOR_PARTS_H
#define EMBD_COORDINATOR_PARTS_H

#include "proto/partfile.h"

struct written_part {
    char table[EMBD_NAME_MAX + 1];
    struct manifest_part part;
    uint64_t step;
};

/* A table that one shard has written and another has not. */
struct parts_gap {
    const char *table; /* NULL: every table is on all shards */
    uint32_t shard, without;
};

/* Looks for a table that is on some shards only: its creation has not come to the others, or one of
 * them has lost it. Such a snapshot could not be loaded. */
int parts_find_gap(const struct written_part *parts, uint32_t n, uint32_t n_shards,
                   struct parts_gap *out, struct embd__error *e);

#endif
