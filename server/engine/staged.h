/* staged.h - tables that are loaded beside those that requests see, and then take their place, all
 * at once.
 *
 * A set of staged tables has an id, and a shard has STAGED_SETS at most. Nothing but loads reaches
 * staged tables: they are in no list and no snapshot. A base of a journal has them. A table that
 * replaces another takes its number and its id; one that replaces none keeps the id that it got.
 * Owner: the shard's thread. */
#ifndef EMBD_ENGINE_STAGED_H
#define EMBD_ENGINE_STAGED_H

#include "server/engine/tables.h"

/* NULL: there is no set of that id. */
struct staged *staged_set(const struct tables *tables, uint64_t id);
static inline bool staged_is_any(const struct tables *tables)
{
    return tables->n_staged > 0;
}

/* Opens the next table of the set. `table` is the table's id, as for tables_create. EMBD_EXISTS:
 * the set has one of that name. EMBD_BUSY: there are too many sets. EMBD_TOO_LARGE, EMBD_NO_MEMORY,
 * EMBD_UNSUPPORTED: nothing changed. */
int staged_prepare(struct tables *tables, uint64_t id, const embd_schema *schema, uint32_t table,
                   struct embd__error *e);
/* The second half, which cannot fail behind the first; prepares it where that was not done. */
int staged_add(struct tables *tables, uint64_t id, const embd_schema *schema, uint32_t table,
               struct embd__error *e);

/* EMBD_UNKNOWN_TABLE: the set of that id has none of that name. */
struct table *staged_find(const struct tables *tables, uint64_t id, const char *name,
                          struct embd__error *e);
/* Whether any of the set is journaled. */
/* EMBD_DURABILITY_SNAPSHOT: of no table, too. */
embd_durability staged_durability(const struct tables *tables, uint64_t id);
bool staged_is_journaled(const struct tables *tables, uint64_t id);

/* Ends the set, if there is one of that id. */
void staged_drop(struct tables *tables, uint64_t id);

/* Whether the set can replace. EMBD_INVALID: there is no set of that id; a table is journaled and
 * the one in its place is not. EMBD_EXISTS: a record gave a new table another's id. EMBD_TOO_LARGE.
 */
int staged_check(const struct tables *tables, uint64_t id, struct embd__error *e);
/* After the check. Calls in flight have returned. Sets the tables that came, [1]: those that are
 * journaled. */
void staged_replace(struct tables *tables, uint64_t id, struct table_set replaced_out[2]);

#endif
