/* evict.h - on_full = evict_...: removes rows to make room for others, by the rules of use.h.
 *
 * The ranks at the moment of a pass of evict.c decide which rows it takes. To find them at that
 * moment would stop the shard for as long as it takes to look at all rows. But a rank changes only
 * when its row is pushed, and falls only where a push gives a lower score. So every row that is up
 * to some rank when room runs out was so before, is new, or has fallen: a queue of the rows up to
 * that rank, filled while room runs out and extended by new rows and those that fall, has them all.
 * A bit of each row says whether it is in the queue. A push that raises the row above
 * the rank clears the bit, and one that leaves it low adds it again, so that of several entries of
 * a row the last is true. The pass goes through the queue, and looks at no row.
 *
 * Pushes that create rows fill the queue, each in proportion to the room it takes. The first
 * segments of the index, a fair sample because the index is ordered by hash, say up to which rank
 * the queue must go for several passes' rows.
 *
 * When half of the rows that it can spare have risen, it is filled further, up to a higher rank: by
 * the pushes that make them rise, each in proportion to the rows it takes out. Until that is done
 * the queue is good up to its earlier rank. So a push stops for the part of the table that its rows
 * are of those that can be spared; the queue becomes longer each time, and the part smaller. A pass
 * looks at all rows if single requests take out more than it can spare.
 *
 * A pass takes a sixteenth of all rows from their keys at once. To remove as many entries from the
 * index would stop the shard; so their removal is pending: their rows get a bit, which says that
 * the key has no row any more, and each request that creates rows removes some more of them than it
 * needs. Code that finds a row in the index checks the bit, as long as any row has one.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_HOST_EVICT_H
#define EMBD_HOST_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "server/store/host/index.h"
#include "server/store/host/rows.h"
#include "server/store/host/victims.h"

struct store;

/* ---- the queue ---- */

struct queue_bound {
    bool is_all; /* rows there are */
    struct use_rank rank;
};

struct eviction_queue {
    bool is_on;                     /* has started */
    bool is_ready;                  /* has all rows up to `bound` */
    bool is_filling;                /* has those of addresses below `read_to` up to `next` */
    struct queue_bound bound, next; /* next: no lower */
    uint64_t read_to;
    uint32_t halves;     /* it is filled for the rows of this many half passes; 0: of the fewest */
    struct victim *rows; /* [n]; of a row that is in the queue the last entry counts */
    uint64_t n, capacity;
    struct row_set has; /* the rows that are in the queue, while it is on */
    uint64_t n_queued;  /* of these */
    uint64_t n_sure;    /* of these up to `bound`, at least */
    uint64_t n_off;     /* taken out by pushes since the last go_on, or not to be added any more */
    uint64_t spared;    /* this many more may be, until the filling must be complete */
    uint64_t n_keys;    /* of the largest request */
};

/* A request of n_keys is done that made n_new rows: fills some more, where it will be needed.
 */
void eviction_queue_go_on(struct store *store, uint32_t n_new, uint32_t n_keys);
/* The queue is ready, up to its bound, for a pass that takes `most` rows; each row is in it once.
 * Out of memory: false, and there is no queue. */
bool eviction_queue_prepare(struct store *store, uint64_t most);
/* The same, up to a higher bound; false also if there is no higher one. */
bool eviction_queue_prepare_further(struct store *store);
/* The entry is new, and so is its row. */
void eviction_queue_note_new(struct store *store, const struct index_entry *entry);
/* Only while it is on. A row will be pushed; it was; it was taken from its key. */
void eviction_queue_before_use(struct store *store, const struct index_entry *entry);
void eviction_queue_note_use(struct store *store, const struct index_entry *entry);
void eviction_queue_note_gone(struct store *store, uint32_t row);
/* The first n of its rows are taken from their keys, and out of the queue. */
void eviction_queue_cut(struct store *store, uint64_t n);
/* A pass found too few rows in it: the next queue is longer. */
void eviction_queue_was_short(struct store *store);
/* Ranks have changed otherwise than by pushes, or few rows are left. */
void eviction_queue_drop(struct store *store);

/* Visits all keys that have rows, pending ones too, in the segment of the index that has `address`,
 * the rows' uses being on their way to the cache. Returns the first address of the segment behind,
 * 0 after the last. */
typedef void row_visit(struct store *store, const struct index_entry *entry, void *arg);
uint64_t eviction_queue_visit(struct store *store, uint64_t address, row_visit *visit, void *arg);
/* The same for some buckets of a segment, from one place on, which moves behind them; zeroed at
 * first. False: all were visited. Nothing changes the index between two calls. */
struct visit_place {
    uint64_t address, bucket;
};
bool eviction_queue_visit_some(struct store *store, struct visit_place *place, uint64_t n_buckets,
                               row_visit *visit, void *arg);

static inline uint64_t eviction_queue_bytes(const struct eviction_queue *queue)
{
    return queue->capacity * sizeof *queue->rows + row_set_bytes(&queue->has);
}

/* ---- pending removal ---- */

struct pending_removal {
    struct index_entry *rows; /* [n] */
    uint64_t n, capacity;
    uint64_t n_left;    /* rows that have the bit: the keys of the others are removed already */
    struct row_set set; /* the rows that have the bit */
};

/* Where no removal is pending: memory for n of n_rows rows. Out of memory: false. */
bool pending_reserve(struct pending_removal *pending, uint64_t n, uint64_t n_rows);

/* Removes the rows that keys of store->merge had, and the keys' references to them. */
void pending_remove_merged(struct store *store);
/* Removes n of them, or all. */
void pending_remove(struct store *store, uint64_t n);
void pending_remove_all(struct store *store);

void pending_fini(struct pending_removal *pending);
static inline uint64_t pending_bytes(const struct pending_removal *pending)
{
    return pending->capacity * sizeof *pending->rows + row_set_bytes(&pending->set);
}

static inline bool pending_has(const struct pending_removal *pending, uint32_t row)
{
    return pending->n_left > 0 && row_set_has(&pending->set, row);
}

/* ---- passes ---- */

/* Finds rows to be taken from keys that are not in store->merge, as many as are missing or more, or
 * all that may go. Changes nothing that shows. Out of memory: false. */
bool evict_choose(struct store *store, uint64_t missing, uint64_t *n_out);
/* The n rows just found are taken. */
void evict_rows(struct store *store, uint64_t n);

/* The rows of store->merge have been pushed, at store->step. `scores`: of the push, or NULL. */
void evict_note_use(struct store *store, const float *scores);

#endif
