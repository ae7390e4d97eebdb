/* members.h - the workers that a client is, each of a job: what its servers know it by, and the
 * signs of life that a thread gives for it (beats.c), so that neither a long computation nor a call
 * that waits looks like death.
 *
 * A worker joins every shard with its first tick or its first push to a round; then its clock goes
 * to shard 0 alone, and beats to all. Owner: the caller's thread, but for what is said otherwise.
 */
#ifndef EMBD_CLIENT_MEMBERS_H
#define EMBD_CLIENT_MEMBERS_H

#include "client/client.h"

/* Whom a shard says the job waits for. */
struct awaited {
    bool is_known, has_joined;
    uint32_t worker;
    uint64_t clock;
    uint64_t seen_ns; /* of its last sign of life, by uv_hrtime() */
};

/* Signs of life to one shard. */
struct beat {
    struct exchange x;
    struct beats *beats; /* NULL: none is sent */
    uint32_t shard;
    bool is_under_way;      /* the thread's, as the exchange */
    _Atomic uint64_t epoch; /* of the job there; 0: not told yet */
    struct awaited awaited; /* guarded by the mutex of beats */
};

struct member {
    struct member *next, *next_beating; /* the latter is guarded */
    char job[EMBD_NAME_MAX + 1];
    uint32_t worker, n_workers;
    _Atomic uint32_t lease_ms;
    _Atomic bool asynchronous;
    _Atomic uint64_t value; /* the clock it told last */
    bool has_joined;        /* every shard */
    bool is_late;           /* a shard has refused it: it has to join anew */
    _Atomic bool is_gone;   /* the thread frees it */
    uint64_t next_ns;       /* the thread's: of its next beats */
    struct beat beats[];    /* [shards] */
};

/* What a tick says, and what it is answered. */
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

/* The worker that a clock is of. EMBD_INVALID: its job's name is missing, empty or too long;
 * EMBD_NO_MEMORY. */
int embd__member_get(embd_client *client, const embd_clock *clock, struct member **out);
/* NULL: there is none. */
struct member *embd__member_find(embd_client *client, const char *job, uint32_t worker);
enum tick_kind { TICK_CLOCK, TICK_BEAT, TICK_LEAVE };

/* One tick to one shard, whose epoch of the job is known from then on. Errors of embd_tick. */
int embd__member_tell(embd_client *client, struct member *member, uint32_t shard,
                      const embd_clock *clock, uint64_t value, enum tick_kind kind,
                      struct tick_answer *out);
/* Every shard knows it, with that clock. Nothing where that is so. EMBD_LATE, and errors of
 * embd_tick. */
int embd__member_join(embd_client *client, struct member *member, const embd_clock *clock,
                      uint64_t value, struct tick_answer *out);
/* Every shard has taken it in: it beats from now on. EMBD_NO_MEMORY. */
int embd__member_joined(embd_client *client, struct member *member, const embd_clock *clock,
                        uint64_t value);
void embd__member_leave(embd_client *client, struct member *member);
void embd__member_free(const embd_client *client, struct member *member);
/* Ends beats, and frees all. */
void embd__members_fini(embd_client *client);

/* A round's push has ended with the client's error: it remembers that the worker is late, or says
 * whom a push has waited for in vain. */
void embd__member_push_failed(embd_client *client, const struct push_round *round);

/* " waits for worker 2, ..." */
#define AWAITED_TEXT 128u
void embd__awaited_text(const struct awaited *awaited, char out[AWAITED_TEXT]);

/* ---- beats.c ---- */

struct beats;

/* From now on beats are given for the member. EMBD_NO_MEMORY. */
int embd__beats_add(embd_client *client, struct member *member);
/* No longer; its memory goes. */
void embd__beats_remove(embd_client *client, struct member *member);
/* Whom the job of a member waits for by the last answers to beats. */
bool embd__beats_awaited(embd_client *client, struct member *member, struct awaited *out);
/* Ends the thread, if there is one. */
void embd__beats_close(embd_client *client);

#endif
