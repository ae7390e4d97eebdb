/* ending.c - see ending.h. */
#include "server/log/ending.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/log/log.h"

enum { TEXT_BYTES = 400 };

static void (*end_by)(const char *event, const char *text); /* set once */
atomic_bool log_ended;

void log_end_by(void (*tell)(const char *event, const char *text))
{
    end_by = tell;
}

/* Its memory and files may be half changed: nothing is unwound or freed. */
void log_stand_still(void)
{
    for (;;)
        pause();
}

/* Once: a second failure may follow from the first. */
static void tell(const char *event, const char *format, va_list arguments)
{
    char text[TEXT_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    if (!atomic_exchange(&log_ended, true))
        end_by(event, text);
}

void log_exit(enum exit_status status, const char *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_event_v(LOG_ERROR, event, format, arguments);
    va_end(arguments);
    if (end_by == NULL)
        _exit(status);
    va_start(arguments, format);
    tell(event, format, arguments);
    va_end(arguments);
    log_stand_still();
}

static void on_assert(const char *file, int line, const char *condition)
{
    log_exit(EXIT_ASSERTION, "assertion_failed",
             "at=%s:%d condition=\"%s\" why=\"this is a bug in embd: the process ends, so that "
             "nothing wrong is answered or written; report this line, then start it again\"",
             file, line, condition);
}

void log_take_assertions(void)
{
    embd__assert_to(on_assert);
}
