/* sync_deadline.c - see sync_deadline.h. */
#include "server/journal/sync_deadline.h"

#include "server/journal/journal.h"

#define MS         UINT64_C(1000000)
#define PROMISE    (JOURNAL_BUFFERED_MS * MS)
#define LATEST     (PROMISE / 2) /* a sync has less to do when there was one before */
#define FOR_OTHERS (5 * MS)      /* until this thread runs, where others do */
#define FORGETS    16u           /* after this many, little is left of a long one */

void sync_deadline_init(struct sync_deadline *deadline)
{
    *deadline = (struct sync_deadline){.sync_ns = PROMISE};
}

/* The longest of late. */
static uint64_t longest(uint64_t before, uint64_t took)
{
    return took > before ? took : before - (before - took) / FORGETS;
}

void sync_deadline_wrote(struct sync_deadline *deadline, uint64_t begin_ns, uint64_t end_ns)
{
    deadline->write_ns = longest(deadline->write_ns, end_ns - begin_ns);
    if (deadline->is_dirty)
        return;
    deadline->is_dirty = true;
    deadline->since_ns = end_ns;
}

void sync_deadline_synced(struct sync_deadline *deadline, uint64_t begin_ns, uint64_t end_ns)
{
    if (deadline->is_dirty) /* else there was nothing to do */
        deadline->sync_ns = longest(deadline->sync_ns, end_ns - begin_ns);
    deadline->is_dirty = false;
}

/* The work that must begin before the oldest record reaches its age limit, and how long before. */
static uint64_t takes(const struct sync_deadline *deadline)
{
    return deadline->write_ns + deadline->sync_ns + deadline->sync_ns / 4 + FOR_OTHERS;
}

bool sync_deadline_holds(const struct sync_deadline *deadline)
{
    return takes(deadline) >= PROMISE;
}

uint64_t sync_deadline_of(const struct sync_deadline *deadline)
{
    uint64_t left = sync_deadline_holds(deadline) ? 0 : PROMISE - takes(deadline);
    return deadline->since_ns + (left < LATEST ? left : LATEST);
}
