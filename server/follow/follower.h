/* follower.h - the thread of a shard that follows another server's: it asks for the next records
 * there, one question after the other, and hands the answers over.
 *
 * It finds the server by the map that the server at `address` has, and looks again when a question
 * has failed. The shard's thread never waits for it. */
#ifndef EMBD_FOLLOW_FOLLOWER_H
#define EMBD_FOLLOW_FOLLOWER_H

#include <stdatomic.h>

#include "proto/follow.h"

struct failover;
struct follow_maps;

/* Lifetimes: to follower_close. */
struct follower_config {
    uint32_t shard, n_shards; /* of the process: it may have room for more than the cluster has, */
    struct follow_maps *maps; /* and makes room for more, as this says; NULL: it does not */
    void (*make_room)(void *arg, uint32_t n_shards);
    void *make_room_arg;
    const char *address;       /* of the admin listener of shard 0: "host:port", or a path */
    struct failover *failover; /* says the address, each time anew; NULL: it is that one */
    /* So does this, where it is not NULL, and may block meanwhile. */
    int (*find)(void *arg, char *admin_out, size_t bytes, struct embd__error *e);
    void *find_arg;
    const char *token_file; /* shown there; NULL: none */
    const void *ca;         /* [ca_bytes] PEM: authorities to trust; NULL: none, and no TLS */
    uint64_t ca_bytes;
    bool believes_system;
    const char *cert, *key; /* of this server; NULL: none */
    /* Nothing is asked before so many shards here are loaded: all of them; NULL: it is at once. */
    const atomic_uint *n_loaded;
    /* Its map is used where the server at `address` does not tell one: others of that cluster may
     * live on. Only for follower_open; NULL: none */
    struct follower *before;
    void (*wake)(void *arg); /* there is an answer; from the thread */
    void *wake_arg;
};

struct follower;

struct follower_answer {
    struct follow_answer found;
    uint64_t sent_ns; /* the question was sent then, or later; by CLOCK_MONOTONIC */
    uint8_t *bytes;   /* [found.n_bytes], malloc'd: the taker's */
    uint64_t sum;     /* XXH3 of them */
    uint64_t skips[FOLLOW_SKIPS];
    uint64_t map_version;     /* of the map of keys there, as it was when this one connected */
    uint32_t n_shards;        /* likewise, of the cluster; 0: not known */
    bool is_spare;            /* with an error: the cluster has no such shard, and gets none yet */
    char address[128];        /* of the shard that answered, for trainers; "": not known */
    struct embd__error error; /* instead: the question is to be asked again */
    bool is_lost;             /* with an error: the connection has ended */
};

/* Another question than `follow` to that shard, of a replica that takes no records. Its memory is
 * the thread's until its answer was taken. */
struct follower_question {
    enum method method;
    uint32_t pause_ms; /* before it is asked */
    void (*write)(struct follower_question *question, struct msg *m);
    /* The answer, while its bins are there; an error goes into the reader's. */
    void (*take)(struct follower_question *question, struct reader *r);
};

/* EMBD_NO_MEMORY. */
int follower_open(const struct follower_config *config, struct follower **out,
                  struct embd__error *e);
/* Ends a question that is being asked. NULL is allowed. */
void follower_close(struct follower *follower);

/* Only when there is none, or its answer was taken. */
void follower_ask(struct follower *follower, const struct follow_ask *ask);
/* The same. The answer has sent_ns, address and error alone: its `is_lost` is false where the shard
 * answered with that error, on a connection that stays. */
void follower_ask_else(struct follower *follower, struct follower_question *question);
/* Ends a question that is being asked, with an error; the next one looks for the server anew. */
void follower_leave(struct follower *follower);
/* False: there is no answer yet. */
bool follower_take(struct follower *follower, struct follower_answer *out);

#endif
