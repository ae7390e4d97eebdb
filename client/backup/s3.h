/* s3.h - requests to an S3 service, signed by libcurl, and repeated where that may help. */
#ifndef EMBD_BACKUP_S3_H
#define EMBD_BACKUP_S3_H

#include <curl/curl.h>

#include "client/backup/backup.h"
#include "proto/errors.h"

/* The state that all requests to one bucket share. No error shows its text: it has the credentials.
 * */
struct s3 {
    char endpoint[512]; /* http://HOST:PORT, without '/' at its end */
    char bucket[64];
    char login[512];         /* KEY:SECRET */
    char sigv4[96];          /* aws:amz:REGION:s3 */
    char token[4200];        /* a header; "": none */
    const char *authorities; /* a file; NULL: the system's */
};

/* `bucket`: BUCKET or BUCKET/...; takes the first part. EMBD_INVALID names the setting
 * that is missing or wrong. */
int s3_init(struct s3 *s3, const char *bucket, const struct backup_where *where,
            struct embd__error *e);

struct s3_request {
    const char *method;
    const char *key;   /* "": the bucket itself */
    const char *query; /* in the order of its names, encoded; NULL: none */
    const void *body;  /* [body_bytes]; NULL: none */
    size_t body_bytes;
    uint8_t *to; /* [room], for the answer */
    size_t room;
    /* set by s3_do */
    size_t got;
    bool is_missing; /* there is no such object: no error */
};

/* EMBD_OK, or e->status: EMBD_DENIED, EMBD_UNREACHABLE, EMBD_CORRUPT (the answer has more than
 * `room`), EMBD_IO; the text has bucket, key and HTTP status. `curl` is used again for the next. */
int s3_do(const struct s3 *s3, CURL *curl, struct s3_request *request, struct embd__error *e);

#endif
