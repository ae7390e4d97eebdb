/* request_list.h - requests that wait, in the order in which they came: linked by request->next. */
#ifndef EMBD_SERVICE_REQUEST_LIST_H
#define EMBD_SERVICE_REQUEST_LIST_H

#include "proto/assert.h"
#include "server/service/shard.h"

static inline void request_list_add(struct request **first, struct request **last,
                                    struct request *request)
{
    request->next = NULL;
    if (*first == NULL)
        *first = request;
    else
        (*last)->next = request;
    *last = request;
}

/* The request is in the list. */
static inline void request_list_remove(struct request **first, struct request **last,
                                       struct request *request)
{
    struct request **at = first, *before = NULL;
    while (*at != request) {
        EMBD_ASSERT(*at != NULL);
        before = *at;
        at = &before->next;
    }
    *at = request->next;
    if (*last == request)
        *last = before;
    request->next = NULL;
}

#endif
