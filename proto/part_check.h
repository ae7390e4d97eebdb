/* part_check.h - what has to be true of a part's arrays, however it came. */
#ifndef EMBD_PROTO_PART_CHECK_H
#define EMBD_PROTO_PART_CHECK_H

#include <float.h>

#include "proto/batch.h"
#include "proto/errors.h"

/* A learning rate that is given. */
static inline bool embd__is_lr(float lr)
{
    return lr > 0.0f && lr <= FLT_MAX;
}

/* Keys of all parts of a push, which a shard steps without a pause. A message of LIMIT_FRAME_BYTES
 * has no room for as many. */
#define PUSH_KEYS_MOST (16u << 20)

/* EMBD_TOO_LARGE: the parts of a push have `n_keys`. */
int embd__push_refuse_keys(struct embd__error *e, uint64_t n_keys);

static inline int embd__push_check_keys(struct embd__error *e, const struct part *parts, uint32_t n)
{
    uint64_t n_keys = 0;
    for (uint32_t i = 0; i < n; i++)
        n_keys += parts[i].n_keys;
    return n_keys <= PUSH_KEYS_MOST ? EMBD_OK : embd__push_refuse_keys(e, n_keys);
}

/* Offsets begin at 0, never fall and end at n_keys; weights are finite; scores are, or -inf. */
void embd__part_check_arrays(struct embd__error *e, uint32_t i, const struct part *p);

static inline void embd__part_check(struct embd__error *e, uint32_t i, const struct part *p)
{
    if (p->offsets != NULL || p->weights != NULL || p->scores != NULL)
        embd__part_check_arrays(e, i, p);
}

#endif
