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

/* A removed entry's place is filled from behind, so it is checked until it holds none of them. */
static void sweep_bucket(struct store *store, const struct index_bucket *bucket)
{
    for (unsigned i = 0; i < INDEX_BUCKET; i++)
        while (host_is_stale(store, bucket->ref[i])) {
            uint64_t hash = bucket->hash[i];
            uint32_t slot = bucket->slot[i];
            if (store->cow.is_on)
                cow_keep(store, hash, slot, bucket->ref[i]);
            index_remove(&store->index, hash, slot);
        }
}

static void sweep_segment(struct store *store)
{
    uint64_t n, next;
    const struct index_bucket *buckets = index_segment(&store->index, store->sweep_hash, &n, &next);
    for (uint64_t i = 0; i < n; i++)
        sweep_bucket(store, &buckets[i]);
    store->sweep_hash = next;
    store->is_swept = next != 0;
}

void candidates_sweep(struct store *store)
{
    uint64_t most = candidates_most(host_rows(store)), n = store->n_candidates;
    while (store->is_swept && (n >= most || store->sweep_hash < UINT64_MAX / most * n))
        sweep_segment(store);
}

/* What the request's keys were found as before that: its generation is the next one's too. */
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
    store->sweep_hash = 0;
}
