/* sweep.h - the steps of the rows that a push does not name, in tables with update = global.
 *
 * A push passes over its whole table, which takes seconds where that is large. So the pass is
 * divided: the push makes one slice of it, and each sweep_go_on one more, so that other tables can
 * be served between them. The table looks as it does behind the push all the while: a row that is
 * read meanwhile steps first, and what changes rows ends the pass before. A slice is a number of
 * columns, not a time, so that the same calls always do the same.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_HOST_SWEEP_H
#define EMBD_HOST_SWEEP_H

#include "server/store/optimizer.h"
#include "server/store/store.h"

enum sweep_phase {
    SWEEP_NONE,   /* nothing is left to do */
    SWEEP_COPIES, /* for the cut that is being read: of all that it has */
    SWEEP_FREE,   /* rows that no key has are named, so that they do not step */
    SWEEP_ROWS,   /* all rows step that are not named */
};

struct sweep {
    enum sweep_phase phase;
    bool keeps;                   /* the cut being read is older than the push: rows are copied */
    struct optimizer_step step;   /* the push's */
    uint64_t copied;              /* entries of the index */
    uint32_t free;                /* the next row to be named, of n_free */
    uint64_t n_free, row, n_rows; /* rows before `row` have stepped, of n_rows */
};

/* The push has taken its step in the rows of store->merge: begins with the others. */
void sweep_begin(struct store *store, const struct optimizer_step *step);
/* One slice. False: nothing is left. */
bool sweep_go_on(struct store *store);
/* About how many of them are left. */
uint64_t sweep_slices(const struct store *store);

/* Only in a sweep. A row is about to be read, or those of all keys of rows first .. end of a
 * request: they step now. */
void sweep_reach(struct store *store, uint64_t hash, uint32_t slot, uint32_t ref);
void sweep_reach_keys(struct store *store, const struct store_keys *in, uint32_t first,
                      uint32_t end);
/* A cut is made: it has the table as behind the push. */
static inline void sweep_freeze(struct sweep *sweep)
{
    sweep->keeps = false;
    if (sweep->phase == SWEEP_COPIES)
        sweep->phase = SWEEP_FREE;
}

#endif
