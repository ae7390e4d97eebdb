/* shortlist.h - the rows that will have to go next, found bit by bit before they must.
 *
 * Which rows a pass of evict.c takes is said by their ranks alone, at the moment of the pass. To
 * find them then would stop the shard for as long as it takes to look at all rows. But a rank only
 * rises, when its row is pushed. So every row that is up to some rank when room runs out was so
 * before, or is new: a list of the rows up to that rank, drawn up while room runs out and with new
 * rows added, has them all. A bit of each row says whether it is on the list: a push that makes it
 * rise above takes it off that way, and one that leaves it low adds it anew, so that of several
 * entries of a row the last is true. The pass goes through the list, and looks at no row.
 *
 * It falls to the pushes that make rows to draw it up, each as much as it takes room. The first
 * segment of the index, as good a sample as any because it is one by hash, says up to which rank
 * the list has to go for several passes' rows. Where so many of them have risen that there are too
 * few, the pass looks at all rows, and the next list is longer.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_HOST_SHORTLIST_H
#define EMBD_HOST_SHORTLIST_H

#include <stdbool.h>
#include <stdint.h>

#include "index.h"
#include "marks.h"
#include "use.h"
#include "victims.h"

struct store;

struct shortlist {
    bool is_on;      /* has begun */
    bool is_ready;   /* has all rows up to `bound`; before that, those of the hashes below `read_to` */
    bool is_bounded; /* else it has all rows there are */
    uint32_t halves; /* it begins with as many rows as so many half passes take; 0: as the fewest */
    uint64_t read_to;
    struct use_rank bound;
    struct victim *rows; /* [n]; of a row that is on the list the last entry counts */
    uint64_t n, capacity;
    struct marks has; /* the rows that are on the list, while it is on */
};

/* A request is done that made n_new rows: some more of the list, where room gets scarce. */
void shortlist_go_on(struct store *store, uint32_t n_new);
/* The rest of it, for a pass that takes `most` rows; each row stands on it once then. Out of memory:
 * false, and there is none. */
bool shortlist_finish(struct store *store, uint64_t most);
/* The entry is new, and so is its row. */
void shortlist_note_new(struct store *store, const struct index_entry *entry);
/* Only while it is on. A row was pushed; it was taken from its key. */
void shortlist_note_use(struct store *store, const struct index_entry *entry);
void shortlist_note_gone(struct store *store, uint32_t row);
/* The first n of its rows are taken from their keys, and off the list. */
void shortlist_cut(struct store *store, uint64_t n);
/* There were too few. */
void shortlist_disappoints(struct store *store);
/* Ranks have changed otherwise than by pushes, or few rows are left. */
void shortlist_drop(struct store *store);

#endif
