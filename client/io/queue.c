/* queue.c - exchanges of a link that are not sent yet. */
#include "client/io/link_internal.h"

void embd__queue_push_front(struct queue *queue, struct exchange *x)
{
    x->state = EXCHANGE_QUEUED;
    x->piece = 0;
    x->piece_sent = 0;
    x->next = queue->head;
    if (queue->head == NULL)
        queue->end = &x->next;
    queue->head = x;
}

/* The server takes few methods while it loads. */
static bool goes_while_loading(const struct exchange *x)
{
    return x->while_loading || x->msgid == HELLO_MSGID || x->state == EXCHANGE_SENDING;
}

bool embd__queue_prefer_while_loading(struct queue *queue)
{
    struct exchange **at = &queue->head;
    while (*at != NULL && !goes_while_loading(*at))
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
