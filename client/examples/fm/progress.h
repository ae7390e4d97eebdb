/* progress.h - how far a pass has come: a bar on a terminal, a line now and then anywhere
 * else. On standard error. */
#ifndef FM_PROGRESS_H
#define FM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    const char *title; /* the caller's */
    uint64_t total;
    double started; /* seconds of the monotonic clock */
    double next;    /* seconds after the start when to print again */
    bool terminal;
} progress;

void progress_begin(progress *p, const char *title, uint64_t total);

/* `done` of `total`; `loss` is the mean so far. */
void progress_show(progress *p, uint64_t done, double loss);

/* Ends the bar and returns the seconds since the beginning. */
double progress_end(progress *p);

#endif
