/* behind.c - see behind.h. */
#include "server/service/behind.h"

#include "server/service/state.h"

void behind_park(struct shard_session *session, struct request *request)
{
    request->state = REQUEST_PARKED;
    request->waits = WAITS_BEHIND;
    request->next = NULL;
    if (session->behind == NULL)
        session->behind = request;
    else
        session->behind_last->next = request;
    session->behind_last = request;
}

void behind_unpark(struct shard_session *session, struct request *request)
{
    struct request **at = &session->behind, *before = NULL;
    while (*at != request) {
        before = *at;
        at = &(*at)->next;
    }
    *at = request->next;
    if (session->behind_last == request)
        session->behind_last = before;
    request->next = NULL;
}

void behind_go_on(struct shard *shard, struct shard_session *session)
{
    while (session->behind != NULL) {
        struct request *behind = session->behind;
        behind_unpark(session, behind);
        hold_park(&shard->hold, behind);
    }
}
