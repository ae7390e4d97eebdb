/* bound.h - a table's capacity and on_full are set while it lives. */
#ifndef EMBD_ENGINE_BOUND_H
#define EMBD_ENGINE_BOUND_H

#include "server/engine/tables.h"

/* Whether the table can become that. EMBD_FULL: it has more rows, and its policy does not say which
 * go; EMBD_INVALID: a table that grows is to have more room at once. */
int bound_check(const struct store_ops *ops, const struct table *table, const embd_schema *to,
                struct embd__error *e);

/* Before it becomes that: rows beyond the capacity go, by the policy's order. Begins, where
 * *shrink_out is zeroed, and where its phase is STORE_SHRINK_DONE then, it is over; else
 * bound_go_on goes on. `to` stays the caller's until then. EMBD_FULL as above, EMBD_NO_MEMORY:
 * nothing changed where *n_gone_out is 0. */
int bound_begin(const struct store_ops *ops, struct table *table, const embd_schema *to,
                struct store_shrink *shrink_out, uint32_t *n_gone_out, struct embd__error *e);
/* One slice. Errors as above: it is over. */
int bound_go_on(const struct store_ops *ops, struct table *table, struct store_shrink *shrink,
                uint32_t *n_gone_out, struct embd__error *e);

#endif
