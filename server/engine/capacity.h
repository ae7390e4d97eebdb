/* capacity.h - whether an operation finds room and memory in all of its tables, asked before its
 * record is written, and before the first of them is changed. */
#ifndef EMBD_ENGINE_CAPACITY_H
#define EMBD_ENGINE_CAPACITY_H

#include "server/engine/op.h"

/* Has the store of part i decide on a push or insert that comes next; the part keeps its ticket.
 * The error names the part where there are several; errors of store_ops.prepare. */
int capacity_prepare(struct op *op, uint32_t i, struct store_change *change, struct embd__error *e);

/* EMBD_FULL, where a push whose record is to be written is sure to be refused so; EMBD_NO_MEMORY.
 * Not where that would cost more than it saves. */
int capacity_check(struct op *op, struct embd__error *e);

/* Memory for the rows of a push whose record is to be written; the tickets of its parts keep it
 * until it is applied. EMBD_NO_MEMORY and others of store_ops.prepare: the record must not be
 * written. */
int capacity_reserve(struct op *op, struct embd__error *e);
/* Gives up the tickets that the operation has left. */
void capacity_left(struct op *op);

#endif
