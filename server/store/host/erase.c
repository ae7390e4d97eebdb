/* erase.c - keys are forgotten: a row goes back to the rows that can be taken, an entry out of the
 * index. Where there is no memory to merge the keys, they are looked up one by one, so that nothing
 * can fail: an erase of several tables, which a journal has already, is made in all of them. */
#include "server/store/host/host.h"

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

static uint32_t end_of(const struct store_keys *in, uint32_t row)
{
    return in->offsets != NULL ? in->offsets[row + 1] : row + 1;
}

static struct distinct look_up(const struct store *store, const struct store_keys *in, uint32_t row,
                               uint32_t k)
{
    uint32_t slot = in->slots != NULL ? in->slots[row] : 0;
    struct distinct d = {.hash = index_hash(in->keys[k], slot), .slot = slot & 0x3ff};
    d.ref = index_find(&store->index, d.hash, slot);
    return d;
}

/* All statuses are told before the first key goes, which may occur again. */
static void erase_singly(struct store *store, struct store_erase *erase)
{
    const struct store_keys *in = &erase->in;
    doomed_remove_all(store);
    for (uint32_t row = 0, k = 0; row < in->n_rows && erase->statuses != NULL; row++)
        for (; k < end_of(in, row); k++)
            erase->statuses[k] =
                index_has_row(look_up(store, in, row, k).ref) ? EMBD_KEY_EVICTED : EMBD_KEY_MISSING;
    for (uint32_t row = 0, k = 0; row < in->n_rows; row++)
        for (; k < end_of(in, row); k++) {
            const struct distinct d = look_up(store, in, row, k);
            erase->n_erased += erase_key(store, &d) == EMBD_KEY_EVICTED;
        }
}

int host_erase(struct store *store, struct store_erase *erase, struct embd__error *e)
{
    const struct merge *merge = &store->merge;
    (void)e;
    erase->n_erased = 0;
    if (!merge_keys(&store->merge, &erase->in, &store->index)) {
        erase_singly(store, erase);
        return EMBD_OK;
    }
    doomed_remove_merged(store);
    for (uint32_t i = 0; i < merge->n; i++) {
        const struct distinct *d = &merge->distinct[i];
        embd_key_status became = erase_key(store, d);
        erase->n_erased += became == EMBD_KEY_EVICTED;
        if (erase->statuses)
            host_set_statuses(merge, d, erase->statuses, became);
    }
    merge_end(&store->merge);
    return EMBD_OK;
}
