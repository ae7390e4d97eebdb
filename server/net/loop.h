/* loop.h - one shard as a running thing: its thread, its libuv loop, its listeners.
 *
 * Reading order of this folder: loop (this), doors, listener and accept (where peers arrive),
 * connection (one peer: its states, sending and receiving), request_parser (its bytes become
 * requests), exchange (one request and its answer), outlet (answers become bytes). These are the
 * road of every request. Beside it: turn (how much of the thread a connection gets),
 * tls_connection (TLS), unauthenticated (peers that have not proved who they are), credentials
 * (certificate and tokens), quota (what peers are charged with), frame_memory (where bins lie),
 * trunks and trunk (peers that reach many shards by one connection), sweep (deadlines and the
 * end), shard_io.h (what the connections of a shard share). http/ is the operators' port.
 *
 * Life: loop_open binds, so that ports are known; loop_start opens the shard and starts the thread;
 * loop_drain asks it to end; it calls on_end when it has; loop_close frees. */
#ifndef EMBD_LOOP_H
#define EMBD_LOOP_H

#include "server/net/shard_io.h"
#include "server/net/listener.h"

/* Time for requests in flight to finish once a drain has begun. */
#define LOOP_DRAIN_MS 10000u

struct loop_config {
    struct doors_config doors;
    const struct credentials *credentials; /* shares are taken */
    struct net_limits limits;
    struct quota *quota;   /* the process's */
    struct trunks *trunks; /* of the process; NULL: none begin */
    int cpu;               /* to run on; -1: any */
    /* On the shard's thread: its journal is replayed, or cannot be; see shard_config.loaded. NULL:
     * replayed by loop_start. */
    void (*on_loaded)(void *arg, bool follows, const struct embd__error *e);
    void (*on_end)(void *arg); /* called last on the shard's thread */
    void *arg;
};

struct loop;

/* Binds all listeners. Main thread. EMBD_IO, EMBD_TOO_LARGE, EMBD_NO_MEMORY. The config is copied,
 * what it points to stays the caller's. */
int loop_open(const struct loop_config *config, struct loop **out, struct embd__error *e);

/* Known from loop_open on. */
uint16_t loop_port(const struct loop *loop);

/* Port of the admin listener on TCP; 0: none. */
uint16_t loop_admin_port(const struct loop *loop);

/* Opens the shard (its net_stats are set here) and starts the thread. What `shard` points to must
 * outlive the loop. */
int loop_start(struct loop *loop, const struct shard_config *shard, struct embd__error *e);

/* A question to the shard from another thread: `answer` is called on the shard's thread, between
 * two requests. */
struct loop_question {
    void (*answer)(struct loop_question *question, const struct shard *shard);
};
/* One question at a time: the next only after `answer`. From one thread, between loop_start and
 * loop_close. A loop that ends may never answer; then the question must outlive loop_close. */
void loop_ask(struct loop *loop, struct loop_question *question);

/* Any thread, any time between loop_start and loop_close, also repeatedly. */
void loop_drain(struct loop *loop);

/* From now on these certificates and tokens, made by credentials_new, count; connections whose
 * token is not among them end. They are taken. Any thread. */
void loop_set_credentials(struct loop *loop, struct credentials *credentials);

/* From now on the shard answers with this map, made by shard_map_new; it is taken. Any thread,
 * between loop_start and loop_close. */
void loop_set_map(struct loop *loop, struct shard_map *map);

/* The shard looks for what other threads have for it. Any thread, between loop_start and
 * loop_close. */
void loop_wake(struct loop *loop);

/* The shard serves the peer at the other end of this connected socket, which it takes, as its
 * owner. The door is that of a socket. Any thread, between loop_start and loop_close.
 * EMBD_NO_MEMORY: it stays the caller's. */
int loop_adopt(struct loop *loop, int fd, enum door door, struct embd__error *e);
struct adopted_peer;
/* The same for a stream of a trunk, whose peer has no rights but what its token gives. */
int loop_adopt_stream(struct loop *loop, int fd, const struct adopted_peer *peer,
                      struct embd__error *e);

/* Grows while the shard's loop turns. Any thread. */
uint64_t loop_beats(const struct loop *loop);

/* Waits for the thread and frees. A loop that was started must have been asked to drain. */
void loop_close(struct loop *loop);

#endif
