/* pull.h - making rows of a pull. */
#ifndef EMBD_SHARD_PULL_H
#define EMBD_SHARD_PULL_H

#include "server/shard/work.h"

/* The part's keys as a store takes them. */
static inline struct store_keys pull_keys(const struct part *part)
{
    return (struct store_keys){part->n_keys,  part->n_rows, part->keys,
                               part->offsets, part->slots,  part->weights};
}

/* Makes the next `count` rows of a part into out, from a store that answers at once. */
void pull_make(struct shard_work *work, struct work_part *part, void *out, uint32_t count);

#endif
