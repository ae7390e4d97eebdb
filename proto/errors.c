/* errors.c - the first error wins: the code that detects a fault knows most about it, and all code
 * after it only sees its consequences.
 *
 * A sentence may quote a peer or a file, and may be shown on a terminal: nothing in it can control
 * one. */
#include "proto/errors.h"

#include <stdarg.h>
#include <stdio.h>

/* Also the controls that UTF-8 writes with two bytes. */
static void take_controls_out(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++)
        if (*c < ' ' || *c == 0x7f)
            *c = '?';
        else if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            c[0] = c[1] = '?';
}

int embd__error_set(struct embd__error *e, int status, const char *format, ...)
{
    if (e->status != EMBD_OK)
        return e->status;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    take_controls_out(e->text);
    e->status = status;
    return status;
}
