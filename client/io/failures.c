/* failures.c - how exchanges fail: with an error that names the server, when the connection was
 * lost, when a deadline passed, or when the server is gone.
 *
 * A server that ends closes its connections, and the kernel tells at once. A host that vanishes
 * says nothing: the kernel by itself waits a quarter of an hour. So:
 *
 *     connecting, hello        one attempt takes LINK_ATTEMPT_MS at most; then the name is looked
 *                              up again
 *     an answer is due,        keepalive probes (socket.c) end the connection after 6 s
 *     all bytes were taken
 *     an answer is due,        embd__link_check_peer() sees that the peer's kernel acknowledges
 *     bytes are not taken      nothing
 *     the host lives, but the  its answers are late: other servers are asked for the map, and a
 *     process hangs            call whose deadline passes takes the silent connection with it
 *
 * TCP_USER_TIMEOUT would be shorter, but also ends connections to a server that lives and takes
 * nothing for a while. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "client/io/link_internal.h"

static void fail(struct exchange *x, int status, const char *why)
{
    x->error.status = EMBD_OK;
    embd__error_set(&x->error, status, "%s: %s", x->link->config.address, why);
    embd__exchange_end(x);
}

/* Errors that programs of two versions may cause. */
static bool may_be_of_versions(int status)
{
    return status == EMBD_INVALID || status == EMBD_MALFORMED || status == EMBD_UNSUPPORTED ||
           status == EMBD_UNKNOWN_METHOD || status == EMBD_PROTOCOL;
}

/* The server's error, or one found while reading an answer: puts the server's name before it, and
 * versions that differ behind it. */
void embd__fail_answered(struct exchange *x)
{
    char text[LIMIT_ERROR_TEXT];
    const char *version = x->link->server_version;
    struct embd__error plain = x->error;
    bool differs = version[0] != '\0' && strcmp(version, EMBD_VERSION) != 0;
    if (!differs || !may_be_of_versions(plain.status)) {
        fail(x, plain.status, plain.text);
        return;
    }
    snprintf(text, sizeof text, "%.250s (that server is embd %s, this program is of version %s)",
             plain.text, version, EMBD_VERSION);
    fail(x, plain.status, text);
}

/* Which of several shards the server is to be: people know numbers and not addresses. */
static void write_shard(const struct link *link, char *out, size_t bytes)
{
    const struct link_config *c = &link->config;
    out[0] = '\0';
    if (c->shard != SHARD_ANY && c->n_shards != SHARD_ANY && c->n_shards > 1)
        snprintf(out, bytes, "shard %u of %u: ", c->shard, c->n_shards);
}

/* No answer comes any more. Whether a numbered push that was sent has been applied is unknown. */
static void give_up(struct exchange *x, int status, const char *why)
{
    x->is_out = x->was_begun || x->state == EXCHANGE_SENDING || x->state == EXCHANGE_SENT;
    if (status == EMBD_MOVED && x->is_out && !x->may_repeat)
        status = EMBD_CLOSED;
    bool is_unsure = x->has_effect && x->is_out && status != EMBD_MOVED;
    char text[LIMIT_ERROR_TEXT], shard[48];
    write_shard(x->link, shard, sizeof shard);
    snprintf(text, sizeof text, "%s%s%.290s", shard,
             is_unsure ? "the push was sent, and may or may not have been applied: " : "", why);
    fail(x, is_unsure ? EMBD_UNANSWERED : status, text);
}

static void fail_all(struct exchange *list, int status, const char *why)
{
    while (list != NULL) {
        struct exchange *x = list;
        list = x->next;
        give_up(x, status, why);
    }
}

/* ---- of those in the queue ---- */

/* Takes those out that `chosen` says, `now` being handed to it, and returns them as a list. */
static struct exchange *take(struct queue *queue,
                             bool (*chosen)(const struct exchange *x, uint64_t now), uint64_t now)
{
    struct exchange *taken = NULL, **taken_end = &taken, **at = &queue->head;
    while (*at != NULL) {
        struct exchange *x = *at;
        if (!chosen(x, now)) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        x->next = NULL;
        *taken_end = x;
        taken_end = &x->next;
    }
    queue->end = at;
    return taken;
}

