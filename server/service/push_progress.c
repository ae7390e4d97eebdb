/* push_progress.c - see push_progress.h. */
#include "server/service/push_progress.h"

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

void push_progress_fini(struct push_progress *progress)
{
    free(progress->left);
    *progress = (struct push_progress){0};
}

/* ---- sessions that have ended ---- */

static bool is_recent(uint64_t pushed_ns, uint64_t now_ns)
{
    return pushed_ns != 0 && (now_ns < pushed_ns || now_ns - pushed_ns < PUSH_PROGRESS_RECENT_NS);
}

static void forget_old(struct push_progress *progress, uint64_t now_ns)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < progress->n_left; i++)
        if (is_recent(progress->left[i].pushed_ns, now_ns))
            progress->left[n_kept++] = progress->left[i];
    progress->n_left = n_kept;
}

/* Where it is full, old ones go; where most are recent, it grows. Many may leave at once. */
static bool make_room(struct push_progress *progress, uint64_t now_ns)
{
    uint32_t n = progress->n_room == 0 ? 16 : 2 * progress->n_room;
    if (progress->n_left < progress->n_room)
        return true;
    forget_old(progress, now_ns);
    if (progress->n_left < progress->n_room / 2 || n > PUSH_PROGRESS_MAX)
        return progress->n_left < progress->n_room;
    struct push_progress_left *left = realloc(progress->left, n * sizeof *left);
    if (left == NULL)
        return progress->n_left < progress->n_room;
    progress->left = left;
    progress->n_room = n;
    return true;
}

/* Msgids begin anew with a connection, and places do not. */
static void remember(struct push_progress *progress, const struct shard_session *session)
{
    if (session->client == 0 || !session->is_ordered || session->pushed_ns == 0)
        return;
    if (make_room(progress, session->pushed_ns))
        progress->left[progress->n_left++] =
            (struct push_progress_left){{session->client, session->pushed}, session->pushed_ns};
}

void push_progress_name(struct push_progress *progress, struct shard_session *session,
                        uint64_t client)
{
    remember(progress, session);
    leave(session);
    session->client = client;
    session->pushed_ns = 0;
    if (client == 0)
        return;
    session->serial = ++progress->last_serial;
    session->next_client = progress->first;
    session->client_at = &progress->first;
    if (progress->first != NULL)
        progress->first->client_at = &session->next_client;
    progress->first = session;
}

bool push_progress_includes(uint32_t pushed, const struct request *request)
{
    switch (request->place_kind) {
    case PLACE_FIRST:
        return true;
    case PLACE_BEHIND:
        return pushed != request->place && push_progress_covers(pushed, request->place);
    case PLACE_AT:
        return push_progress_covers(pushed, request->place);
    case PLACE_UNKNOWN:
        break;
    }
    return false;
}

uint32_t push_progress_list(struct push_progress *progress, uint64_t now_ns, uint32_t more,
                            struct push_progress_mark **out)
{
    uint32_t n = 0, at = 0;
    forget_old(progress, now_ns);
    for (const struct shard_session *s = progress->first; s != NULL; s = s->next_client)
        n += is_recent(s->pushed_ns, now_ns) && n < PUSH_PROGRESS_MAX;
    *out = malloc((n + progress->n_left + more + 1) * sizeof **out);
    if (*out == NULL)
        return 0;
    for (const struct shard_session *s = progress->first; s != NULL && at < n; s = s->next_client)
        if (is_recent(s->pushed_ns, now_ns))
            (*out)[at++] = (struct push_progress_mark){s->client, s->pushed};
    for (uint32_t i = 0; i < progress->n_left; i++)
        (*out)[at++] = progress->left[i].mark;
    return at;
}

static int by_client(const void *a, const void *b)
{
    const struct push_progress_mark *x = a, *y = b;
    return (x->client > y->client) - (x->client < y->client);
}

uint32_t push_progress_merge(struct push_progress_mark *marks, uint32_t n)
{
    uint32_t n_merged = 0;
    qsort(marks, n, sizeof *marks, by_client);
    for (uint32_t i = 0; i < n; i++) {
        struct push_progress_mark *last = n_merged > 0 ? &marks[n_merged - 1] : NULL;
        if (last == NULL || last->client != marks[i].client)
            marks[n_merged++] = marks[i];
        else if (!push_progress_covers(last->pushed, marks[i].pushed))
            last->pushed = marks[i].pushed;
    }
    return n_merged < PUSH_PROGRESS_MAX ? n_merged : PUSH_PROGRESS_MAX;
}
