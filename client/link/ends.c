/* ends.c - how exchanges end: answered, or with an error that names the server. */
#include <stdio.h>

#include "client/link/link_state.h"

static void end(struct exchange *x)
{
    x->state = EXCHANGE_IDLE;
    x->next = NULL;
    x->on_end(x);
}

static void fail(struct exchange *x, int status, const char *why)
{
    x->error.status = EMBD_OK;
    embd__error_set(&x->error, status, "%s: %s", x->link->config.address, why);
    end(x);
}

/* The server's error, or one found while reading an answer: puts the server's name before it. */
void embd__ends_answered(struct exchange *x)
{
    struct embd__error plain = x->error;
    if (plain.status == EMBD_OK)
        end(x);
    else
        fail(x, plain.status, plain.text);
}

/* No answer comes any more: of what was sent and counts but once nobody can say what became of it.
 */
void embd__ends_give_up(struct exchange *x, int status, const char *why)
{
    x->is_out = x->was_begun || x->state == EXCHANGE_SENDING || x->state == EXCHANGE_SENT;
    char text[LIMIT_ERROR_TEXT];
    if (!x->has_effect || !x->is_out) {
        fail(x, status, why);
        return;
    }
    snprintf(text, sizeof text, "the push was sent, and may or may not have been applied: %.300s",
             why);
    fail(x, EMBD_UNANSWERED, text);
}

static void fail_all(struct exchange *list, int status, const char *why)
{
    while (list != NULL) {
        struct exchange *x = list;
        list = x->next;
        embd__ends_give_up(x, status, why);
    }
}

/* ---- of those in the queue ---- */

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

void embd__ends_begun(struct link *link, int status, const char *why)
{
    fail_all(embd__queue_take(&link->queue, was_begun, 0), status, why);
}

void embd__ends_hasty(struct link *link, int status, const char *why)
{
    fail_all(embd__queue_take(&link->queue, is_fail_fast, 0), status, why);
}

void embd__ends_waiting(struct link *link, int status, const char *why)
{
    fail_all(embd__queue_take(&link->queue, is_any, 0), status, why);
}

/* ---- of those in flight ---- */

void embd__ends_sent(struct link *link, int status, const char *why)
{
    struct flights flights = link->flights;
    link->flights.n = 0;
    link->receiving = NULL;
    for (uint32_t i = 0; i < flights.n; i++)
        if (flights.list[i].x != NULL && flights.list[i].x != &link->hello)
            embd__ends_give_up(flights.list[i].x, status, why);
}

static void repeat(struct link *link, struct exchange *x)
{
    x->was_begun = true;
    embd__queue_push_front(&link->queue, x);
}

/* A server that breaks the protocol would do so again: a pull fails then, and a push goes on, whose
 * end has to be known. */
static bool is_kept(const struct exchange *x, int status)
{
    return x->has_effect || (x->may_repeat && status != EMBD_PROTOCOL && status != EMBD_DENIED);
}

/* What may be sent again goes before what was never sent, in the order it was sent in. */
void embd__ends_keep_repeatable(struct link *link, int status)
{
    struct exchange *head = link->queue.head;
    if (head != NULL && head->state == EXCHANGE_SENDING && is_kept(head, status))
        repeat(link, embd__queue_pop(&link->queue));
    for (uint32_t i = link->flights.n; i > 0; i--) {
        struct flight *flight = &link->flights.list[i - 1];
        if (flight->x == NULL || !is_kept(flight->x, status))
            continue;
        repeat(link, flight->x);
        flight->x = NULL;
    }
}
