/* cut.h - all shards as they are at one moment: changes to tables wait, and each push of a client
 * is on all of its shards or on none. */
#ifndef EMBD_FORMATS_CUT_H
#define EMBD_FORMATS_CUT_H

#include "client/core/request.h"

/* A hold of all shards. */
struct cut_hold {
    struct requests *requests; /* free for others between hold and release */
    uint64_t renewed_ns;
};

/* Makes changes to tables wait, on every shard. EMBD_BUSY: a push that one shard has did not come
 * to another; it names both. On failure nothing is held. */
int embd__cut_hold(embd_client *client, struct cut_hold *out);

/* Tells the shards that the holder still works, which have to hear from it every 10 s. To be called
 * often; asks every two seconds. */
int embd__cut_renew(embd_client *client, struct cut_hold *held);

/* Lets them go on; *pause_us_out is how long they had to wait, on the shard where it was longest. A
 * shard that cannot be reached has ended its hold by itself: not an error. The client's error stays
 * as it is. */
void embd__cut_release(embd_client *client, struct cut_hold *held, uint64_t *pause_us_out);

#endif
