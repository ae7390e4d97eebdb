/* log.c - lines on standard error. A line is built on the stack and written at once. A line longer
 * than LINE_BYTES is cut and ends with cut=true. A failed write is ignored: there is nowhere else
 * to report it. */
#include "server/log/log.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static _Atomic(enum log_level) lowest = LOG_INFO;

bool log_level_read(const char *name, enum log_level *out)
{
    for (unsigned i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    return false;
}

void log_set_level(enum log_level level)
{
    lowest = level;
}

static size_t put_time(char *line, size_t room)
{
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, room, "%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(line + n, room - n, ".%03dZ ", (int)(now.tv_nsec / 1000000));
}

/* Appends `text` with unprintable bytes escaped; returns false when it had to be cut. */
static bool put_escaped(char *line, size_t *n, size_t room, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        bool is_plain = byte >= 0x20 && byte < 0x7f;
        if (*n + 5 > room)
            return false;
        if (is_plain)
            line[(*n)++] = *text;
        else
            *n += (size_t)snprintf(line + *n, 5, "\\x%02x", byte);
    }
    return true;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_event_v(level, event, format, arguments);
    va_end(arguments);
}

void log_event_v(enum log_level level, const char *event, const char *format, va_list arguments)
{
    if (level < lowest)
        return;
    char pairs[LINE_BYTES], line[LINE_BYTES];
    vsnprintf(pairs, sizeof pairs, format, arguments);

    static const char cut[] = " cut=true\n";
    size_t room = sizeof line - sizeof cut, n = put_time(line, room);
    n += (size_t)snprintf(line + n, room - n, "%s %s ", level_names[level], event);
    if (put_escaped(line, &n, room, pairs)) {
        line[n++] = '\n';
    } else {
        memcpy(line + n, cut, sizeof cut - 1);
        n += sizeof cut - 1;
    }
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
}
