/* syncs.h - when a journal's buffered records must be synced, so that each is on disk
 * JOURNAL_BUFFERED_MS after it was acknowledged; and how many syncs there were, and how long they
 * took: for who watches the disk.
 *
 * A sync must begin earlier by the time that it will take, and that a write before it will take.
 * Both are estimated from earlier ones: the longest of late. If a disk is so slow that no time is
 * left, its records are synced before they are acknowledged, as if they were durable; so are those
 * of a disk without an estimate. One case cannot be estimated, the first sync that suddenly takes
 * longer: records acknowledged since the sync before it wait for its end, and none is acknowledged
 * meanwhile.
 *
 * Owner: the thread that writes the journal's file. */
#ifndef EMBD_JOURNAL_SYNCS_H
#define EMBD_JOURNAL_SYNCS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/log/monotonic.h"

struct sync_deadline {
    bool is_dirty;              /* something is written and not synced */
    uint64_t since_ns;          /* the oldest of it; of CLOCK_MONOTONIC, as all times here */
    uint64_t sync_ns, write_ns; /* how long one is expected to take */
};

/* Nothing is written, and nothing known. */
void sync_deadline_init(struct sync_deadline *deadline);
#define SYNC_FORGETS 16u /* after this many, little is left of a long one */

/* The longest of late. */
static inline uint64_t sync_longest(uint64_t before, uint64_t took)
{
    return took > before ? took : before - (before - took) / SYNC_FORGETS;
}

/* Records are written, from `begin_ns` until `end_ns`; they are synced next, or may be
 * acknowledged. */
static inline void sync_deadline_wrote(struct sync_deadline *deadline, uint64_t begin_ns,
                                       uint64_t end_ns)
{
    deadline->write_ns = sync_longest(deadline->write_ns, end_ns - begin_ns);
    if (deadline->is_dirty)
        return;
    deadline->is_dirty = true;
    deadline->since_ns = end_ns;
}

static inline void sync_deadline_synced(struct sync_deadline *deadline, uint64_t begin_ns,
                                        uint64_t end_ns)
{
    if (deadline->is_dirty) /* else there was nothing to do */
        deadline->sync_ns = sync_longest(deadline->sync_ns, end_ns - begin_ns);
    deadline->is_dirty = false;
}

/* Whether there is no time to sync records after they are acknowledged. */
bool sync_deadline_holds(const struct sync_deadline *deadline);
/* When the next sync must begin; while something is dirty. */
uint64_t sync_deadline_of(const struct sync_deadline *deadline);

/* ---- how many, and how long they took ---- */

/* Whoever writes the journal's file notes a sync; any thread reads. A reader that meets a writer
 * may see a part of one sync, which the next look mends. */
#define SYNCS_WINDOW_NS UINT64_C(60000000000)

struct syncs {
    _Atomic uint64_t n, total_ns;
    _Atomic uint64_t
        since_ns; /* of CLOCK_MONOTONIC: when the window began, and its longest sync; */
    _Atomic uint64_t longest_ns, longest_before_ns; /* and that of the window before it */
};

static inline uint64_t syncs_get(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static inline void syncs_set(_Atomic uint64_t *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static inline void syncs_note(struct syncs *syncs, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t took_ns = end_ns - begin_ns, age_ns = end_ns - syncs_get(&syncs->since_ns);
    syncs_set(&syncs->n, syncs_get(&syncs->n) + 1);
    syncs_set(&syncs->total_ns, syncs_get(&syncs->total_ns) + took_ns);
    if (age_ns >= SYNCS_WINDOW_NS) {
        syncs_set(&syncs->longest_before_ns,
                  age_ns < 2 * SYNCS_WINDOW_NS ? syncs_get(&syncs->longest_ns) : 0);
        syncs_set(&syncs->longest_ns, 0);
        syncs_set(&syncs->since_ns, end_ns);
    }
    if (took_ns > syncs_get(&syncs->longest_ns))
        syncs_set(&syncs->longest_ns, took_ns);
}

/* The longest of the last one to two windows; 0: there was none. */
uint64_t syncs_longest_ns(const struct syncs *syncs, uint64_t now_ns);

#endif
