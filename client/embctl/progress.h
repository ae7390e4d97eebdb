/* progress.h - a line on stderr that says how far a long operation is: percent, rows, rate, time
 * left. Only where stderr is a terminal, and only once it has taken over two seconds. */
#ifndef EMBCTL_PROGRESS_H
#define EMBCTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include "embd/admin.h"

struct progress {
    const char *label;      /* "dump" */
    const char *next_label; /* when rows start from 0 again ("load" after "verify"); or NULL */
    uint64_t began_ns, phase_ns;
    uint64_t waits_ns; /* since when it waits; 0: it has not */
    uint64_t last_rows;
    bool on_terminal, is_shown;
};

/* From here on SIGINT and SIGTERM stop the operation, which then cleans up after itself; a second
 * one kills. */
void progress_begin(struct progress *p, const char *label, const char *next_label);

/* An embd_progress; arg is a struct progress. */
int progress_report(void *arg, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done);

/* Says so on a terminal, and for how long. False: it has lasted for `most_s`, or a signal stops it.
 */
bool progress_wait(struct progress *p, const char *what, uint64_t most_s);

/* Whether a signal has come. */
bool progress_is_stopped(void);

/* Takes the line away. Returns the microseconds since begin. */
uint64_t progress_end(struct progress *p);

#endif
