/* help.c - argp's help, in order.
 *
 * Where its buffer is nearly full, argp of glibc prints the indentation of a line before the lines
 * that wait in the buffer. The buffer grows with the longest text, so the first one has newlines
 * behind it that make it larger than what follows. They are left out on their way. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/embctl/embctl.h"

enum { BUFFER_BYTES = 32768, EMPTY_LINES = 1 };

char *help_first_text(const char *text)
{
    size_t n = strlen(text);
    char *wide = malloc(n + BUFFER_BYTES + 1);
    if (!wide)
        return (char *)(uintptr_t)text;
    memcpy(wide, text, n);
    memset(wide + n, '\n', BUFFER_BYTES);
    wide[n + BUFFER_BYTES] = '\0';
    return wide;
}

/* `n_newlines` of them were before. */
static ssize_t write_lines(void *n_newlines, const char *p, size_t n)
{
    int *newlines = n_newlines;
    for (size_t i = 0; i < n; i++) {
        *newlines = p[i] == '\n' ? *newlines + 1 : 0;
        if (*newlines <= 1 + EMPTY_LINES)
            putchar(p[i]);
    }
    return fflush(stdout) == 0 ? (ssize_t)n : 0;
}

void help_begin(struct argp_state *state)
{
    static int n_newlines;
    FILE *out = fopencookie(&n_newlines, "w", (cookie_io_functions_t){.write = write_lines});
    if (out)
        state->out_stream = out;
}
