/* bound.h - a table's capacity and on_full are set while it lives. */
#ifndef EMBD_ENGINE_BOUND_H
#define EMBD_ENGINE_BOUND_H

#include "server/engine/tables.h"

/* Whether the table can become that. EMBD_FULL: it has more rows, and its policy does not say which
 * go; EMBD_INVALID: a table that grows is to have more room at once. */
int bound_check(const struct store_ops *ops, const struct table *table, const embd_schema *to,
                struct embd__error *e);

/* Before it becomes that: rows beyond the capacity go, by the policy's order. EMBD_FULL as above,
 * EMBD_NO_MEMORY: nothing changed where *n_gone_out is 0. */
int bound_make(const struct store_ops *ops, struct table *table, const embd_schema *to,
               uint32_t *n_gone_out, struct embd__error *e);

#endif
