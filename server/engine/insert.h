/* insert.h - the rows that a pull makes: what each of its tables is to insert. Parts that name one
 * table and make rows are one insert of it: a request sees a key once, and the rows of its own keys
 * stay. */
#ifndef EMBD_ENGINE_INSERT_H
#define EMBD_ENGINE_INSERT_H

#include "server/engine/op.h"

/* Whether the part's table is to make rows for it; a pull that asks for zeros only reads. */
bool insert_is_of(const struct op_part *part);

/* Says of each table's first part what that table inserts, and asks all tables where there are
 * several, or several parts of one. EMBD_FULL, EMBD_NO_MEMORY, EMBD_TOO_LARGE:
 * nothing is changed. */
int insert_prepare(struct op *op, struct embd__error *e);

/* The insert of the table of a first part; takes the part's ticket. */
struct store_change insert_of(const struct op *op, struct op_part *part);

/* The statuses that the table of `first` has answered, to its parts. */
void insert_tell(const struct op *op, const struct op_part *first);

#endif
