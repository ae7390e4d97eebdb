/* reach.c - see reach.h. */
#include "server/service/reach.h"

#include <stdlib.h>

static void leave(struct shard_session *session)
{
    if (session->client_at == NULL)
        return;
    *session->client_at = session->next_client;
    if (session->next_client != NULL)
        session->next_client->client_at = session->client_at;
    session->next_client = NULL;
    session->client_at = NULL;
}

void reach_name(struct reach *reach, struct shard_session *session, uint64_t client)
{
    leave(session);
    session->client = client;
    session->pushed_ns = 0;
    if (client == 0)
        return;
    session->next_client = reach->first;
    session->client_at = &reach->first;
    if (reach->first != NULL)
        reach->first->client_at = &session->next_client;
    reach->first = session;
}

void reach_note(struct shard_session *session, uint32_t msgid, uint64_t now_ns)
{
    if (session->pushed_ns != 0 && reach_covers(session->pushed, msgid))
        return;
    session->pushed = msgid;
    session->pushed_ns = now_ns;
}

static bool is_recent(const struct shard_session *session, uint64_t now_ns)
{
    return session->pushed_ns != 0 && now_ns - session->pushed_ns < REACH_RECENT_NS;
}

uint32_t reach_list(const struct reach *reach, uint64_t now_ns, struct reach_mark **out)
{
    uint32_t n = 0, at = 0;
    for (const struct shard_session *s = reach->first; s != NULL; s = s->next_client)
        n += is_recent(s, now_ns) && n < REACH_MAX;
    *out = malloc((n + 1) * sizeof **out);
    if (*out == NULL)
        return 0;
    for (const struct shard_session *s = reach->first; s != NULL && at < n; s = s->next_client)
        if (is_recent(s, now_ns))
            (*out)[at++] = (struct reach_mark){s->client, s->pushed};
    return n;
}
