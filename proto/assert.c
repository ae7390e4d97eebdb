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

/* This file's name as the compiler has it: "/src/embd/proto/assert.c", or "../../proto/assert.c"
 * if a compiler cache made paths relative. The part before its place in the tree precedes every
 * path. */
static const char *from_root(const char *path)
{
    static const char here[] = __FILE__;
    const size_t root = sizeof here - sizeof "proto/assert.c";
    return strncmp(path, here, root) == 0 ? path + root : path;
}

void embd__assert_failed(const char *file, int line, const char *condition)
{
    if (report_to != NULL)
        report_to(from_root(file), line, condition);
    fprintf(stderr, "embd: %s:%d: assertion failed: %s; this is a bug in embd, please report it\n",
            from_root(file), line, condition);
    abort();
}
