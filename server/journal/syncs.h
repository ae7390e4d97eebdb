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
/* Records are written, from `begin_ns` until `end_ns`; they are synced next, or may be
 * acknowledged. */
void sync_deadline_wrote(struct sync_deadline *deadline, uint64_t begin_ns, uint64_t end_ns);
void sync_deadline_synced(struct sync_deadline *deadline, uint64_t begin_ns, uint64_t end_ns);
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

void syncs_note(struct syncs *syncs, uint64_t begin_ns, uint64_t end_ns);
/* The longest of the last one to two windows; 0: there was none. */
uint64_t syncs_longest_ns(const struct syncs *syncs, uint64_t now_ns);

#endif
