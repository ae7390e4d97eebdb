/* operation.h - the bytes of an operation, as records have them.
 *
 * An operation is written as a notification of the protocol, [2, name, [{fields}, bins]], with the
 * fields and bins of the method of that name (proto/PROTOCOL.md), less what concerns a connection:
 * no msgid, no round, no token; and with what was decided before it was written: a table's
 * durability, which stream goes for a new one, and whose a push is. Earlier versions wrote requests
 * as they were received; those are read too. */
#ifndef EMBD_JOURNAL_OPERATION_H
#define EMBD_JOURNAL_OPERATION_H

#include "proto/message.h"
#include "server/engine/engine.h"
#include "server/journal/record.h"

/* The operation's bytes as `frame`, whose head is m's and whose bins are the operation's arrays:
 * both stay the caller's; copy them. Reuses m's memory. EMBD_NO_MEMORY, EMBD_TOO_LARGE: a journal
 * takes no frame of that size. */
int operation_write(struct msg *m, const struct op *op, struct frame_scanner *frame,
                    struct embd__error *e);

/* The same of an operation that changes nothing. */
int operation_nothing(struct msg *m, struct frame_scanner *frame, struct embd__error *e);
/* Whether its kind shares groups: a push, or a stream that is opened. */
bool operation_shares(const struct frame_scanner *frame);

/* Whether it gives the shard a later map of keys to shards, behind rows that moved. */
struct operation_map {
    uint64_t version, decision;
    uint32_t n_shards;
};
bool operation_moves(const struct frame_scanner *frame, struct operation_map *out);

/* Memory of the first bins of one record is that of the next, up to so many bytes each: a mapping
 * costs more than what is copied into it. */
#define OPERATION_KEPT       4u
#define OPERATION_KEPT_BYTES (8u << 20)

struct operation_buffer {
    void *data; /* of the store; NULL: none */
    uint64_t bytes;
};

/* Reads operations, one after another. Zeroed before the first; freed by operation_reader_fini. */
struct operation_reader {
    msgpack_zone zone;
    bool has_zone;
    struct op op;
    struct frame_scanner frame;
    uint32_t n_buffers; /* bins of frame that are copies, from the store */
    struct operation_buffer kept[OPERATION_KEPT];
    struct push_stream *streams; /* malloc'd, of op.as.streams or op.as.replace */
    struct table_set *sets;      /* likewise */
    struct placement place;      /* op.as.replace.place points to, or not */
    struct part *parts;          /* [LIMIT_PARTS] of the record being read; NULL: not needed yet */
    struct push_source sources[PUSH_SOURCES_MAX]; /* of op */
};
void operation_reader_fini(struct operation_reader *reader);

/* The operation of a record that verifies, checked against the engine's tables, as reader->op; it
 * points to copies, so that `bytes` may go. Keys may be another shard's: earlier versions took such
 * keys. EMBD_NO_MEMORY, EMBD_UNKNOWN_TABLE, EMBD_INVALID, EMBD_UNSUPPORTED: a later version's. */
int operation_read(struct operation_reader *reader, struct engine *engine, uint8_t *bytes,
                   const struct record *record, struct embd__error *e);

#endif
