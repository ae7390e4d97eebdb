/* doomed.h - rows that were evicted and are still there.
 *
 * A pass of evict.c takes a sixteenth of all rows from their keys at once. To take as many entries
 * out of the index would stop the shard; so their rows get a bit, which is to say that the key has
 * no row any more, and each request that makes rows takes some more of them out than it needs.
 * Whoever finds a row in the index asks for the bit, as long as any row has one. Owner: the shard's
 * thread. */
#ifndef EMBD_HOST_DOOMED_H
#define EMBD_HOST_DOOMED_H

#include "server/store/host/index.h"
#include "server/store/host/marks.h"

struct store;

struct doomed {
    struct index_entry *rows; /* [n] */
    uint64_t n, capacity;
    uint64_t n_left; /* rows that have the bit: those of the others are gone already */
    struct marks marks;
};

/* There are none: memory for n of n_rows rows. Out of memory: false. */
bool doomed_reserve(struct doomed *doomed, uint64_t n, uint64_t n_rows);
/* The first n of `rows`, which the caller has filled, lose their keys. */
void doomed_begin(struct store *store, uint64_t n);

/* Those that the keys of store->merge had: then its keys have none there either. */
void doomed_remove_merged(struct store *store);
/* Some of them, or all. */
void doomed_remove(struct store *store, uint64_t n);
void doomed_remove_all(struct store *store);

void doomed_fini(struct doomed *doomed);
uint64_t doomed_bytes(const struct doomed *doomed);

static inline bool doomed_has(const struct doomed *doomed, uint32_t row)
{
    return doomed->n_left > 0 && marks_has(&doomed->marks, row);
}

#endif
