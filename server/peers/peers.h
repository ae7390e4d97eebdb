/* peers.h - requests of this server to the admin listeners of the cluster's shards, its own among
 * them.
 *
 * A server asks as an admin would: over the Unix sockets of this host, or over TCP with the token
 * and the authorities of the admin on whose behalf it asks. It keeps neither longer than that.
 * Owner: the thread that opened it, but for peers_stop. */
#ifndef EMBD_PEERS_H
#define EMBD_PEERS_H

#include "proto/message.h"

/* Credentials that an admin passes on, so that a server may ask other servers on its behalf. */
struct peers_proof {
    char *token; /* malloc'd; NULL: none */
    void *ca;    /* [ca_bytes] PEM, malloc'd: authorities to trust; NULL: none */
    uint64_t ca_bytes;
    bool believes_system; /* the authorities of this system instead */
};
/* Replaces the authorities by a copy. EMBD_NO_MEMORY: those before stay. */
int peers_proof_set_ca(struct peers_proof *proof, const void *ca, uint64_t ca_bytes,
                       bool believes_system, struct embd__error *e);
/* Overwrites the token. Zero is allowed. */
void peers_proof_fini(struct peers_proof *proof);

/* Lifetimes: to the end of the peers. */
struct peers_config {
    const struct dialer *dialer;         /* to the shards of this process; NULL: by their sockets */
    uint32_t n_shards, first_own, n_own; /* of the cluster; those of this process */
    const char *const *addresses;        /* [n_shards] of data listeners, to name shards by */
    const char *const *admin_addresses;  /* [n_shards] paths, "": none */
    const char *const *admin_hosts;      /* [n_shards] "host:port", "": none; NULL: none at all */
    const struct peers_proof *proof;     /* without authorities: no TLS */
    bool follows;   /* nobody waits for the answers: no advice to an operator of embctl */
    bool asks_data; /* data listeners, as a client does: the lists of admins' are not used */
    const char *cert, *key; /* of this server, for peers that ask for a certificate; NULL: none */
    /* The trainer's token that all is done for; NULL: for no trainer. Then this server shows its
     * own token, of this file, in place of the proof's; NULL: it has none. */
    const char *acts_for, *token_file;
};

struct peers;

/* Nothing is connected before the first request. EMBD_NO_MEMORY, EMBD_INVALID: the authorities that
 * were handed over cannot be read. */
int peers_open(const struct peers_config *config, struct peers **out, struct embd__error *e);
/* Ends its connections, and with them what shards keep for these. NULL is allowed. */
void peers_close(struct peers *peers);

/* Begins a request: write a map and bins, whose data stay until peers_run has returned. */
struct msg *peers_add(struct peers *peers, uint32_t shard, enum method method,
                      uint32_t deadline_ms);
/* Sends what was added, one request to a shard at most, and waits for all. `take` reads each answer
 * as it comes; it may be NULL. The error is the first by shard, and names the shard's address, the
 * cause and what to do. */
int peers_run(struct peers *peers, void (*take)(void *arg, uint32_t shard, struct reader *reader),
              void *arg, struct embd__error *e);

/* More requests to a shard at once, beside the one of peers_add, by lanes: each has one. A shard
 * gets them in the order added. */
#define PEERS_LANES 4u

/* NULL: no memory. The lane is free. */
struct msg *peers_add_to(struct peers *peers, uint32_t shard, uint32_t lane, enum method method,
                         uint32_t deadline_ms);
/* Whether its request has not ended. */
bool peers_is_busy(const struct peers *peers, uint32_t shard, uint32_t lane);
struct peers_taker {
    void (*take)(void *arg, uint32_t shard, uint32_t lane, struct reader *reader);
    void *arg;
};
/* Sends what was added to lanes, and waits until one of these requests has ended, or all of them,
 * where any is on its way. The error is the first by shard; after it the others are still on their
 * way. */
int peers_wait(struct peers *peers, const struct peers_taker *taker, bool for_all,
               struct embd__error *e);

/* Running requests end soon with EMBD_CLOSED, and so do later ones. Any thread. */
void peers_stop(struct peers *peers);

/* How the last request to a shard went; EMBD_OK also where there was none. */
const struct embd__error *peers_error(const struct peers *peers, uint32_t shard);

const char *peers_name(const struct peers *peers, uint32_t shard);

#endif
