/* log.h - one line for each event: time, level, event, then key=value pairs.
 *
 *     2025-03-04T05:06:07.089Z info listening shard=0 address=127.0.0.1:7700
 *
 * The value of why="..." is a sentence for people: what happened and what to do.
 *
 * A line is one write, so lines of different threads never mix. Bytes that are not printable ASCII
 * (a peer may have sent them) appear as \xNN, so no text can begin a line of its own. */
#ifndef EMBD_LOG_H
#define EMBD_LOG_H

#include <stdarg.h>
#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* "debug", "info", "warn", "error"; false for any other name. */
bool log_level_read(const char *name, enum log_level *out);

/* Lines below `level` are dropped. Before the first thread starts; until then info and above are
 * written. */
void log_set_level(enum log_level level);

/* `format` makes the key=value pairs; texts with spaces stand in double quotes. Any thread. */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void log_event_v(enum log_level level, const char *event, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

#endif
