/* capacity.h - whether an operation finds room and memory in all of its tables, asked before its
 * record is written, and before the first of them is changed. */
#ifndef EMBD_ENGINE_CAPACITY_H
#define EMBD_ENGINE_CAPACITY_H

#include "server/engine/op.h"

/* Has the store of part i decide on a push or insert that comes next. The error names the part
 * where there are several; errors of store_ops.prepare. */
int capacity_prepare(const struct op *op, uint32_t i, struct store_plan *plan,
                     struct embd__error *e);

/* EMBD_FULL, where a push whose record is to be written is sure to be refused so; EMBD_NO_MEMORY.
 * Not where that would cost more than it saves. */
int capacity_check(const struct op *op, struct embd__error *e);

/* Memory for the rows of a push whose record is to be written, beside those whose records are.
 * EMBD_NO_MEMORY and others of store_ops.reserve: it must not be. */
int capacity_reserve(const struct op *op, struct embd__error *e);
/* Until it is applied, other pushes leave it that memory. */
void capacity_keep(struct op *op);
void capacity_part_left(const struct op *op, const struct op_part *part);
void capacity_left(struct op *op); /* the parts whose tables are not NULL */

#endif
