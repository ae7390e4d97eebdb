/* hold.h - admin connections hold changes back, so that a cut stays one cut while it is read; and
 * the requests that wait for the end of that. */
#ifndef EMBD_SERVICE_HOLD_H
#define EMBD_SERVICE_HOLD_H

#include "server/service/push_progress.h"

#define HOLD_DEFAULT_MS 60000u
#define HOLD_MAX_MS     3600000u /* may be asked for; no hold lasts longer than HOLD_LONGEST_NS */
#define HOLD_LONGEST_NS UINT64_C(10000000000)
#define HOLD_LONG_NS    UINT64_C(1000000000) /* a hold that lasts this long is logged */

/* Owner: the shard's thread. */
struct hold {
    struct shard_session *holders; /* whose hold has neither ended nor timed out */
    uint64_t
        waiting_since_ns; /* when the first change had to wait under these holds; 0: none did */
    struct request *first, *last; /* parked */
    uint64_t looked_ns;           /* when holders were last looked at */
    /* Pushes that a holder lets in, because other shards have them: see push_progress.h. By client,
     * ascending. */
    struct push_progress_mark *let_in; /* [n_let_in] */
    uint32_t n_let_in;
    const struct shard_session *lets_in; /* that holder */
    bool resuming;                       /* the parked are being tried: not again from inside */
    bool is_locked;   /* nothing changes tables, whoever holds: see staging_lock */
    bool stops_reads; /* nor reads them: another shard may have the keys already */
};

/* What a method does to tables decides what it waits for. */
enum touch {
    TOUCH_NOTHING,
    TOUCH_READS,
    TOUCH_CHANGES,   /* waits for holds */
    TOUCH_STRUCTURE, /* waits for holds, and for operations that have not ended */
    TOUCH_HOLD,      /* waits for operations that have not ended */
};

static inline bool hold_is_on(const struct hold *hold)
{
    return hold->holders != NULL || hold->is_locked;
}

/* Whether a request with this effect on tables must wait, apart from earlier requests; `is_let_in`:
 * by hold_lets_in; n_in_flight: operations that have not ended. */
static inline bool hold_stops(const struct hold *hold, enum touch touch, bool is_let_in,
                              uint32_t n_in_flight)
{
    bool holds = hold_is_on(hold) && !is_let_in;
    switch (touch) {
    case TOUCH_NOTHING:
        return false;
    case TOUCH_READS:
        return hold->stops_reads;
    case TOUCH_CHANGES:
        return holds;
    case TOUCH_STRUCTURE:
        return holds || n_in_flight > 0;
    case TOUCH_HOLD:
        return n_in_flight > 0;
    }
    return false;
}

/* Whether the request is to go on under the hold. Never while another holds too, whose cut may be
 * made. */
bool hold_lets_in(const struct hold *hold, const struct request *request);
/* The holder's list, malloc'd and ours from now on, sorted here. */
void hold_let_in(struct hold *hold, const struct shard_session *session,
                 struct push_progress_mark *marks, uint32_t n);

void hold_begin(struct hold *hold, struct shard_session *session, uint64_t now_ns,
                uint64_t timeout_ns);
void hold_end(struct hold *hold, struct shard_session *session);
/* Ends holds whose timeout has passed, and those of holders that hang, and logs them. `shard`: its
 * index, for the log. */
void hold_expire(struct hold *hold, uint64_t now_ns, uint32_t shard);

/* Keeps a request for later, behind those parked before. */
void hold_park(struct hold *hold, struct request *request);
/* Takes a parked request off the list. */
void hold_unpark(struct hold *hold, struct request *request);
/* Whether no other request of its connection is parked before it. */
bool hold_is_first(const struct hold *hold, const struct request *request);

#endif
