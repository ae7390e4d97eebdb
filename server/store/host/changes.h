/* changes.h - which rows changed since earlier cuts, and which keys lost theirs, so that a cut can
 * be of those alone.
 *
 * From a cut on a set notes changes until the next cut begins another one: a bit for each row, and
 * a list of keys that were erased or evicted. What has changed since a cut is what its set and all
 * later ones say. The sets of the last CHANGES_MAX cuts are kept. Where there is no memory for a
 * note, the set says that all rows changed, or that it cannot tell: a cut is larger then, and never
 * wrong. Owner: the shard's thread. */
#ifndef EMBD_HOST_CHANGES_H
#define EMBD_HOST_CHANGES_H

#include "server/store/gone.h"
#include "server/store/host/marks.h"

#define CHANGES_MAX 8u

struct change_set {
    uint64_t cut; /* its id */
    struct marks rows;
    bool has_all; /* rows: any may have changed */
    struct gone gone;
};

/* Zeroed: nothing is noted. */
struct changes {
    struct change_set sets[CHANGES_MAX]; /* [n], the newest last */
    uint32_t n;
};

struct store;

void changes_fini(struct changes *changes);
uint64_t changes_bytes(const struct changes *changes);

/* The oldest set goes where there is no place for one more. */
void changes_make_room(struct changes *changes);
/* There is room: what changes from now on is noted since this cut. Out of memory: it will have_all.
 */
void changes_begin(struct store *store, uint64_t cut);

/* Of the sets from the one of `cut` on, the first; n: none is of that cut, or one is unsure. */
uint32_t changes_find(const struct changes *changes, uint64_t cut);
/* Leaves the bits of those of the first n_rows rows clear that changed, as the sets from `first` on
 * say, and sets the others. */
void changes_unmark(const struct changes *changes, uint32_t first, struct marks *marks,
                    uint64_t n_rows);

/* Only where changes->n > 0. */
void changes_note_row(struct store *store, uint32_t row);
void changes_note_merged(struct store *store);
void changes_note_all(struct store *store);
void changes_note_gone(struct store *store, uint64_t hash, uint32_t slot);

#endif
