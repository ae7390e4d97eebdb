/* settle.c - an answer shows the table as it was when its pull took effect, however slowly it is
 * taken.
 *
 * Most answers are made and sent before anything changes, so nothing is copied on the usual way.
 * Only a change that meets a half-sent pull pays: the rest of that pull's rows of that table is
 * made into memory, and shard_fill hands it on from there. */
#include "settle.h"

#include "pull.h"
#include "state.h"

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

static int settle_part(struct shard_work *work, struct work_part *part, struct embd__error *e)
{
    uint32_t left = part->in.n_rows - part->n_made;
    uint64_t bytes = left * part->row_bytes;
    uint8_t *values = work->shard->tables.ops->buffer_new(bytes);
    if (values == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "no memory for %llu bytes of answers still being sent",
                               (unsigned long long)bytes);
    pull_make(work, part, values, left);
    part->values = values;
    part->values_bytes = bytes;
    part->values_at = 0;
    work->shard->counters.settled_bytes += bytes;
    return EMBD_OK;
}

static bool concerns(const struct work_part *part, const struct table *table, enum change change)
{
    return part->table == table && (change == CHANGE_ANY || part->in.zero_missing);
}

int settle(struct shard *shard, const struct table *table, enum change change,
           struct embd__error *e)
{
    for (struct shard_work *work = shard->streaming; work != NULL; work = work->next)
        for (uint32_t i = 0; i < work->n_parts; i++)
            if (concerns(&work->parts[i], table, change) &&
                settle_part(work, &work->parts[i], e) != EMBD_OK)
                return e->status;
    return EMBD_OK;
}
