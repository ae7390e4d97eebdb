/* fuzz_http.c - any bytes as the head of an HTTP request, whole and growing: the verdict is the
 * same, and what was taken is within its bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/net/http/http_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A copy of its own for each length, so that reading one byte too far is seen. */
static int read_copy(const uint8_t *data, size_t n, struct http_request *out)
{
    char *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, data, n);
    int status = http_request_read(copy, n, out);
    free(copy);
    return status;
}

static void check(const struct http_request *r)
{
    size_t path = strnlen(r->path, sizeof r->path), query = (size_t)(r->query - r->path);
    if (path == sizeof r->path || r->path[0] != '/' || query > HTTP_TARGET_BYTES)
        abort();
    for (const char *p = r->path; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~' || *p == '?')
            abort();
    http_request_has(r, "verbose");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct http_request whole, part;
    int status = read_copy(data, n, &whole), first = HTTP_MORE;
    if (status == HTTP_OK)
        check(&whole);
    size_t step = n / 16 + 1;
    for (size_t i = 0; i < n && first == HTTP_MORE; i += step)
        first = read_copy(data, i, &part);
    if (first != HTTP_MORE && first != status)
        abort();
    return 0;
}
