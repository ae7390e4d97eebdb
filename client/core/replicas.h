/* replicas.h - servers that answer pulls while they follow the cluster (options.readers). Pulls go
 * round over the cluster and them. Owner: the caller's thread; links are the loop's. */
#ifndef EMBD_CORE_REPLICAS_H
#define EMBD_CORE_REPLICAS_H

#include <stdint.h>

#include "embd/embd.h"

struct link;

#define REPLICAS_MAX        16u
#define REPLICA_REST_NS     UINT64_C(2000000000) /* it was not there */
#define REPLICA_REST_LAG_NS UINT64_C(100000000)  /* it was too far behind */
#define REPLICA_DEADLINE_MS 2000u                /* at most, before the cluster is asked */

struct replica {
    char *texts;         /* addresses of `links`, one behind the other */
    struct link **links; /* [n_shards] */
    uint64_t rests_until_ns;
};

struct replicas {
    struct replica *list; /* [n] */
    uint32_t n, next;     /* next: whose turn it is; n: the cluster's */
    uint32_t n_shards;    /* of each; a cluster that has more shards since is asked itself */
};

/* Reads options.readers and opens links, which connect with their first pull. EMBD_INVALID,
 * EMBD_NO_MEMORY. */
int embd__replicas_open(embd_client *client);
/* While the loop stands still. */
void embd__replicas_close(embd_client *client);
void embd__replicas_fini(embd_client *client);

/* Who answers the next pull, where there are replicas: a number from 1; 0: the cluster. */
uint32_t embd__replicas_choose(embd_client *client);
struct link *embd__replica_link(const embd_client *client, uint32_t number, uint32_t shard);
/* It has failed, and is left alone for so long. */
void embd__replica_rest(embd_client *client, uint32_t number, uint64_t rest_ns);

#endif
