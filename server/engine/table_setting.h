/* table_setting.h - fields of a table's definition are set while it lives; and the work that is
 * left to be done in slices, of that as of pushes that step all rows.
 *
 * A capacity below a table's rows takes seconds where many rows go. So it is divided: until it has
 * ended the table is_swept, which keeps changes away from it, and tables_sweep makes a slice. Reads
 * have the table as it was, and from one slice on as it becomes, by its definition and without the
 * rows that go; what is left then is to give back their memory. */
#ifndef EMBD_ENGINE_TABLE_SETTING_H
#define EMBD_ENGINE_TABLE_SETTING_H

#include "server/engine/tables.h"

/* Whether the change can be made. EMBD_INVALID, EMBD_UNSUPPORTED, EMBD_FULL (bound.h). */
int tables_check_set(const struct tables *tables, const struct table *table,
                     const struct schema_change *change, struct embd__error *e);

/* Who set it, until it has ended; the caller's. */
struct setting_owner {
    /* The rows go with the next slice. False: later, it will be asked again. NULL: they may. */
    bool (*make_way)(struct setting_owner *owner, const struct table *table);
    /* It has ended. Errors as above, and EMBD_NO_MEMORY: nothing changed but for n_gone rows, and
     * candidates. */
    void (*ended)(struct setting_owner *owner, uint32_t n_gone, const struct embd__error *e);
};

/* Makes it, now or with calls of tables_sweep. One at a time, and no store call may be in flight.
 */
void tables_begin_set(struct tables *tables, struct table *table,
                      const struct schema_change *change, struct setting_owner *owner);

/* Where tables->n_swept > 0: makes one slice, of one table; the tables take turns. Whether that was
 * a table's last. */
bool tables_sweep(struct tables *tables);

#endif
