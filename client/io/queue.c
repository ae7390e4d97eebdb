/* queue.c - exchanges of a link that are not sent yet. */
#include "client/io/link_internal.h"
#include "proto/assert.h"

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
