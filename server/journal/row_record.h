/* row_record.h - records that have rows: of a load, and of a put. */
#ifndef EMBD_JOURNAL_ROW_RECORD_H
#define EMBD_JOURNAL_ROW_RECORD_H

#include "server/engine/op.h"

void row_record_load_write(struct msg *m, const struct op_load *load);
void row_record_put_write(struct msg *m, const struct op *op);
int row_record_load_read(struct op *op, struct reader *r);
int row_record_put_read(struct op *op, struct reader *r);

/* The operation is of a table that is left out: it becomes one that does nothing. */
bool row_record_is_left_out(struct op *op, const char *name);
/* The same of one that is left out or apart (engine/joining.h). */
bool row_record_is_skipped(struct op *op, const char *name);

#endif
