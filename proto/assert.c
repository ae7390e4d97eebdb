/* assert.c - see assert.h. */
#include "proto/assert.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static embd__assert_report *report_to; /* set once, before the first thread */

void embd__assert_to(embd__assert_report *report)
{
    report_to = report;
}

void embd__assert_failed(const char *file, int line, const char *condition)
{
    if (report_to != NULL)
        report_to(file, line, condition);
    fprintf(stderr, "embd: %s:%d: assertion failed: %s; this is a bug in embd, please report it\n",
            file, line, condition);
    abort();
}
