/* settle.c - an answer shows the table as it was when its pull took effect, however slowly it is
 * taken.
 *
 * Most answers are made and sent before anything changes, so nothing is copied on the usual way.
 * Only a change that meets a half-sent pull pays: the rest of that pull's rows of that table is
 * made into memory, and shard_fill hands it on from there. A pull of which nothing is made yet has
 * not taken effect: it goes after the change, unless the change comes from the same connection,
 * whose order counts, or takes the table away.
 *
 * Peers that do not take their answers must not fill the memory with them: beyond a limit the
 * change is refused, first that of the connection that does not read. */
#include "server/shard/settle.h"

#include "server/shard/pull.h"
#include "server/shard/state.h"

#define SETTLE_SESSION_BYTES (2 * LIMIT_FRAME_BYTES)

void settle_watch(struct shard_work *work)
{
    struct shard *shard = work->shard;
    work->is_streaming = true;
    work->before = NULL;
    work->next = shard->streaming;
    if (shard->streaming != NULL)
        shard->streaming->before = work;
    shard->streaming = work;
}

void settle_forget(struct shard_work *work)
{
    if (!work->is_streaming)
        return;
    if (work->before != NULL)
        work->before->next = work->next;
    else
        work->shard->streaming = work->next;
    if (work->next != NULL)
        work->next->before = work->before;
    work->next = work->before = NULL;
    work->is_streaming = false;
}

static uint64_t bytes_left(const struct work_part *part)
{
    return (part->in.n_rows - part->n_made) * part->row_bytes;
}

static int settle_part(struct shard_work *work, struct work_part *part, struct embd__error *e)
{
    struct shard *shard = work->shard;
    uint64_t bytes = bytes_left(part);
    uint8_t *values = shard->tables.ops->buffer_new(bytes);
    if (values == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "no memory for %llu bytes of answers still being sent",
                               (unsigned long long)bytes);
    pull_make(work, part, values, part->in.n_rows - part->n_made);
    part->values = values;
    part->values_bytes = bytes;
    part->values_at = 0;
    part->is_settled = true;
    shard->settled_bytes += bytes;
    shard->counters.settled_bytes += bytes;
    return EMBD_OK;
}

void settle_free(struct shard *shard, struct work_part *part)
{
    shard->tables.ops->buffer_free(part->values, part->values_bytes);
    if (part->is_settled)
        shard->settled_bytes -= part->values_bytes;
    part->values = NULL;
    part->is_settled = false;
}

/* What is about to change, and by whom. */
struct coming {
    const struct shard_session *session;
    const struct table *table;
    enum change change;
};

static bool concerns_work(const struct coming *c, const struct shard_work *work)
{
    return work->is_begun || work->request->session == c->session || c->change == CHANGE_DROP;
}

static bool concerns_part(const struct coming *c, const struct work_part *part)
{
    return part->table == c->table && (c->change != CHANGE_INSERTS || part->in.zero_missing);
}

static uint64_t bytes_concerned(const struct coming *c, const struct shard_work *work)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->n_parts && concerns_work(c, work); i++)
        bytes += concerns_part(c, &work->parts[i]) ? bytes_left(&work->parts[i]) : 0;
    return bytes;
}

static int check_limits(const struct shard *shard, const struct coming *c, struct embd__error *e)
{
    uint64_t added = 0, own = 0;
    for (const struct shard_work *work = shard->streaming; work != NULL; work = work->next) {
        uint64_t bytes = bytes_concerned(c, work);
        added += bytes;
        own += work->request->session == c->session ? bytes : 0;
    }
    if (own > SETTLE_SESSION_BYTES)
        return embd__error_set(e, EMBD_BUSY,
                               "%llu bytes of earlier answers on this connection are not taken "
                               "yet, the limit is %u",
                               (unsigned long long)own, SETTLE_SESSION_BYTES);
    if (added > 0 && shard->settled_bytes + added > shard->settle_limit)
        return embd__error_set(e, EMBD_BUSY,
                               "%llu bytes of answers would wait for slow readers, the limit is "
                               "%llu",
                               (unsigned long long)(shard->settled_bytes + added),
                               (unsigned long long)shard->settle_limit);
    return EMBD_OK;
}

int settle(struct shard *shard, const struct shard_session *session, const struct table *table,
           enum change change, struct embd__error *e)
{
    const struct coming c = {session, table, change};
    if (check_limits(shard, &c, e) != EMBD_OK)
        return e->status;
    for (struct shard_work *work = shard->streaming; work != NULL; work = work->next)
        for (uint32_t i = 0; i < work->n_parts && concerns_work(&c, work); i++)
            if (concerns_part(&c, &work->parts[i]) &&
                settle_part(work, &work->parts[i], e) != EMBD_OK)
                return e->status;
    return EMBD_OK;
}
