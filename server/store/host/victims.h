/* victims.h - rows that may be evicted, with their ranks (use.h), and the lowest of many. */
#ifndef EMBD_HOST_VICTIMS_H
#define EMBD_HOST_VICTIMS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/store/host/index.h"
#include "server/store/use.h"

struct store;

/* ---- ranks ---- */

/* A row, and what its rank is made of; the key is in the hash. */
struct victim {
    uint64_t hash, stamp, count;
    uint32_t row, slot;
};

/* The lowest of many rows, by the rank of use.h, while they are looked at one by one. Listed are
 * those that may be among them; when the list is twice as long as it needs to be, the higher half
 * is thrown away, and rows above the highest that is left cost a comparison from then on. */
struct victims {
    struct victim *list; /* [n] */
    uint64_t n, capacity;
    uint64_t most; /* that are wanted, at least 1 */
    bool is_cut;   /* list[most - 1] is the highest of those wanted, as far as they were seen */
};

/* The parts of a row's rank that lie in its record. */
struct row_use {
    uint64_t count, stamp;
};
struct row_use row_use_of(const struct store *store, uint32_t row);
float *row_use_at(const struct store *store, uint32_t row);
struct victim victim_of(const struct index_entry *entry, struct row_use use);

/* Queues at most n_rows rows. Out of memory: false. */
bool victims_open(struct victims *v, uint64_t most, uint64_t n_rows);
void victims_close(struct victims *v); /* also of zeros */

void victims_add(struct victims *v, const struct victim *new);
/* The lowest alone are left, the highest of them last; fewer where fewer were added. */
void victims_finish(struct victims *v);

/* Partitions list[n]: the lowest `most` come first, with the highest of them (or of all, if there
 * are fewer) last. Returns their number. */
uint64_t victims_select(struct victim *list, uint64_t n, uint64_t most);

static inline struct use_rank victim_rank(const struct victim *v)
{
    return (struct use_rank){v->count, v->stamp, embd__mix64(index_key(v->hash, v->slot)), v->slot};
}

/* False: a row with this count and stamp is not among them, whatever its key. */
static inline bool victims_may_take(const struct victims *v, uint64_t count, uint64_t stamp)
{
    if (!v->is_cut)
        return true;
    const struct victim *last = &v->list[v->most - 1];
    return count < last->count || (count == last->count && stamp <= last->stamp);
}

#endif
