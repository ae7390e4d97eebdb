/* syncs.h - how many times a journal's file was synced, and how long that took: for who watches the
 * disk.
 *
 * Whoever writes the journal's file notes a sync; any thread reads. A reader that meets a writer
 * may see a part of one sync, which the next look mends. */
#ifndef EMBD_JOURNAL_SYNCS_H
#define EMBD_JOURNAL_SYNCS_H

#include <stdatomic.h>
#include <stdint.h>

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
