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
 * the list has to go for several passes' rows.
 *
 * Where half of those it can spare have risen, it is drawn further, up to a higher rank: by the
 * pushes that make them rise, each as much as it takes off. Until that is done the list is good up
 * to the rank it had. So a push stops for a part of the table that is to the whole as its rows are
 * to those that can be spared; the list becomes longer each time, and the part smaller. A pass
 * looks at all rows where single requests take off more than it can spare.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_HOST_SHORTLIST_H
#define EMBD_HOST_SHORTLIST_H

#include <stdbool.h>
#include <stdint.h>

#include "server/store/host/index.h"
#include "server/store/host/marks.h"
#include "server/store/use.h"
#include "server/store/host/victims.h"

struct store;

struct shortlist_bound {
    bool is_all; /* rows there are */
    struct use_rank rank;
};

struct shortlist {
    bool is_on;                         /* has begun */
    bool is_ready;                      /* has all rows up to `bound` */
    bool is_drawing;                    /* has those of hashes below `read_to` up to `next` */
    struct shortlist_bound bound, next; /* next: no lower */
    uint64_t read_to;
    uint32_t
        halves; /* it is drawn for as many rows as so many half passes take; 0: as the fewest */
    struct victim *rows; /* [n]; of a row that is on the list the last entry counts */
    uint64_t n, capacity;
    struct marks has;  /* the rows that are on the list, while it is on */
    uint64_t n_listed; /* so many */
    uint64_t n_sure;   /* of these up to `bound`, at least */
    uint64_t n_off;    /* taken off by pushes since the last go_on, or no longer to be put on it */
    uint64_t spared;   /* as many may still be, until the drawing has to be done */
    uint64_t n_keys;   /* of the largest request */
};

/* A request of n_keys is done that made n_new rows: some more of the list, where it will be needed.
 */
void shortlist_go_on(struct store *store, uint32_t n_new, uint32_t n_keys);
/* There is one, up to its bound, for a pass that takes `most` rows; each row stands on it once. Out
 * of memory: false, and there is none. */
bool shortlist_prepare(struct store *store, uint64_t most);
/* The same, up to a higher bound; false also where there is none. */
bool shortlist_prepare_further(struct store *store);
/* The entry is new, and so is its row. */
void shortlist_note_new(struct store *store, const struct index_entry *entry);
/* Only while it is on. A row will be pushed; it was; it was taken from its key. */
void shortlist_before_use(struct store *store, const struct index_entry *entry);
void shortlist_note_use(struct store *store, const struct index_entry *entry);
void shortlist_note_gone(struct store *store, uint32_t row);
/* The first n of its rows are taken from their keys, and off the list. */
void shortlist_cut(struct store *store, uint64_t n);
/* There were too few. */
void shortlist_disappoints(struct store *store);
/* Ranks have changed otherwise than by pushes, or few rows are left. */
void shortlist_drop(struct store *store);

#endif
