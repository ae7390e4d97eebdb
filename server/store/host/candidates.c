/* candidates.c - all candidates of a table are forgotten at once (server/store/candidates.h), which
 * takes no time: new ones carry another generation, and entries of the last one count as none.
 * These are removed segment by segment while new ones come. They are all gone when the new ones are
 * forgotten, so two generations are enough. */
#include "server/store/candidates.h"

#include "server/store/host/table.h"

void candidates_decide(struct store *store)
{
    store->forgets =
        store->merge.n > 0 && candidates_are_forgotten(store->schema->s.admit_after,
                                                       host_rows(store), store->n_candidates);
}

/* Returns whether there were some. */
static bool sweep_bucket(struct store *store, const struct segment *segment,
                         const struct index_bucket *bucket)
{
    bool has_some = false;
    for (unsigned i = 0; i < INDEX_BUCKET; i++)
        while (host_is_stale(store, bucket->ref[i])) {
            struct index_entry entry = index_entry_of(&store->index, segment, bucket, i);
            if (store->cow.is_on)
                cow_keep(store, entry.hash, entry.slot, entry.ref);
            index_remove(&store->index, entry.hash, entry.slot);
            has_some = true;
        }
    return has_some;
}

/* A removed entry's place is filled from behind, in a segment of few buckets also from behind the
 * end: so it is gone through until it has none of them. */
static void sweep_segment(struct store *store)
{
    uint64_t next;
    const struct segment *segment = index_segment(&store->index, store->sweep_at, &next);
    for (bool again = true; again;) {
        again = false;
        for (uint64_t i = 0; i <= segment->bucket_mask; i++)
            again |= sweep_bucket(store, segment, &segment->buckets[i]);
    }
    store->sweep_at = next;
    store->is_swept = next != 0;
}

void candidates_sweep(struct store *store)
{
    uint64_t most = candidates_most(host_rows(store)), n = store->n_candidates;
    while (store->is_swept && (n >= most || store->sweep_at < UINT64_MAX / most * n))
        sweep_segment(store);
}

/* Forgets how the request's keys were found before: the next request has the same generation. */
static void drop_stale(struct merge *merge, const struct store *store)
{
    for (uint32_t i = 0; i < merge->n; i++)
        if (host_is_stale(store, merge->distinct[i].ref))
            merge->distinct[i].ref = 0;
}

void candidates_forget(struct store *store)
{
    while (store->is_swept)
        sweep_segment(store);
    drop_stale(&store->merge, store);
    store->generation ^= INDEX_GENERATION;
    store->n_forgotten += store->n_candidates;
    store->n_candidates = 0;
    store->forgets = false;
    store->is_swept = true;
    store->sweep_at = 0;
}
