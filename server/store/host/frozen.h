/* frozen.h - a table as it was at one moment, for as long as that is being read.
 *
 * A cut is read bit by bit while pushes go on. What a push is about to change is copied first,
 * unless it has been read already; rows that come later are not in the cut. So the moment itself
 * costs a bit for each row, and a push one copy of each row that it is the first to change. Owner:
 * the shard's thread. */
#ifndef EMBD_HOST_FROZEN_H
#define EMBD_HOST_FROZEN_H

#include "server/store/host/index.h"
#include "server/store/host/marks.h"
#include "server/store/host/rows.h"

struct store;
struct merge;

#define FROZEN_CHUNK_ROWS 256u

/* Rows copied before they changed. */
struct frozen_chunk {
    struct frozen_chunk *next;
    uint32_t n, n_read;
    uint64_t keys[FROZEN_CHUNK_ROWS];
    uint16_t slots[FROZEN_CHUNK_ROWS];
    uint8_t records[]; /* [FROZEN_CHUNK_ROWS][stride] */
};

struct frozen_candidate {
    uint64_t key;
    uint32_t slot, count;
};

struct frozen {
    bool is_on;
    uint32_t first_set, end_set; /* of the store's changes: whose gone keys are in the cut */
    uint64_t gone_at;            /* read of first_set's */
    uint64_t gone_end;           /* of the last set, which may grow: as many as it had */
    bool is_broken;              /* there was no memory for a copy */
    uint64_t n_rows;             /* numbers of rows there were */
    struct marks done;           /* of them: read, copied, or not in the cut */
    /* How far the index was read. */
    bool is_read;
    uint64_t hash, at, moved;
    struct frozen_chunk *first, *last;
    /* With admit_after: keys without a row that were read or copied, or are not in the cut. */
    struct index seen;
    struct frozen_candidate *candidates; /* [n_candidates] copied, n_candidates_read of them read */
    uint64_t n_candidates, n_candidates_read, candidates_capacity;
};

/* What is known of a key is about to change: `ref` as the index has it. */
void frozen_keep(struct store *store, uint64_t hash, uint32_t slot, uint32_t ref);
/* The same for all keys of a request, and for all that the cut has. */
void frozen_keep_merged(struct store *store);
void frozen_keep_all(struct store *store);
/* The row was taken for a key that the cut does not have. */
void frozen_note_new(struct store *store, uint32_t row);

#endif
