/* materialize.c - an answer shows the table as it was when its pull took effect, however slowly the
 * peer reads it.
 *
 * Most answers are made and sent before anything changes, so usually nothing is copied. Only a
 * change that meets a half-sent pull pays: the remaining rows of that pull and table are copied to
 * memory, and shard_fill sends them from there. A pull that has made nothing yet has not taken
 * effect: it goes after the change, unless the change comes from the same connection, whose order
 * counts, or drops the table.
 *
 * Peers that do not read their answers must not fill the memory: beyond a limit the change is
 * refused, first that of the connection that does not read. */
#include "server/service/materialize.h"

#include "server/engine/pull.h"
#include "server/service/state.h"

#define SESSION_BYTES_MAX (2 * LIMIT_FRAME_BYTES)

static uint32_t rows_left(const struct shard_work *work, uint32_t i)
{
    return work->op.parts[i].in.n_rows - work->rows[i].n_made;
}

static uint64_t bytes_left(const struct shard_work *work, uint32_t i)
{
    return rows_left(work, i) * work->rows[i].row_bytes;
}

static int materialize_part(struct shard_work *work, uint32_t i, struct embd__error *e)
{
    struct shard *shard = work->shard;
    struct answer_rows *rows = &work->rows[i];
    uint64_t bytes = bytes_left(work, i);
    uint8_t *values = shard->engine.tables.ops->buffer_new(bytes);
    if (values == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "no memory for %llu bytes of answers still being sent",
                               (unsigned long long)bytes);
    pull_make_rows(work, i, values, rows_left(work, i));
    rows->values = values;
    rows->values_bytes = rows->room_bytes = bytes;
    rows->values_at = 0;
    rows->is_materialized = true;
    shard->materialized_bytes += bytes;
    shard->counters.materialized_bytes += bytes;
    return EMBD_OK;
}

/* The change to come, and its connection. */
struct coming {
    const struct shard_session *session;
    const struct table *table;
    enum change change;
};

static bool concerns_work(const struct coming *c, const struct shard_work *work)
{
    return work->is_begun || work->request->session == c->session || c->change == CHANGE_DROP;
}

static bool concerns_part(const struct coming *c, const struct op_part *part)
{
    return part->table == c->table && (c->change != CHANGE_INSERTS || part->in.zero_missing);
}

static uint64_t bytes_concerned(const struct coming *c, const struct shard_work *work)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->op.n_parts && concerns_work(c, work); i++)
        bytes += concerns_part(c, &work->op.parts[i]) ? bytes_left(work, i) : 0;
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
    if (own > SESSION_BYTES_MAX)
        return embd__error_set(e, EMBD_BUSY,
                               "the peer has not read %llu bytes of earlier answers on this "
                               "connection, the limit is %u",
                               (unsigned long long)own, SESSION_BYTES_MAX);
    if (added > 0 && shard->materialized_bytes + added > shard->materialize_limit)
        return embd__error_set(e, EMBD_BUSY,
                               "%llu bytes of answers would wait for slow readers, the limit is "
                               "%llu",
                               (unsigned long long)(shard->materialized_bytes + added),
                               (unsigned long long)shard->materialize_limit);
    return EMBD_OK;
}

int materialize(void *arg, const void *session, const struct table *table, enum change change,
                struct embd__error *e)
{
    struct shard *shard = arg;
    const struct coming c = {session, table, change};
    if (check_limits(shard, &c, e) != EMBD_OK)
        return e->status;
    for (struct shard_work *work = shard->streaming; work != NULL; work = work->next)
        for (uint32_t i = 0; i < work->op.n_parts && concerns_work(&c, work); i++)
            if (concerns_part(&c, &work->op.parts[i]) && materialize_part(work, i, e) != EMBD_OK)
                return e->status;
    return EMBD_OK;
}
