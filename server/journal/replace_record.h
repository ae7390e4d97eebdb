/* replace_record.h - records of tables that take the places of others: the change itself, and on
 * clusters of several shards that it is prepared, withdrawn or decided; maps of keys to shards. */
#ifndef EMBD_JOURNAL_REPLACE_RECORD_H
#define EMBD_JOURNAL_REPLACE_RECORD_H

#include "proto/message.h"
#include "server/engine/engine.h"

/* Of journaled tables and their streams alone. */
void replace_record_write(struct msg *m, const struct op_replace *replace);
/* Sets op->kind too. *streams_out: malloc'd, what op->as.replace points to; NULL: nothing.
 * op->as.replace.place is place_out, or NULL. */
int replace_record_read(struct op *op, struct reader *r, struct push_stream **streams_out,
                        struct placement *place_out);
/* The fields of a record alone, whose streams stay unread. */
int replace_record_look(struct reader *r, struct op_replace *out, struct placement *place_out);

#endif
