/* apply.h - the operations that end before engine_apply returns, but for a set. Each sets
 * op->error, or its results. */
#ifndef EMBD_ENGINE_APPLY_H
#define EMBD_ENGINE_APPLY_H

#include "server/engine/op.h"

/* Of a create or a table to be staged, before its record is written: the table is opened, and the
 * operation has its id. Errors of tables_prepare and staged_prepare. */
int apply_prepare(struct op *op, struct embd__error *e);
void apply_create(struct op *op);
void apply_drop(struct op *op);
void apply_erase(struct op *op);
void apply_load(struct op *op);
/* put.c; the first as engine_admit. */
int put_admit(struct op *op);
void apply_put(struct op *op);
void apply_open_stream(struct op *op);
void apply_stage(struct op *op);
void apply_unstage(struct op *op);
void apply_replace(struct op *op);
void apply_prepared(struct op *op);
/* Whether it can be applied, as far as tables and streams say. */
int apply_check_replace(struct op *op, struct embd__error *e);
void apply_streams(struct op *op);
/* Ends now, or with slices of tables_sweep. */
void apply_set(struct op *op);

#endif
