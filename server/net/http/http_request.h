/* http_request.h - the head of an HTTP/1.x request, read from bytes that may not all be there yet.
 * Pure: bytes in, a verdict out. */
#ifndef EMBD_HTTP_REQUEST_H
#define EMBD_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

/* A browser's head has about 1 KiB, more with the cookies of other programs on 127.0.0.1. */
#define HTTP_HEAD_BYTES   (16u << 10)
#define HTTP_TARGET_BYTES 255u

struct http_request {
    bool is_head;          /* HEAD: as GET, but nothing follows the answer's head */
    bool has_strange_host; /* Host is a name other than localhost */
    char path[HTTP_TARGET_BYTES + 1];
    const char *query; /* the query after ? in `path`'s memory, "": none */
};

#define HTTP_MORE 0 /* the head is not complete */
#define HTTP_OK   200

/* Reads bytes[0..n). HTTP_MORE; HTTP_OK: *out is set; or the status of the refusal: 400 not an HTTP
 * request, or one with a body or a control character in a field; 405 neither GET nor HEAD; 414 the
 * target is longer than HTTP_TARGET_BYTES; 431 no end of the head within HTTP_HEAD_BYTES; 505
 * neither HTTP/1.0 nor 1.1. An error in the first bytes is returned at once. */
int http_request_read(const char *bytes, size_t n, struct http_request *out);

/* Whether `name` stands in the query, alone or with a value. */
bool http_request_has(const struct http_request *request, const char *name);

#endif
