/* ending.h - the exit statuses of the server, and how it ends at once.
 *
 * A process that cannot go on without risking an answer or a file that is wrong logs why, as its
 * last line, and ends here. Nothing is flushed or closed: the next start replays the journals. */
#ifndef EMBD_ENDING_H
#define EMBD_ENDING_H

#include <stdatomic.h>
#include <stdbool.h>

enum exit_status {
    EXIT_OK = 0,
    EXIT_FAILED = 1,      /* could not start, or a second signal came while it ended */
    EXIT_USAGE = 2,       /* the configuration cannot be used */
    EXIT_CANNOT_BIND = 3, /* a port or socket cannot be listened on */
    EXIT_ASSERTION = 70,  /* a broken promise between modules: a bug in embd */
    EXIT_DISK = 74,       /* it is not known what is on the disk, or a recorded change cannot be
                             applied */
};

/* Logs an error as log_event does, and ends the process. Any thread. */
_Noreturn void log_exit(enum exit_status status, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* In a process that is not the server's own (libembd-inproc): log_exit calls `tell` in the place of
 * ending the process, and its thread then stands still for ever; so do the others, where they next
 * call log_has_ended. All servers of the process have failed then. Before the first thread. */
void log_end_by(void (*tell)(const char *event, const char *text));
/* log_exit was called, and the process goes on. Any thread. */
extern atomic_bool log_ended; /* ending.c's */
static inline bool log_has_ended(void)
{
    return atomic_load_explicit(&log_ended, memory_order_relaxed);
}
_Noreturn void log_stand_still(void);

/* From now on EMBD_ASSERT logs and exits with EXIT_ASSERTION. Before the first thread starts. */
void log_take_assertions(void);

#endif
