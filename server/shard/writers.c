/* writers.c - see writers.h. */
#include "writers.h"

#include <stdlib.h>

static void leave(struct shard_session *session)
{
    if (session->writer_at == NULL)
        return;
    *session->writer_at = session->next_writer;
    if (session->next_writer != NULL)
        session->next_writer->writer_at = session->writer_at;
    session->next_writer = NULL;
    session->writer_at = NULL;
}

void writers_name(struct writers *writers, struct shard_session *session, uint64_t writer)
{
    leave(session);
    session->writer = writer;
    session->pushed_ns = 0;
    if (writer == 0)
        return;
    session->next_writer = writers->first;
    session->writer_at = &writers->first;
    if (writers->first != NULL)
        writers->first->writer_at = &session->next_writer;
    writers->first = session;
}

void writers_note(struct shard_session *session, uint32_t msgid, uint64_t now_ns)
{
    if (session->pushed_ns != 0 && writers_reaches(session->pushed, msgid))
        return;
    session->pushed = msgid;
    session->pushed_ns = now_ns;
}

static bool is_recent(const struct shard_session *session, uint64_t now_ns)
{
    return session->pushed_ns != 0 && now_ns - session->pushed_ns < WRITERS_RECENT_NS;
}

uint32_t writers_list(const struct writers *writers, uint64_t now_ns, struct writer_mark **out)
{
    uint32_t n = 0, at = 0;
    for (const struct shard_session *s = writers->first; s != NULL; s = s->next_writer)
        n += is_recent(s, now_ns) && n < WRITERS_MAX;
    *out = malloc((n + 1) * sizeof **out);
    if (*out == NULL)
        return 0;
    for (const struct shard_session *s = writers->first; s != NULL && at < n; s = s->next_writer)
        if (is_recent(s, now_ns))
            (*out)[at++] = (struct writer_mark){s->writer, s->pushed};
    return n;
}
