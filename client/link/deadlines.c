/* deadlines.c - an exchange whose deadline passes ends, sent or not. The answer to one that was
 * sent is dropped when it comes. One timer is armed for the earliest deadline. */
#include <stdio.h>

#include "client/link/link_state.h"

static bool is_late(const struct exchange *x, uint64_t now)
{
    return x->msgid != HELLO_MSGID && x->deadline_ns <= now;
}

static int status_of_late(const struct link *link, const struct exchange *x)
{
    bool is_up = link->state == LINK_READY || link->state == LINK_GREETING;
    if (link->is_loading && x->state == EXCHANGE_QUEUED)
        return EMBD_LOADING;
    if (is_up || x->state != EXCHANGE_QUEUED)
        return EMBD_DEADLINE;
    /* sent again and again, and each time the server closed the connection */
    return x->was_begun && link->last.status == EMBD_CLOSED ? EMBD_CLOSED : EMBD_UNREACHABLE;
}

static void fail_late(struct link *link, struct exchange *x)
{
    char text[LIMIT_ERROR_TEXT];
    int status = status_of_late(link, x);
    if (status == EMBD_LOADING)
        snprintf(text, sizeof text, "not ready within the deadline of %u ms: %.300s",
                 x->deadline_ms, link->last.text);
    else if (status == EMBD_DEADLINE)
        snprintf(text, sizeof text, "no answer within the deadline of %u ms", x->deadline_ms);
    else
        snprintf(text, sizeof text, "not reached within the deadline of %u ms: %.300s",
                 x->deadline_ms,
                 link->last.status != EMBD_OK ? link->last.text : "still connecting");
    embd__ends_give_up(x, status, text);
}

static void expire_queue(struct link *link, uint64_t now)
{
    struct exchange *late = embd__queue_take(&link->queue, is_late, now);
    while (late != NULL) {
        struct exchange *x = late;
        late = x->next;
        fail_late(link, x);
    }
}

/* True: the server has been silent since the request was sent, and for long. */
static bool expire_flights(struct link *link, uint64_t now)
{
    bool is_silent = false;
    for (uint32_t i = 0; i < link->flights.n; i++) {
        struct exchange *x = link->flights.list[i].x;
        if (x == NULL || !is_late(x, now))
            continue;
        link->flights.list[i].x = NULL;
        is_silent |= embd__liveness_silent_since(link, x) + LIVENESS_QUIET_NS <= now;
        if (link->receiving == x) {
            link->receiving = NULL;
            link->receiver.to = NULL;
        }
        fail_late(link, x);
    }
    return is_silent;
}

static uint64_t earlier(uint64_t when, const struct link *link, const struct exchange *x)
{
    return x != NULL && x != &link->hello && x->deadline_ns < when ? x->deadline_ns : when;
}

static void on_deadline(uv_timer_t *timer);

void embd__deadlines_arm(struct link *link, uint64_t when)
{
    link->deadline_armed_ns = when;
    if (when == UINT64_MAX)
        return;
    uint64_t now = uv_hrtime();
    uv_update_time(link->config.loop);
    uv_timer_start(&link->deadline, on_deadline, when <= now ? 0 : (when - now) / 1000000 + 1, 0);
}

/* A half-written message, or a greeting without answer, cannot be waited out: the connection goes.
 */
static bool must_lose(const struct link *link, uint64_t now)
{
    const struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING && head != &link->hello)
        return is_late(head, now);
    if (link->state != LINK_CONNECTING && link->state != LINK_SECURING &&
        link->state != LINK_GREETING)
        return false;
    for (; head != NULL; head = head->next)
        if (is_late(head, now))
            return true;
    return false;
}

static void on_deadline(uv_timer_t *timer)
{
    struct link *link = timer->data;
    uint64_t now = uv_hrtime(), when = UINT64_MAX;
    bool losing = must_lose(link, now);
    expire_queue(link, now);
    losing |= expire_flights(link, now);
    if (losing)
        embd__connect_lose(link, EMBD_CLOSED, "given up after a deadline had passed");
    for (const struct exchange *x = link->queue.head; x != NULL; x = x->next)
        when = earlier(when, link, x);
    for (uint32_t i = 0; i < link->flights.n; i++)
        when = earlier(when, link, link->flights.list[i].x);
    embd__deadlines_arm(link, when);
}
