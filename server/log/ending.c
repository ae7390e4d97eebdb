/* ending.c - see ending.h. */
#include "server/log/ending.h"

#include <stdarg.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/log/log.h"

void log_exit(enum exit_status status, const char *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_event_v(LOG_ERROR, event, format, arguments);
    va_end(arguments);
    _exit(status);
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
