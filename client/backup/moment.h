/* moment.h - the records between a backup and a moment behind it, as files that a server replays
 * (proto/archived.h). */
#ifndef EMBD_BACKUP_MOMENT_H
#define EMBD_BACKUP_MOMENT_H

#include "client/backup/catalog.h"
#include "client/backup/shelf.h"

/* Which moment. */
struct moment_ask {
    uint64_t until_ms;         /* what had come by then; UINT64_MAX: all there is */
    const uint64_t *positions; /* [n_positions] records of each shard before these */
    uint32_t n_positions;      /* 0: no matter */
    bool goes_back; /* where shards had different maps or tables then: the last moment before */
};

struct moment {
    uint64_t n_records, n_left_out; /* that are replayed, and that some shards lack */
    uint64_t ms;                    /* when the last of them had come; 0: there are none */
    uint32_t n_shards;              /* at the moment */
    uint32_t n_kept; /* so many of them are those of the backup; the others have all that they are
                        in their records */
    bool went_back;  /* as `goes_back` has it */
    bool is_late;    /* the backup's cut may be behind the moment: take an older one; nothing was
                     written then */
};

/* Writes DIR/SHARD.archived for each shard, unless there are no records: out->n_records 0.
 * EMBD_CORRUPT: a file of records is damaged, lost or in the place of another one; EMBD_INVALID:
 * the records do not reach so far, or there are other shards; EMBD_UNSUPPORTED: some shards had
 * another map of keys at the moment, or tables that took the places of others, and the question
 * does not go back. */
int moment_write(const struct shelf *shelf, const struct record *record,
                 const struct moment_ask *ask, const char *dir, struct moment *out,
                 struct embd__error *e);

#endif
