/* syncs.c - see syncs.h. */
#include "server/journal/syncs.h"

#include "server/journal/journal.h"

/* ---- when ---- */

#define MS         UINT64_C(1000000)
#define PROMISE    (JOURNAL_BUFFERED_MS * MS)
#define LATEST     (PROMISE / 2) /* a sync has less to do when there was one before */
#define FOR_OTHERS (5 * MS)      /* until this thread runs, where others do */

void sync_deadline_init(struct sync_deadline *deadline)
{
    *deadline = (struct sync_deadline){.sync_ns = PROMISE};
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

/* ---- how many, and how long they took ---- */

uint64_t syncs_longest_ns(const struct syncs *syncs, uint64_t now_ns)
{
    uint64_t since_ns = syncs_get(&syncs->since_ns),
             age_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    uint64_t longest_ns = syncs_get(&syncs->longest_ns),
             before_ns = syncs_get(&syncs->longest_before_ns);
    if (age_ns >= 2 * SYNCS_WINDOW_NS)
        return 0;
    return age_ns >= SYNCS_WINDOW_NS || longest_ns > before_ns ? longest_ns : before_ns;
}
