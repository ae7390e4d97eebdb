/* copying.h - tables that are copied out of a shard and into another one. */
#ifndef EMBD_TESTS_COPYING_H
#define EMBD_TESTS_COPYING_H

#include "tests/server/rig.h"

/* Of f16 rows, slots and candidates; of plain rows. No journal keeps them. */
embd_schema copying_slotted(void);
embd_schema copying_plain(void);
/* Creates the table and pushes three batches. */
void copying_fill(struct rig *rig, const embd_schema *schema);

/* Another one, drawn from `random`. */
void copying_push_again(struct rig *rig, const embd_schema *schema, uint64_t random);

/* An admin's request without fields. */
void copying_simple(struct rig *rig, enum method method);
void copying_load(struct rig *rig, const embd_schema *schema, const struct row_block *block,
                  uint64_t step);

#endif
