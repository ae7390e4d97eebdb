/* joining.h - tables come into the journal and leave it: their durability is set.
 *
 * A table whose durability becomes `buffered` or `durable` joins the journal. From the record of
 * that change on its operations have records; a start skips these until a base has the table's
 * rows. Once such a base is on disk the durability is what was asked for. Until then it is what it
 * was: a snapshot says so, and a start takes the table from the last snapshot.
 *
 * A table whose durability becomes `snapshot` is not in the journal from then on. A start has it
 * from the last snapshot, whatever durability that says.
 *
 * While a journal is read, tables of both sorts are apart: named in it, but not to be had from it.
 * Owner: the shard's thread. */
#ifndef EMBD_ENGINE_JOINING_H
#define EMBD_ENGINE_JOINING_H

#include "server/engine/tables.h"

/* The table is about to have that definition. Its durability becomes what counts now: where the
 * table joins the journal, what it was. */
void joining_take(struct tables *tables, struct table *table, embd_schema *changed);
/* It goes, or stays as it is. */
void joining_leave(struct tables *tables, struct table *table);
/* Of table_durability: what a base has of it. */
embd_schema joining_schema(const struct table *table);

/* A base with the rows of that attempt is on disk. `table` NULL: it is gone. */
void joining_end(struct tables *tables, struct table *table, uint64_t joining);
/* No base can be made: the attempts come to nothing. */
void joining_fail(struct tables *tables, const char *why);

/* Whether its durability was set: it may have been in the journal, or out of it, before. */
bool joining_was_set(const struct table *table);
/* Whether a base has to say that the journal does not have the table, though older files may. */
bool joining_is_left(const struct table *table);

void joining_set_apart(struct tables *tables, uint32_t id, const char *name);
bool joining_is_apart(const struct tables *tables, const char *name);
bool joining_is_apart_id(const struct tables *tables, uint32_t id);
/* A table of that id, or name, is there. */
void joining_has(struct tables *tables, uint32_t id, const char *name);

#endif
