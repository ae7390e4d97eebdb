/* capacity.h - whether an operation finds room and memory in all of its tables, asked before its
 * record is written, and before the first of them is changed. */
#ifndef EMBD_ENGINE_CAPACITY_H
#define EMBD_ENGINE_CAPACITY_H

#include "server/engine/engine.h"

/* Has the store of part i decide on a push or insert that comes next; the part keeps its ticket.
 * The error names the part where there are several; errors of store_ops.prepare. */
int capacity_prepare(struct op *op, uint32_t i, struct store_change *change, struct embd__error *e);

/* EMBD_FULL, if a push is sure to be refused so and its record is not written yet; EMBD_NO_MEMORY.
 * Not if the check would cost more than it saves. */
int capacity_check(struct op *op, struct embd__error *e);

/* Reserves memory for the rows of a push, load or put, within row_memory, before its record is
 * written; the tickets of a push's parts keep it until it is applied. EMBD_FULL: the text names
 * table, bytes and limit. After EMBD_NO_MEMORY and other errors of store_ops.prepare, too, the
 * record must not be written. */
int capacity_reserve(struct op *op, struct embd__error *e);
/* The same for a pull's inserts into the table of `part`. */
int capacity_reserve_insert(struct op *op, struct op_part *part, struct embd__error *e);
/* The push adds so many bytes to the table, slice by slice; they are counted from now on. False,
 * with EMBD_FULL: row_memory has no room for them any more. What a journal has is not refused. */
bool capacity_claim(struct op *op, struct table *table, uint64_t bytes, struct embd__error *e);

/* Gives up the tickets that the operation has left. */
static inline void capacity_left(struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct op_part *part = &op->parts[i];
        if (part->table != NULL && store_has_ticket(&part->ticket))
            op->engine->tables.ops->cancel(part->table->store, &part->ticket);
    }
}

#endif
