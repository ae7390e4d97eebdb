/* pull.h - rows out of the tables. */
#ifndef EMBD_ENGINE_PULL_H
#define EMBD_ENGINE_PULL_H

#include "server/engine/engine.h"

/* As engine_admit and engine_apply. A store that answers in pieces only inserts the rows that the
 * pull creates; pull_rows gives its rows. For other stores the parts have room for all rows
 * (values). */
int pull_admit(struct op *op);
void pull_apply(struct op *op);

/* Whether the stores make the rows of a pull as a whole. */
static inline bool pull_is_whole(const struct engine *engine)
{
    return engine->tables.ops->caps.is_async;
}

/* Of such a store, for op->made: whether nothing but the failure of a device ends the pull with an
 * error any more. True once, it stays true until then. */
bool pull_is_sure(struct op *op);

/* Of such a store and a part of i8 or i4: bytes behind its values, for its rows as f32. Else 0. */
uint64_t pull_wide_bytes(const struct op_part *part);

/* Rows first .. first + count of a part into out, by a store that answers in pieces. */
void pull_rows(const struct op *op, const struct op_part *part, uint32_t first, uint32_t count,
               void *out);

#endif