static bool is_any(const struct exchange *x, uint64_t now)
{
    (void)x;
    (void)now;
    return true;
}

static bool is_fail_fast(const struct exchange *x, uint64_t now)
{
    (void)now;
    return x->fail_fast;
}

static bool was_begun(const struct exchange *x, uint64_t now)
{
    (void)now;
    return x->state == EXCHANGE_SENDING;
}

void embd__fail_begun(struct link *link, int status, const char *why)
{
    fail_all(take(&link->queue, was_begun, 0), status, why);
}

void embd__fail_unreached(struct link *link)
{
    char text[LIMIT_ERROR_TEXT];
    snprintf(text, sizeof text, "not reached: %.300s", link->last.text);
    fail_all(take(&link->queue, is_fail_fast, 0), EMBD_UNREACHABLE, text);
}

void embd__fail_queued(struct link *link, int status, const char *why)
{
    fail_all(take(&link->queue, is_any, 0), status, why);
}

void embd__fail_unshared(struct link *link)
{
    give_up(embd__queue_pop(&link->queue), EMBD_CLOSED,
            "the server was connected again and does not share memory any more; call again");
}

void embd__fail_not_again(struct link *link)
{
    give_up(embd__queue_pop(&link->queue), EMBD_CLOSED,
            "the connection was lost, and the server that is connected now, of an earlier version, "
            "does not take a push of a round again");
}

/* ---- of those in flight ---- */

void embd__fail_sent(struct link *link, int status, const char *why)
{
    struct inflight inflight = link->inflight;
    link->inflight.n = 0;
    link->receiving = NULL;
    for (uint32_t i = 0; i < inflight.n; i++)
        if (inflight.list[i].x != NULL && inflight.list[i].x != &link->hello &&
            inflight.list[i].x != &link->share)
            give_up(inflight.list[i].x, status, why);
}

static void repeat(struct link *link, struct exchange *x)
{
    x->was_begun = x->was_begun || !x->was_refused;
    x->was_refused = false;
    embd__count(&link->figures.repeats, 1);
    embd__queue_push_front(&link->queue, x);
}

/* A server that breaks the protocol would do so again: a pull fails then, and a push goes on,
 * because its result must be known. */
static bool is_kept(const struct exchange *x, int status)
{
    return x->was_refused || x->has_effect ||
           (x->may_repeat && status != EMBD_PROTOCOL && status != EMBD_DENIED);
}

/* Exchanges that may be sent again go before unsent ones, in the order in which they were sent. */
void embd__requeue_repeatable(struct link *link, int status)
{
    struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING && is_kept(head, status))
        repeat(link, embd__queue_pop(&link->queue));
    for (uint32_t i = link->inflight.n; i > 0; i--) {
        struct pending *pending = &link->inflight.list[i - 1];
        if (pending->x == NULL || !is_kept(pending->x, status))
            continue;
        repeat(link, pending->x);
        pending->x = NULL;
    }
}

bool embd__awaits_outcome(const struct link *link)
{
    for (uint32_t i = 0; i < link->inflight.n; i++)
        if (link->inflight.list[i].x != NULL && !is_kept(link->inflight.list[i].x, EMBD_CLOSED))
            return true;
    return false;
}

static void note_refused(const struct link *link, struct exchange *x)
{
    x->was_refused = x != &link->hello && x != &link->share;
}

void embd__note_all_refused(struct link *link)
{
    struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING)
        note_refused(link, head);
    for (uint32_t i = 0; i < link->inflight.n; i++)
        if (link->inflight.list[i].x != NULL)
            note_refused(link, link->inflight.list[i].x);
}

void embd__loosen(struct link *link)
{
    struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING)
        head->is_loose = head->is_shared;
    for (uint32_t i = 0; i < link->inflight.n; i++)
        if (link->inflight.list[i].x != NULL)
            link->inflight.list[i].x->is_loose = link->inflight.list[i].x->is_shared;
}

/* ---- whether the server is alive ---- */

