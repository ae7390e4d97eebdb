/* admission.h - a table's admit_after is set while it lives. */
#ifndef EMBD_ENGINE_ADMISSION_H
#define EMBD_ENGINE_ADMISSION_H

#include "server/engine/tables.h"

/* Before the table becomes that: where keys do not wait any more, its candidates are forgotten. No
 * store call may be in flight. EMBD_NO_MEMORY, of a device EMBD_INTERNAL: some may be. */
int admission_make(const struct store_ops *ops, struct table *table, const embd_schema *to,
                   struct embd__error *e);

#endif
