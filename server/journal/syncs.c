/* syncs.c - see syncs.h. */
#include "server/journal/syncs.h"

#include "server/journal/journal.h"

/* ---- when ---- */

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

/* ---- how many, and how long they took ---- */

static uint64_t get(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void set(_Atomic uint64_t *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

void syncs_note(struct syncs *syncs, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t took_ns = end_ns - begin_ns, age_ns = end_ns - get(&syncs->since_ns);
    set(&syncs->n, get(&syncs->n) + 1);
    set(&syncs->total_ns, get(&syncs->total_ns) + took_ns);
    if (age_ns >= SYNCS_WINDOW_NS) {
        set(&syncs->longest_before_ns, age_ns < 2 * SYNCS_WINDOW_NS ? get(&syncs->longest_ns) : 0);
        set(&syncs->longest_ns, 0);
        set(&syncs->since_ns, end_ns);
    }
    if (took_ns > get(&syncs->longest_ns))
        set(&syncs->longest_ns, took_ns);
}

uint64_t syncs_longest_ns(const struct syncs *syncs, uint64_t now_ns)
{
    uint64_t since_ns = get(&syncs->since_ns), age_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    uint64_t longest_ns = get(&syncs->longest_ns), before_ns = get(&syncs->longest_before_ns);
    if (age_ns >= 2 * SYNCS_WINDOW_NS)
        return 0;
    return age_ns >= SYNCS_WINDOW_NS || longest_ns > before_ns ? longest_ns : before_ns;
}
