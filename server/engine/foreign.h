/* foreign.h - streams of numbered pushes whose tables have changed their durability.
 *
 * A stream is of journaled tables or of others, as its opening says. A trainer that opened a table
 * before its durability was set goes on with the stream that it has: a foreign one. Its numbers are
 * looked up where the stream is.
 *
 * A foreign push to a journaled table is in the journal, other pushes of its stream are not. A
 * replay believes the order of these records, as those that were refused are withdrawn. In the end
 * it knows how far the stream had come; if the stream pushed to journaled tables alone, that is its
 * position. Otherwise the snapshot's is, unless that is older: then the stream is forgotten, and
 * nothing is applied twice.
 *
 * A foreign push to a table that is not journaled has a record of its number alone, so that the
 * next record of its stream follows. A start has lost the push itself, as it has those to a table
 * that had left the journal, or was to join it: unless the snapshot has the last of them, it
 * forgets the stream, and the trainer gets an error. */
#ifndef EMBD_ENGINE_FOREIGN_H
#define EMBD_ENGINE_FOREIGN_H

#include "server/engine/engine.h"

/* Whether the durability of one of its tables was set, and its stream, which is not known among
 * those of their kind, is among the others. Sets op->is_foreign. */
bool foreign_find(struct op *op);

/* Whether the record of an operation has its number alone. */
static inline bool foreign_is_number_alone(const struct op *op)
{
    return op->is_foreign && op_pushers(op) == &op->engine->journaled_pushers;
}

/* EMBD_CLOSED, in op->error: of a push whose record has its number alone, the record is left. */
void foreign_check_owner(struct op *op);

/* Of a stream's tables, for a base that has `journaled`: whether it has pushed beyond them.
 * `has_left`: tables have left the journal. */
void foreign_mark(struct table_set *set, const struct table_set *journaled, bool has_left);

/* Before a replayed operation takes its turn. EMBD_NO_MEMORY, EMBD_FULL. */
int foreign_follow(struct op *op, struct embd__error *e);
/* It has taken it, or had it before: where the journal does not have what it changed, the stream's
 * position is the snapshot's, or nobody's. */
void foreign_note(const struct op *op);

/* The table leaves the journal: what streams have pushed to it is not to be had from there. */
void foreign_lose_table(struct engine *engine, uint32_t number);

/* How far a snapshot knows the streams of tables that are not journaled: leaves those whose
 * position that is. The others are behind, and engine->behind has how far they had come.
 * EMBD_NO_MEMORY. */
int foreign_take(struct engine *engine, struct push_stream *list, uint64_t *n,
                 struct embd__error *e);
/* Of streams that are behind and were forgotten, for a base: the next start forgets them too.
 * Returns how many; max at most. */
uint32_t foreign_list_behind(const struct engine *engine, uint32_t max, struct push_stream *out,
                             struct table_set *sets_out);
/* The same of a stream of journaled tables: a snapshot that has the last push that the journal has
 * not has all of them. */
void foreign_meet(struct engine *engine, const struct push_stream *entry);
/* Then the streams whose position nobody knows are forgotten. */
void foreign_forget(struct engine *engine);

#endif
