/* asking.h - a request of request.c or requests.c on its way: between the two halves of asking
 * others may be begun. */
#ifndef EMBD_CLIENT_ASKING_H
#define EMBD_CLIENT_ASKING_H

#include "client/client.h"
#include "client/request.h"

/* A job of one exchange and what comes of it. */
struct asking {
    struct job job; /* first */
    struct exchange *x;
    void *bins[LIMIT_BINS]; /* of the answer coming in, until an answer owns them */
    uint32_t n_bins;
    struct answer *answer;
};

/* NULL: the client's error is set. */
struct link *embd__request_link(embd_client *client, uint32_t shard, enum listener listener);

/* Sends the exchange's message. After EMBD_OK embd__asking_end is owed, and both stay until then.
 */
int embd__asking_begin(embd_client *client, struct exchange *x, struct link *link,
                       struct asking *asking);
/* Waits. The client's error is set where it has none. */
int embd__asking_end(embd_client *client, struct asking *asking, struct answer **answer_out);

#endif
