/* materialize.h - pulls whose bytes are made while they are sent, and what must happen before a
 * table changes. */
#ifndef EMBD_SERVICE_MATERIALIZE_H
#define EMBD_SERVICE_MATERIALIZE_H

#include "server/engine/engine.h"
#include "server/service/work.h"

/* Lists an answered pull that has rows left to make; materialize_forget takes it off, also when it
 * is not listed. */
void materialize_watch(struct shard_work *work);
void materialize_forget(struct shard_work *work);

/* Before `session` changes `table`: makes the rows that answers on their way still need of it into
 * memory. EMBD_NO_MEMORY, and EMBD_BUSY when that would be too much: the change must not happen;
 * the answers are as good as before. */
int materialize(struct shard *shard, const struct shard_session *session, const struct table *table,
                enum change change, struct embd__error *e);

/* The next `count` rows of part i of a pull, from a store that answers in pieces. */
void materialize_rows(struct shard_work *work, uint32_t i, void *out, uint32_t count);

/* All rows of the part are made: its table may go. */
void materialize_end(struct shard_work *work, struct op_part *part);

/* Frees the rows of a part that were made before they were sent. */
void materialize_free(struct shard *shard, struct answer_rows *rows);

#endif
