/* table_record.h - the records of tables that come and go: creates, drops, and staged tables. They
 * have the id of their table where that is not the first of its name, so that a replay gives it the
 * same, whichever tables there were besides. */
#ifndef EMBD_JOURNAL_TABLE_RECORD_H
#define EMBD_JOURNAL_TABLE_RECORD_H

#include "server/engine/op.h"

struct reader;

void table_record_create_write(struct msg *m, const struct op_create *create);
void table_record_stage_write(struct msg *m, const struct op_stage *stage);
void table_record_unstage_write(struct msg *m, uint64_t id);
void table_record_set_write(struct msg *m, const struct op_table_set *set);

/* op->engine and op->kind are set. Of a table that is left out the operation becomes a pull of
 * nothing. EMBD_MALFORMED, EMBD_INVALID, EMBD_UNKNOWN_TABLE. EMBD_CORRUPT: another table has that
 * id. */
int table_record_create_read(struct op *op, struct reader *r);
int table_record_drop_read(struct op *op, struct reader *r);
/* A set that names the durability of a table that the journal does not have: set.table is NULL. */
int table_record_set_read(struct op *op, struct reader *r);
/* Also of a set's end, which has `drop`: OP_UNSTAGE. */
int table_record_stage_read(struct op *op, struct reader *r);

/* Staged tables take their places: so does the one that is left out. */
void table_record_replaced(struct tables *tables, uint64_t id);

#endif
