/* cow.h - copy on write: a table as it was at one moment, for as long as a cut is read, and the
 * changes since earlier cuts, so that a cut can be limited to them.
 *
 * A cut is read in small steps while pushes go on. A row that a push is about to change is copied
 * first, unless it has been read already; rows created later are not in the cut. So the moment
 * itself costs a bit for each row, and a push one copy of each row that it is the first to change.
 *
 * From a cut on a set notes changes until the next cut begins another set: a bit for each row, and
 * a list of keys that were erased or evicted. As long as few rows changed it lists their keys, too:
 * then a cut since another one finds these, and does not read the whole index. The changes since a
 * cut are those of its set and of all later ones. The sets of the last CHANGES_MAX cuts are kept.
 * If there is no memory for a note, the set says that all rows changed, or that it cannot tell: a
 * cut is larger then, and never wrong.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_HOST_COW_H
#define EMBD_HOST_COW_H

#include "server/store/gone.h"
#include "server/store/host/index.h"
#include "server/store/host/rows.h"

struct store;

#define COW_CHUNK_ROWS 256u

/* Rows copied before they changed. */
struct cow_chunk {
    struct cow_chunk *next;
    uint32_t n, n_read;
    uint64_t keys[COW_CHUNK_ROWS];
    uint16_t slots[COW_CHUNK_ROWS];
    uint8_t records[]; /* [COW_CHUNK_ROWS][cow.copy_bytes] */
};

struct cow_candidate {
    uint64_t key;
    uint32_t slot, count;
};

struct cow {
    bool is_on;
    uint32_t first_set, end_set; /* of the store's changes: whose removed keys are in the cut */
    uint64_t gone_at;            /* read of first_set's */
    uint64_t gone_end;           /* of the last set, which may grow: as many as it had */
    bool is_broken;              /* there was no memory for a copy */
    uint64_t n_rows;             /* numbers of rows there were */
    struct row_set done;         /* of them: read, copied, or not in the cut */
    uint64_t n_left; /* that are not done, and rows that nobody has; 0: the index has no more */
    /* How far the index was read. */
    bool is_read;
    uint64_t address, at, moved;
    /* Instead of the index, where few rows changed. */
    struct changed_key
        *listed; /* [n_listed], n_listed_read of them read; NULL: the index is read */
    uint64_t n_listed, n_listed_read;
    struct cow_chunk *first, *last;
    uint32_t generation; /* of its candidates */
    bool has_candidates; /* admit_after was above 1 at the cut; else it has none: */
    /* Keys without a row that were read or copied, or are not in the cut. */
    struct index seen;
    struct cow_candidate *candidates; /* [n_candidates] copied, n_candidates_read of them read */
    uint64_t n_candidates, n_candidates_read, candidates_capacity;
    uint64_t n_chunks;
    uint32_t copy_bytes; /* of a copy: a record, or what is before its state if nobody reads that */
    uint64_t most_bytes; /* all this memory may be no more; 0: it may */
};

/* Memory of the copies. */
uint64_t cow_bytes(const struct store *store);

/* Only while cow->is_on. A key's row or candidate is about to change: `ref` is its index entry's.
 */
void cow_keep(struct store *store, uint64_t hash, uint32_t slot, uint32_t ref);
/* The same for all keys of a request. */
void cow_keep_merged(struct store *store);
/* The same for all that the cut has: of the next n entries of the index, from *at on, which begins
 * at 0. False: it was the rest. */
bool cow_keep_some(struct store *store, uint64_t *at, uint64_t n);
/* A key without a row is read or copied. False: it was before, or there is no memory. */
bool cow_see(struct store *store, uint64_t hash, uint32_t slot);
/* The same key: a candidate that was not forgotten before the cut. */
static inline bool cow_is_in_cut(const struct cow *cow, uint32_t ref)
{
    return ref != 0 && (ref & INDEX_GENERATION) == cow->generation;
}
/* The row was taken for a key that the cut does not have. */
void cow_note_new(struct store *store, uint32_t row);

/* ---- what has changed since earlier cuts ---- */

#define CHANGES_MAX 16u /* snapshots have half of them, readers of changes the rest */

/* A key whose row changed; it may have another one, or none, by now. */
struct changed_key {
    uint64_t hash;
    uint32_t slot;
};

/* Of a set: so many keys, or as many as a part of the rows where these are more, up to 4 MiB. Where
 * more have changed, reading the whole index costs less than looking for each of them. */
#define LISTED_LEAST 65536u
#define LISTED_MOST  262144u
#define LISTED_PART  16u

struct change_set {
    uint64_t cut; /* its id */
    struct row_set rows;
    bool has_all; /* rows: any may have changed */
    struct gone gone;
    /* The keys of `rows`, each at least once; none where they are more than listed_most. */
    struct changed_key *listed; /* [n_listed] */
    uint32_t n_listed, listed_capacity, listed_most;
    bool is_unlisted; /* keys are missing: there are none */
};

/* Zeroed: nothing is noted. */
struct changes {
    struct change_set sets[CHANGES_MAX]; /* [n], the newest last */
    uint32_t n;
};

void changes_fini(struct changes *changes);
/* Earlier changes are not known any more: a cut since an earlier one has all rows. */
void changes_forget(struct changes *changes);
uint64_t changes_bytes(const struct changes *changes);

/* Only where changes->n > 0. These changed. The row of a key, new or old. */
void cow_note_row(struct store *store, uint64_t hash, uint32_t slot, uint32_t row);
/* The rows of the keys of a request; of new ones cow_note_row was told. */
void cow_note_merged(struct store *store);
void cow_note_all(struct store *store);
void cow_note_gone(struct store *store, uint64_t hash, uint32_t slot);

#endif
