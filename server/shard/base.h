/* base.h - a journal that has grown long begins anew with what its tables hold. */
#ifndef EMBD_SHARD_BASE_H
#define EMBD_SHARD_BASE_H

#include "state.h"

/* Where it is worth it, and nothing is under way. After an error the journal is as it was. */
int base_make(struct shard *shard, struct embd__error *e);
/* Whether it is worth it or not; nothing may be under way. */
int base_make_now(struct shard *shard, struct embd__error *e);

#endif
