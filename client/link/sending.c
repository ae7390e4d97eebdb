/* sending.c - what waits is written in the order it came, as far as the socket takes it and the
 * server has room for requests in flight. */
#include <errno.h>

#include "client/link/link_state.h"

#define PIECES_PER_SEND 64u

enum written { WRITTEN_ALL = 1, WRITTEN_FULL = 0, WRITTEN_HELD = 2 };

/* Of enum written (the socket is full; the rest is held), or a negative errno. */
static int write_exchange(struct link *link, struct exchange *x)
{
    struct iovec iov[PIECES_PER_SEND];
    x->state = EXCHANGE_SENDING;
    for (;;) {
        uint32_t n = embd__exchange_pieces(x, iov, PIECES_PER_SEND);
        if (n == 0 && x->held)
            return WRITTEN_HELD;
        ssize_t sent = embd__channel_send(&link->channel, iov, n);
        if (sent < 0)
            return sent == -EAGAIN ? WRITTEN_FULL : (int)sent;
        if (embd__exchange_sent(x, (uint64_t)sent))
            return WRITTEN_ALL;
    }
}

void embd__sending_block(struct link *link, bool is_blocked)
{
    if (link->is_blocked != is_blocked)
        embd__socket_want_write(link->socket, is_blocked);
    link->is_blocked = is_blocked;
}

static bool goes_while_loading(const struct exchange *x, uint64_t now)
{
    (void)now;
    return x->while_loading || x->msgid == HELLO_MSGID || x->state == EXCHANGE_SENDING;
}

void embd__sending_more(struct link *link)
{
    bool may_send = link->state == LINK_READY || link->state == LINK_GREETING;
    while (may_send && link->queue.head != NULL && link->flights.n < link->max_flights) {
        if (link->state == LINK_GREETING && link->queue.head != &link->hello)
            break;
        if (link->is_loading && !embd__queue_prefer(&link->queue, goes_while_loading, 0))
            break;
        int result = write_exchange(link, link->queue.head);
        if (result < 0) {
            embd__connect_lose_channel(link, result);
            return;
        }
        if (result == WRITTEN_HELD)
            return;
        if (result == WRITTEN_FULL) {
            embd__sending_block(link, true);
            return;
        }
        struct exchange *x = embd__queue_pop(&link->queue);
        x->state = EXCHANGE_SENT;
        embd__flights_add(&link->flights, x->msgid, x);
    }
    if (may_send)
        embd__sending_block(link, embd__channel_is_pending(&link->channel));
}
