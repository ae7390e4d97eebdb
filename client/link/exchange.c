/* exchange.c - how far a message is sent, and the list of those that wait. */
#include "client/link/exchange.h"

#include <stddef.h>

#include "proto/assert.h"

uint32_t embd__exchange_pieces(const struct exchange *x, struct iovec *iov, uint32_t max)
{
    uint32_t n = 0, n_pieces = x->held ? x->held : embd__msg_n_pieces(&x->msg);
    uint64_t skip = x->piece_sent;
    for (uint32_t i = x->piece; i < n_pieces && n < max; i++, skip = 0) {
        struct msg_piece piece = embd__msg_piece(&x->msg, i);
        if (piece.bytes > skip)
            iov[n++] = (struct iovec){(uint8_t *)(uintptr_t)piece.data + skip,
                                      (size_t)(piece.bytes - skip)};
    }
    return n;
}

bool embd__exchange_sent(struct exchange *x, uint64_t bytes)
{
    uint32_t n_pieces = embd__msg_n_pieces(&x->msg);
    while (x->piece < n_pieces) {
        uint64_t left = embd__msg_piece(&x->msg, x->piece).bytes - x->piece_sent;
        if (bytes < left) {
            x->piece_sent += bytes;
            return false;
        }
        bytes -= left;
        x->piece++;
        x->piece_sent = 0;
    }
    EMBD_ASSERT(bytes == 0);
    return true;
}

void embd__queue_init(struct queue *queue)
{
    queue->head = NULL;
    queue->end = &queue->head;
}

static void begin(struct exchange *x)
{
    x->state = EXCHANGE_QUEUED;
    x->piece = 0;
    x->piece_sent = 0;
}

void embd__queue_push(struct queue *queue, struct exchange *x)
{
    begin(x);
    x->next = NULL;
    *queue->end = x;
    queue->end = &x->next;
}

void embd__queue_push_front(struct queue *queue, struct exchange *x)
{
    begin(x);
    x->next = queue->head;
    if (queue->head == NULL)
        queue->end = &x->next;
    queue->head = x;
}

struct exchange *embd__queue_pop(struct queue *queue)
{
    struct exchange *x = queue->head;
    EMBD_ASSERT(x != NULL);
    queue->head = x->next;
    if (queue->head == NULL)
        queue->end = &queue->head;
    return x;
}

bool embd__queue_prefer(struct queue *queue, bool (*chosen)(const struct exchange *x, uint64_t now),
                        uint64_t now)
{
    struct exchange **at = &queue->head;
    while (*at != NULL && !chosen(*at, now))
        at = &(*at)->next;
    struct exchange *x = *at;
    if (x == NULL || x == queue->head)
        return x != NULL;
    *at = x->next;
    if (queue->end == &x->next)
        queue->end = at;
    x->next = queue->head;
    queue->head = x;
    return true;
}

struct exchange *embd__queue_take(struct queue *queue,
                                  bool (*chosen)(const struct exchange *x, uint64_t now),
                                  uint64_t now)
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
