/* assert.c - see assert.h. */
#include "proto/assert.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static embd__assert_report *report_to; /* set once, before the first thread */

void embd__assert_to(embd__assert_report *report)
{
    report_to = report;
}

/* Build folders lie in the source tree: the compiler may see it behind "../../". */
static const char *from_root(const char *path)
{
    while (strncmp(path, "../", 3) == 0)
        path += 3;
    return path;
}

void embd__assert_failed(const char *file, int line, const char *condition)
{
    if (report_to != NULL)
        report_to(from_root(file), line, condition);
    fprintf(stderr, "embd: %s:%d: assertion failed: %s; this is a bug in embd, please report it\n",
            from_root(file), line, condition);
    abort();
}