#define QUIET_NS          UINT64_C(2000000000) /* an answer is late after so long without a byte */
#define UNACKNOWLEDGED_MS 6000u
#define PROBES_MOST       5u /* of a closed window, unanswered: about 6 s */

/* Since when this exchange waits and the server is silent; uv_hrtime(). */
static uint64_t silent_since(const struct link *link, const struct exchange *x)
{
    uint64_t begun_ns = x->deadline_ns - (uint64_t)x->deadline_ms * 1000000;
    return begun_ns > link->heard_ns ? begun_ns : link->heard_ns;
}

bool embd__link_is_late(const struct link *link, uint64_t now)
{
    const struct exchange *x = link->inflight.n > 0 ? link->inflight.list[0].x : NULL;
    return link->state == LINK_READY && x != NULL && x != &link->hello &&
           silent_since(link, x) + QUIET_NS <= now;
}

/* Whether bytes or probes have been unanswered for so long that the host must be gone. */
static bool is_gone(const struct link *link)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (link->config.is_path || link->is_local ||
        getsockopt(link->channel.fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return false;
    return info.tcpi_probes >= PROBES_MOST || (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 &&
                                               info.tcpi_last_ack_recv >= UNACKNOWLEDGED_MS);
}

void embd__link_check_peer(struct link *link)
{
    if (link->state == LINK_READY && (link->inflight.n > 0 || link->queue.head != NULL) &&
        is_gone(link))
        embd__connection_lose(link, EMBD_CLOSED, "the server's host does not answer any more");
}

/* ---- deadlines ---- */

static bool is_late(const struct exchange *x, uint64_t now)
{
    return x->msgid != HELLO_MSGID && x->deadline_ns <= now;
}

static int status_of_late(const struct link *link, const struct exchange *x)
{
    bool is_up = link->state == LINK_READY || link->state == LINK_HELLO;
    if (link->is_loading && x->state == EXCHANGE_QUEUED)
        return EMBD_LOADING;
    if (is_up || x->state != EXCHANGE_QUEUED)
        return EMBD_DEADLINE;
    if (link->last.status == EMBD_PROTOCOL || link->last.status == EMBD_DENIED)
        return link->last.status; /* it is there, and does not let us in */
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
    give_up(x, status, text);
}

static void expire_queue(struct link *link, uint64_t now)
{
    struct exchange *late = take(&link->queue, is_late, now);
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
    for (uint32_t i = 0; i < link->inflight.n; i++) {
        struct exchange *x = link->inflight.list[i].x;
        if (x == NULL || !is_late(x, now))
            continue;
        link->inflight.list[i].x = NULL;
        x->is_loose = x->is_shared;
        is_silent |= silent_since(link, x) + QUIET_NS <= now;
        if (link->receiving == x) {
            link->receiving = NULL;
            embd__receive_drop(&link->receiver);
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

void embd__deadline_arm(struct link *link, uint64_t when)
{
    link->deadline_armed_ns = when;
    if (when == UINT64_MAX)
        return;
    uint64_t now = uv_hrtime();
    uv_update_time(link->config.loop);
    uv_timer_start(&link->deadline, on_deadline, when <= now ? 0 : (when - now) / 1000000 + 1, 0);
}

/* A half-written message, or a hello without answer, cannot be waited out: the connection goes.
 */
static bool must_lose(const struct link *link, uint64_t now)
{
    const struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING && head != &link->hello)
        return is_late(head, now);
    if (link->state != LINK_CONNECTING && link->state != LINK_SECURING && link->state != LINK_HELLO)
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
    losing |= link->is_leaving && !embd__awaits_outcome(link);
    if (losing)
        embd__connection_lose(link, EMBD_CLOSED, "given up after a deadline had passed");
    else if (!link->is_blocked)
        embd__link_send_queued(link); /* what waited for an answer that came too late */
    for (const struct exchange *x = link->queue.head; x != NULL; x = x->next)
        when = earlier(when, link, x);
    for (uint32_t i = 0; i < link->inflight.n; i++)
        when = earlier(when, link, link->inflight.list[i].x);
    embd__deadline_arm(link, when);
}
