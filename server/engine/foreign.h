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
 * next record of its stream follows. A start has lost the push itself: it forgets the stream, and
 * the trainer is told. */
#ifndef EMBD_ENGINE_FOREIGN_H
#define EMBD_ENGINE_FOREIGN_H

#include "server/engine/engine.h"

/* Whether the durability of one of its tables was set, and its stream, which is not known among
 * those of their kind, is among the others. Sets op->is_foreign. */
bool foreign_find(struct op *op);

/* Whether the record of an operation has its number alone. */
bool foreign_is_number_alone(const struct op *op);

/* EMBD_CLOSED, in op->error: of a push whose record has its number alone, the record is left. */
void foreign_check_owner(struct op *op);

/* Before a replayed operation takes its turn. EMBD_NO_MEMORY, EMBD_FULL. */
int foreign_follow(struct op *op, struct embd__error *e);
/* It has taken it, or had it before. */
void foreign_note(const struct op *op);

/* The journal is replayed. */
void foreign_end_replay(struct engine *engine);
/* How far a snapshot knows a stream of tables that are not journaled: whether that is its position.
 * Then the streams whose position nobody knows are forgotten. */
bool foreign_takes(const struct engine *engine, const struct push_stream *entry);
void foreign_forget(struct engine *engine);

#endif
