/* errors.c - the first error wins: whoever detects a fault knows most about it, and everybody after
 * it only sees its consequences. */
#include "errors.h"

#include <stdarg.h>
#include <stdio.h>

int embd__error_set(struct embd__error *e, int status, const char *format, ...)
{
    if (e->status != EMBD_OK)
        return e->status;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    e->status = status;
    return status;
}
