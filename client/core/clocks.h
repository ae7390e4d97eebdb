/* clocks.h - the workers that a client is, each of a job: what its servers know it by, and the
 * heartbeats that a thread sends for it (heartbeats.c), so that neither a long computation nor a
 * call that waits looks like a death.
 *
 * A worker joins every shard with its first tick or its first push to a round; then its clock goes
 * to shard 0 alone, and heartbeats to all. Owner: the caller's thread, unless said otherwise. */
#ifndef EMBD_CORE_CLOCKS_H
#define EMBD_CORE_CLOCKS_H

#include "client/core/client.h"
#include "embd/sync.h"

/* The worker that the job waits for, by a shard's answer. */
struct awaited {
    bool is_known, has_joined;
    uint32_t worker;
    uint64_t clock;
    uint64_t seen_ns; /* of its last sign of life, by uv_hrtime() */
};

/* Signs of life to one shard. */
struct heartbeat {
    struct exchange x;
    struct heartbeats *heartbeats; /* NULL: none is sent */
    uint32_t shard;
    bool is_under_way;      /* the thread's, as the exchange */
    _Atomic uint64_t epoch; /* of the job there; 0: unknown */
    _Atomic bool is_other;  /* another shard has the number: it is connected to anew */
    struct awaited awaited; /* guarded by the mutex of heartbeats */
};

struct member {
    struct member *next, *next_beating; /* the latter is guarded */
    char job[EMBD_NAME_MAX + 1];
    uint32_t worker, n_workers;
    _Atomic uint32_t lease_ms;
    _Atomic bool asynchronous;
    _Atomic uint64_t value;        /* the last clock it sent */
    bool has_joined;               /* every shard */
    bool is_late;                  /* a shard has refused it: it must join again */
    _Atomic bool is_gone;          /* the thread frees it */
    uint64_t next_ns;              /* the thread's: of its next heartbeats */
    _Atomic uint32_t n;            /* of these, also of shards that have left: */
    struct heartbeat heartbeats[]; /* [LIMIT_SHARDS], n are used */
};

/* The fields of a tick, and of its answer. */
struct tick {
    const embd_clock *clock;
    uint64_t incarnation, epoch, value;
    bool leave, is_beat;
};

struct tick_answer {
    embd_clock_report report;
    uint64_t epoch, clock;
    struct awaited awaited;
};

void embd__tick_write(struct msg *m, const struct tick *tick);
int embd__tick_read(struct reader *r, struct tick_answer *out);

/* ---- members.c ---- */

/* It has heartbeats for so many shards, or more. */
void embd__member_take(struct member *member, uint32_t n);
/* The client has shards more, from now on `n`: its workers join there with their next tick or push.
 */
void embd__members_grow(embd_client *client, uint32_t n);
void embd__member_free(const embd_client *client, struct member *member);
/* Ends heartbeats, and frees all members. */
void embd__members_fini(embd_client *client);

/* A push to a round: the worker joins where it has not yet, and *round_out is what the push says of
 * it, but for the epoch, which is each shard's. EMBD_INVALID, and errors of embd_tick. */
int embd__clock_take_round(embd_client *client, const embd_clock *clock, uint64_t value,
                           struct push_round *round_out, const struct member **member_out);
/* A round's push has ended with the client's error: notes that the worker is late, or names the
 * worker that a push has waited for in vain. */
void embd__member_push_failed(embd_client *client, const struct push_round *round);

/* ---- heartbeats.c ---- */

struct heartbeats;

/* From now on heartbeats are sent for the member. EMBD_NO_MEMORY. */
int embd__heartbeats_add(embd_client *client, struct member *member);
/* No longer; its memory goes. */
void embd__heartbeats_remove(embd_client *client, struct member *member);
/* The worker that a member's job waits for by the last answers to heartbeats. */
bool embd__heartbeats_awaited(embd_client *client, struct member *member, struct awaited *out);
/* Ends the thread, if there is one. */
void embd__heartbeats_close(embd_client *client);

#endif
