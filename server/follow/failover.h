/* failover.h - what the shards of a process and the thread that asks etcd (server/member) tell each
 * other, where a cluster has `failover`.
 *
 * A primary has a lease in etcd, and another process may take its place as soon as that has lapsed.
 * So it acknowledges nothing from some time before (the fence), also where it stood still and does
 * not know of the lapse yet.
 *
 * Followers that have every acknowledged record are in sync. The primary's thread says which ones
 * the shards require: a change of a replicated table is acknowledged once each of these has it. It
 * publishes some of them in etcd, and only such a one may take over. What is published is always
 * required. A follower is published once every shard says that it is even: it has all that was
 * acknowledged before it was required.
 *
 * Any thread, but for opening and closing. */
#ifndef EMBD_FOLLOW_FAILOVER_H
#define EMBD_FOLLOW_FAILOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define FAILOVER_MOST        8u /* followers */
#define FAILOVER_PLACE_BYTES 256u

/* By the numbers of their starts. */
struct failover_set {
    uint32_t n;
    uint64_t ids[FAILOVER_MOST];
};

struct failover_shard;

struct failover {
    uint32_t first_shard, n_shards; /* of this process; set before its shards start */
    uint64_t start;                 /* of this process */
    atomic_uint_fast64_t until_ns;  /* by failover_now_ns: fenced from then on; 0: always */
    atomic_uint_fast64_t epoch;     /* in which this process serves, or is to */
    /* Epochs since which no process that took the name has lacked an acknowledged change: of any
     * journaled table, and of replicated ones. */
    atomic_uint_fast64_t kept, kept_replicated;
    atomic_uint_fast32_t version;    /* of what is required */
    atomic_uint_fast32_t n_places;   /* that were set, each another one than before */
    struct failover_shard *shards;   /* [n_shards] */
    struct failover_private *hidden; /* guarded */
};

/* `wake` has every shard look. NULL: no memory. */
struct failover *failover_new(uint32_t n_shards, uint64_t start, void (*wake)(void *arg),
                              void *arg);
void failover_free(struct failover *failover); /* NULL is allowed */

/* ---- the fence ---- */

/* Goes on while the machine sleeps. */
static inline uint64_t failover_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline bool failover_is_fenced(const struct failover *failover)
{
    return failover_now_ns() >= atomic_load_explicit(&failover->until_ns, memory_order_acquire);
}

void failover_extend(struct failover *failover, uint64_t until_ns);

/* ---- a process that follows ---- */

/* Of the primary. */
struct failover_place {
    char admin
        [FAILOVER_PLACE_BYTES]; /* listener of shard 0: "host:port", or a path; "": not known */
    char address[FAILOVER_PLACE_BYTES]; /* of shard 0, for trainers */
    bool is_listed;                     /* it is on the map, and can be followed */
    uint32_t n_shards; /* of its process; 0: of an earlier version, which has all of the cluster */
};
void failover_set_place(struct failover *failover, const struct failover_place *place);
void failover_place(struct failover *failover, struct failover_place *out);

/* A shard's: the records that it has applied, and whether it could be promoted. */
void failover_note(struct failover *failover, uint32_t shard, uint64_t position, bool is_ready);
/* The sum of all shards, and whether all are ready. */
uint64_t failover_position(const struct failover *failover, bool *is_ready_out);

/* ---- a primary ---- */

/* `call` is called where a report of the shards differs from the one before; NULL: nobody. */
void failover_on_news(struct failover *failover, void (*call)(void *arg), void *arg);

void failover_require(struct failover *failover, const struct failover_set *set);
/* Returns the version, which is another one after each failover_require. */
uint32_t failover_required(struct failover *failover, struct failover_set *out);

/* A shard's own: what it has heard last, and the records that there were then. */
struct failover_view {
    struct failover_set required;
    uint32_t version;
    uint64_t floor;
};
struct failover_view *failover_view_of(struct failover *failover, uint32_t shard);

/* A shard's: followers that take its records now, and those of them that are even, as of that
 * version. */
void failover_report(struct failover *failover, uint32_t shard, uint32_t version,
                     const struct failover_set *live, const struct failover_set *even);
/* The followers that every shard has; `even_out` by reports of the last version alone. */
void failover_look(struct failover *failover, struct failover_set *live_out,
                   struct failover_set *even_out);

/* ---- a primary that ends ---- */

/* A shard's own, once: it has answered all that had begun, takes nothing more, and these followers
 * have all of its records. */
void failover_finish(struct failover *failover, uint32_t shard, const struct failover_set *have);
/* Whether all shards have finished; then the followers that have all records of all of them. */
bool failover_is_finished(struct failover *failover, struct failover_set *have_out);

bool failover_has(const struct failover_set *set, uint64_t id);
/* False: it is full. One that is in the set stays. */
bool failover_add(struct failover_set *set, uint64_t id);
void failover_remove(struct failover_set *set, uint64_t id);

#endif
