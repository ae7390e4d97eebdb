/* behind.c - see behind.h. */
#include "server/service/behind.h"

#include "server/service/request_list.h"
#include "server/service/state.h"

void behind_park(struct shard_session *session, struct request *request)
{
    request->state = REQUEST_PARKED;
    request->waits = WAITS_BEHIND;
    request_list_add(&session->behind, &session->behind_last, request);
}

void behind_unpark(struct shard_session *session, struct request *request)
{
    request_list_remove(&session->behind, &session->behind_last, request);
}

void behind_go_on(struct shard *shard, struct shard_session *session)
{
    while (session->behind != NULL) {
        struct request *behind = session->behind;
        behind_unpark(session, behind);
        hold_park(&shard->hold, behind);
    }
}
