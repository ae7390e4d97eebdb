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

/* EMBD_TOO_LARGE: the parts of a push have more keys. */
int embd__push_check_keys(struct embd__error *e, const struct part *parts, uint32_t n);

/* Offsets begin at 0, never fall and end at n_keys; weights are finite; scores are, or -inf. */
void embd__part_check(struct embd__error *e, uint32_t i, const struct part *p);

#endif
