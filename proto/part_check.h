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

/* Offsets begin at 0, never fall and end at n_keys; weights are finite; scores are, or -inf. */
void embd__part_check(struct embd__error *e, uint32_t i, const struct part *p);

#endif
