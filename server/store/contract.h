/* contract.h - what callers of a store promise (store.h), asserted where each store is entered. */
#ifndef EMBD_STORE_CONTRACT_H
#define EMBD_STORE_CONTRACT_H

#include "proto/assert.h"
#include "server/store/store.h"

static inline void contract_keys(const struct store_keys *in)
{
    EMBD_ASSERT(in->n_keys == 0 || in->keys != NULL);
    EMBD_ASSERT(!in->on_device || (in->offsets == NULL && in->slots == NULL &&
                                   in->weights == NULL && in->scores == NULL));
    EMBD_ASSERT(in->own == NULL || (in->on_device && in->own->n_residues <= KEY_SET_PLACES));
    if (in->offsets == NULL)
        EMBD_ASSERT(in->n_rows == in->n_keys);
    else
        EMBD_ASSERT(in->offsets[0] == 0 && in->offsets[in->n_rows] == in->n_keys);
}

static inline void contract_pull(const struct store_pull *pull)
{
    contract_keys(&pull->in);
    EMBD_ASSERT(pull->first <= pull->in.n_rows && pull->count <= pull->in.n_rows - pull->first);
    EMBD_ASSERT(pull->count == 0 || pull->values != NULL);
}

static inline void contract_change(const struct store_change *change)
{
    contract_keys(&change->in);
    EMBD_ASSERT(change->kind == STORE_INSERT || change->in.n_rows == 0 || change->grads != NULL);
}

#endif
