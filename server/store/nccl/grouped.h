/* grouped.h - the keys of a request by owner, cut on the host: for calls that are rare, and that
 * every member makes for its own keys. */
#ifndef EMBD_NCCL_GROUPED_H
#define EMBD_NCCL_GROUPED_H

#include "server/store/nccl/group.h"

/* The keys of a request, grouped by owner; stable. */
struct grouped {
    uint64_t *keys;
    uint16_t *slots;  /* [n] slot of each key */
    uint32_t *places; /* [n] place of each key in the request */
    uint8_t *statuses;
    uint32_t begin[WIRE_MAX + 1];
};

/* False: no memory, and nothing to free. */
bool grouped_new(struct grouped *g, const struct group *group, const struct store_keys *in);
void grouped_free(struct grouped *g);

#endif
