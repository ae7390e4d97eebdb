/* erase.c - keys are forgotten: a row goes back to the rows that can be taken, an entry out of the
 * index. Only merging the keys can fail. */
#include "host.h"

static embd_key_status erase_key(struct store *store, const struct distinct *d)
{
    if (d->ref == 0)
        return EMBD_KEY_MISSING;
    if (store->frozen.is_on)
        frozen_keep(store, d->hash, d->slot, d->ref);
    if (store->changes.n > 0)
        changes_note_gone(store, d->hash, d->slot);
    index_remove(&store->index, d->hash, d->slot);
    if (d->ref & INDEX_CANDIDATE) {
        store->n_candidates--;
        return EMBD_KEY_MISSING;
    }
    if (store->shortlist.is_on)
        shortlist_note_gone(store, d->ref - 1);
    rows_give_back(&store->rows, d->ref - 1);
    return EMBD_KEY_EVICTED;
}

int host_erase(struct store *store, struct store_erase *erase, struct embd__error *e)
{
    const struct merge *merge = &store->merge;
    int status = EMBD_OK;
    erase->n_erased = 0;
    if (!merge_keys(&store->merge, &erase->in, &store->index))
        status = embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to merge %u keys",
                                 store->schema->s.name, erase->in.n_keys);
    else
        doomed_remove_merged(store);
    for (uint32_t i = 0; i < merge->n && status == EMBD_OK; i++) {
        const struct distinct *d = &merge->distinct[i];
        embd_key_status became = erase_key(store, d);
        erase->n_erased += became == EMBD_KEY_EVICTED;
        if (erase->statuses)
            host_set_statuses(merge, d, erase->statuses, became);
    }
    merge_end(&store->merge);
    return status;
}
