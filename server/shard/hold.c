/* hold.c - holders, and the list of parked requests.
 *
 * Any number of admin connections may hold at once; changes wait until the last of them has
 * released, gone or timed out. Everything that is parked stands in one list and leaves it from its
 * head, so that whoever waits longest goes first and the requests of a connection keep their order.
 */
#include "hold.h"

#include <assert.h>
#include <stddef.h>

bool hold_stops(const struct hold *hold, enum touch touch)
{
    switch (touch) {
    case TOUCH_NOTHING:
    case TOUCH_READS:
        return false;
    case TOUCH_CHANGES:
        return hold_is_on(hold);
    case TOUCH_STRUCTURE:
        return hold_is_on(hold) || hold->n_in_flight > 0;
    case TOUCH_HOLD:
        return hold->n_in_flight > 0;
    }
    return false;
}

void hold_begin(struct hold *hold, struct shard_session *session, uint64_t until_ns)
{
    if (!session->holds) {
        session->next_holder = hold->holders;
        hold->holders = session;
    }
    session->holds = true;
    session->hold_until_ns = until_ns;
    session->scan_table = 0;
}

void hold_end(struct hold *hold, struct shard_session *session)
{
    if (!session->holds)
        return;
    struct shard_session **at = &hold->holders;
    while (*at != session)
        at = &(*at)->next_holder;
    *at = session->next_holder;
    session->holds = false;
    session->scan_table = 0;
    if (!hold_is_on(hold))
        hold->waiting_since_ns = 0;
}

void hold_expire(struct hold *hold, uint64_t now_ns)
{
    struct shard_session *next;
    for (struct shard_session *session = hold->holders; session != NULL; session = next) {
        next = session->next_holder;
        if (session->hold_until_ns <= now_ns)
            hold_end(hold, session);
    }
}

void hold_park(struct hold *hold, struct request *request)
{
    request->state = REQUEST_PARKED;
    request->waits = WAITS_HOLD;
    request->next = NULL;
    request->session->n_parked++;
    if (hold->first == NULL)
        hold->first = request;
    else
        hold->last->next = request;
    hold->last = request;
}

void hold_unpark(struct hold *hold, struct request *request)
{
    struct request *before = NULL, *at = hold->first;
    while (at != request) {
        assert(at != NULL);
        before = at;
        at = at->next;
    }
    if (before == NULL)
        hold->first = request->next;
    else
        before->next = request->next;
    if (hold->last == request)
        hold->last = before;
    request->next = NULL;
    request->state = REQUEST_RECEIVED;
    request->session->n_parked--;
}
