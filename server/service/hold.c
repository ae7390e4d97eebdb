/* hold.c - holders, and the list of parked requests.
 *
 * Any number of admin connections may hold at once; changes wait until the last of them has
 * released, closed or timed out. All parked requests are in one list and leave it from its head, so
 * that the one that has waited longest goes first and the requests of a connection keep their
 * order. */
#include "server/service/hold.h"

#include "proto/assert.h"

#include <stddef.h>
#include <stdlib.h>

#include "server/log/log.h"
#include "server/service/request_list.h"

#define TURN_NS 500000000u

/* ---- what is let in ---- */

static int by_client(const void *a, const void *b)
{
    uint64_t x = ((const struct push_progress_mark *)a)->client,
             y = ((const struct push_progress_mark *)b)->client;
    return x < y ? -1 : x > y;
}

void hold_let_in(struct hold *hold, const struct shard_session *session,
                 struct push_progress_mark *marks, uint32_t n)
{
    free(hold->let_in);
    if (n > 0)
        qsort(marks, n, sizeof *marks, by_client);
    hold->let_in = marks;
    hold->n_let_in = n;
    hold->lets_in = session;
}

/* A client's requests before the push go first. */
bool hold_lets_in(const struct hold *hold, const struct request *request)
{
    struct push_progress_mark key = {.client = request->session->client};
    if (hold->is_locked || hold->n_let_in == 0 || key.client == 0 ||
        hold->holders != hold->lets_in || hold->holders->next_holder != NULL)
        return false;
    const struct push_progress_mark *mark =
        bsearch(&key, hold->let_in, hold->n_let_in, sizeof key, by_client);
    return mark != NULL && push_progress_includes(mark->pushed, request);
}

/* ---- holders ---- */

void hold_begin(struct hold *hold, struct shard_session *session, uint64_t now_ns,
                uint64_t timeout_ns)
{
    if (hold->holders == NULL)
        hold->looked_ns = now_ns;
    if (!session->holds) {
        session->next_holder = hold->holders;
        hold->holders = session;
        session->hold_ran_ns = 0;
        session->hold_is_told = false;
    }
    session->holds = true;
    session->hold_until_ns = now_ns + timeout_ns;
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
    if (hold->lets_in == session)
        hold_let_in(hold, NULL, NULL, 0);
    if (!hold_is_on(hold))
        hold->waiting_since_ns = 0;
}

/* While the shard is busy with one request, it does not read what a holder sends: the holder is not
 * silent then. */
static uint64_t time_run(struct hold *hold, uint64_t now_ns)
{
    uint64_t ns = now_ns - hold->looked_ns;
    hold->looked_ns = now_ns;
    return ns < TURN_NS ? ns : TURN_NS;
}

static const char *why_over(const struct shard_session *session, uint64_t now_ns)
{
    if (session->hold_until_ns <= now_ns)
        return "its timeout has passed";
    return session->hold_ran_ns >= HOLD_LONGEST_NS ? "it has lasted 10 s, the limit" : NULL;
}

static void tell_long(struct shard_session *session, uint32_t shard)
{
    if (session->hold_is_told || session->hold_ran_ns < HOLD_LONG_NS)
        return;
    session->hold_is_told = true;
    log_event(LOG_WARN, "hold_kept", "shard=%u why=\"pushes have waited for a holder for 1 s\"",
              shard);
}

void hold_expire(struct hold *hold, uint64_t now_ns, uint32_t shard)
{
    struct shard_session *next;
    uint64_t run_ns = time_run(hold, now_ns);
    for (struct shard_session *session = hold->holders; session != NULL; session = next) {
        next = session->next_holder;
        session->hold_ran_ns += run_ns;
        const char *why = why_over(session, now_ns);
        if (why == NULL)
            tell_long(session, shard);
        if (why == NULL)
            continue;
        log_event(LOG_WARN, "hold_lost", "shard=%u why=\"%s\"", shard, why);
        hold_end(hold, session);
    }
}

void hold_park(struct hold *hold, struct request *request)
{
    request->state = REQUEST_PARKED;
    request->waits = WAITS_HOLD;
    request->session->n_parked++;
    request_list_add(&hold->first, &hold->last, request);
}

void hold_unpark(struct hold *hold, struct request *request)
{
    request_list_remove(&hold->first, &hold->last, request);
    request->state = REQUEST_RECEIVED;
    if (--request->session->n_parked == 0)
        request->session->is_behind_sweep = false;
}

bool hold_is_first(const struct hold *hold, const struct request *request)
{
    const struct request *at = hold->first;
    while (at->session != request->session)
        at = at->next;
    return at == request;
}
