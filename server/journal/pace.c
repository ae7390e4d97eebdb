/* pace.c - see pace.h. */
#include "server/journal/pace.h"

#include "server/journal/journal.h"

#define MS         UINT64_C(1000000)
#define PROMISE    (JOURNAL_BUFFERED_MS * MS)
#define LATEST     (PROMISE / 2) /* a sync has less to do when there was one before */
#define FOR_OTHERS (5 * MS)      /* until this thread runs, where others do */
#define FORGETS    16u           /* after this many, little is left of a long one */

void pace_init(struct pace *pace)
{
    *pace = (struct pace){.sync_ns = PROMISE};
}

/* The longest of late. */
static uint64_t longest(uint64_t before, uint64_t took)
{
    return took > before ? took : before - (before - took) / FORGETS;
}

void pace_wrote(struct pace *pace, uint64_t begin_ns, uint64_t end_ns)
{
    pace->write_ns = longest(pace->write_ns, end_ns - begin_ns);
    if (pace->is_dirty)
        return;
    pace->is_dirty = true;
    pace->since_ns = end_ns;
}

void pace_synced(struct pace *pace, uint64_t begin_ns, uint64_t end_ns)
{
    if (pace->is_dirty) /* else there was nothing to do */
        pace->sync_ns = longest(pace->sync_ns, end_ns - begin_ns);
    pace->is_dirty = false;
}

/* The work that must begin before the oldest record reaches its age limit, and how long before. */
static uint64_t takes(const struct pace *pace)
{
    return pace->write_ns + pace->sync_ns + pace->sync_ns / 4 + FOR_OTHERS;
}

bool pace_holds(const struct pace *pace)
{
    return takes(pace) >= PROMISE;
}

uint64_t pace_sync_by(const struct pace *pace)
{
    uint64_t left = pace_holds(pace) ? 0 : PROMISE - takes(pace);
    return pace->since_ns + (left < LATEST ? left : LATEST);
}
