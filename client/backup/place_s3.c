/* place_s3.c - backups in an S3 bucket. A piece of a file is an object: it is put, or got, by one
 * request, which may be repeated. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/backup/place.h"
#include "client/backup/s3.h"
#include "embd/embd.h"

#define KEY_BYTES       1024u /* the most that S3 takes */
#define PREFIX_BYTES    700u
#define LIST_BYTES_MAX  (8u << 20) /* of one answer: 1000 keys */
#define TOKEN_BYTES_MAX 1024u

struct place_s3 {
    struct place base;
    struct s3 s3;
    CURL *curl;
    char prefix[PREFIX_BYTES]; /* "", or with '/' at its end */
};

/* NAME, or NAME/000003 of several pieces. */
static void key_of(const struct place_s3 *p, const char *name, uint32_t piece, bool is_only,
                   char out[KEY_BYTES])
{
    if (is_only)
        snprintf(out, KEY_BYTES, "%s%s", p->prefix, name);
    else
        snprintf(out, KEY_BYTES, "%s" PLACE_PIECE_NAME, p->prefix, name, piece);
}

static int put(struct place *place, const char *name, uint32_t piece, bool is_last,
               const void *data, size_t bytes, struct embd__error *e)
{
    const struct place_s3 *p = (const struct place_s3 *)place;
    char key[KEY_BYTES];
    uint8_t answer[4096];
    struct s3_request r = {.method = "PUT",
                           .key = key,
                           .body = data,
                           .body_bytes = bytes,
                           .to = answer,
                           .room = sizeof answer};
    key_of(p, name, piece, piece == 0 && is_last, key);
    if (s3_do(&p->s3, p->curl, &r, e) == EMBD_OK && r.is_missing)
        embd__error_set(e, EMBD_IO, "s3://%s/%s: PUT: HTTP 404", p->s3.bucket, key);
    return e->status;
}

static int get(struct place *place, const char *name, uint32_t piece, uint64_t file_bytes, void *to,
               struct embd__error *e)
{
    const struct place_s3 *p = (const struct place_s3 *)place;
    char key[KEY_BYTES];
    size_t bytes = place_piece_bytes(file_bytes, piece);
    struct s3_request r = {.method = "GET", .key = key, .to = to, .room = bytes};
    key_of(p, name, piece, place_pieces(file_bytes) == 1, key);
    if (s3_do(&p->s3, p->curl, &r, e) != EMBD_OK)
        return e->status;
    if (r.is_missing)
        return embd__error_set(e, EMBD_CORRUPT, "s3://%s/%s: does not exist", p->s3.bucket, key);
    if (r.got != bytes)
        return embd__error_set(e, EMBD_CORRUPT, "s3://%s/%s: has %zu bytes, the backup has %zu",
                               p->s3.bucket, key, r.got, bytes);
    return EMBD_OK;
}

static void *read_whole(struct place *place, const char *name, size_t *bytes_out,
                        struct embd__error *e)
{
    const struct place_s3 *p = (const struct place_s3 *)place;
    char key[KEY_BYTES];
    uint8_t *data = malloc(PLACE_PIECE_BYTES + 1);
    struct s3_request r = {.method = "GET", .key = key, .to = data, .room = PLACE_PIECE_BYTES};
    key_of(p, name, 0, true, key);
    if (data == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for s3://%s/%s", p->s3.bucket, key);
    else
        s3_do(&p->s3, p->curl, &r, e);
    if (e->status != EMBD_OK || r.is_missing) {
        free(data);
        return NULL;
    }
    data[r.got] = 0;
    *bytes_out = r.got;
    void *smaller = realloc(data, r.got + 1);
    return smaller != NULL ? smaller : data;
}

static int remove_file(struct place *place, const char *name, struct embd__error *e)
{
    const struct place_s3 *p = (const struct place_s3 *)place;
    char key[KEY_BYTES];
    uint8_t answer[4096];
    struct s3_request r = {.method = "DELETE", .key = key, .to = answer, .room = sizeof answer};
    key_of(p, name, 0, true, key);
    return s3_do(&p->s3, p->curl, &r, e);
}

/* ---- listing ---- */

struct page {
    char *text;                  /* [LIST_BYTES_MAX + 1] */
    char token[TOKEN_BYTES_MAX]; /* of the next page; "": this is the last */
};

/* The text between the first TAG from `at` on and what ends it, cut to fit; NULL: there is none. */
static const char *element(const char *at, const char *tag, char *out, size_t out_bytes)
{
    char open[64];
    snprintf(open, sizeof open, "<%s>", tag);
    const char *from = strstr(at, open);
    const char *end = from == NULL ? NULL : strchr(from + strlen(open), '<');
    if (end == NULL)
        return NULL;
    from += strlen(open);
    size_t n = (size_t)(end - from) < out_bytes ? (size_t)(end - from) : 0;
    memcpy(out, from, n);
    out[n] = '\0';
    return end;
}

/* Other objects than ours may lie there. */
static int visit_keys(const struct place_s3 *p, const char *text, place_visit *visit, void *arg)
{
    char key[KEY_BYTES + 1];
    size_t n = strlen(p->prefix);
    int stop = 0;
    for (const char *at = text; !stop && (at = element(at, "Key", key, sizeof key)) != NULL;)
        if (strncmp(key, p->prefix, n) == 0 && place_is_name(key + n) && strchr(key + n, '/'))
            stop = visit(arg, key + n);
    return stop;
}

static void append_encoded(char *out, size_t out_bytes, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    size_t at = strlen(out);
    for (; *text != '\0' && at + 4 < out_bytes; text++)
        at += (size_t)snprintf(out + at, out_bytes - at, strchr(plain, *text) ? "%c" : "%%%02X",
                               (unsigned char)*text);
}

/* The signature wants the names in order. */
static int list_page(struct place_s3 *p, struct page *page, struct embd__error *e)
{
    char query[2048] = "", truncated[8] = "", last[TOKEN_BYTES_MAX];
    strcpy(last, page->token);
    if (page->token[0] != '\0') {
        strcpy(query, "continuation-token=");
        append_encoded(query, sizeof query, page->token);
        strcat(query, "&");
    }
    strcat(query, "list-type=2");
    if (p->prefix[0] != '\0')
        strcat(query, "&prefix=");
    append_encoded(query, sizeof query, p->prefix);
    struct s3_request r = {.method = "GET",
                           .key = "",
                           .query = query,
                           .to = (uint8_t *)page->text,
                           .room = LIST_BYTES_MAX};
    if (s3_do(&p->s3, p->curl, &r, e) != EMBD_OK)
        return e->status;
    page->text[r.got] = '\0';
    page->token[0] = '\0';
    if (r.is_missing || strstr(page->text, "<ListBucketResult") == NULL ||
        strstr(page->text, "</ListBucketResult>") == NULL) /* HTTP/1.0 does not say its size */
        return embd__error_set(e, EMBD_IO, "s3://%s: the answer is not a whole list of its objects",
                               p->s3.bucket);
    element(page->text, "IsTruncated", truncated, sizeof truncated);
    bool has_more = strcmp(truncated, "true") == 0;
    if (has_more &&
        (element(page->text, "NextContinuationToken", page->token, sizeof page->token) == NULL ||
         page->token[0] == '\0' || strcmp(page->token, last) == 0))
        return embd__error_set(e, EMBD_IO,
                               "s3://%s: a list of its objects does not say how it "
                               "goes on",
                               p->s3.bucket);
    return EMBD_OK;
}

static int list_files(struct place *place, place_visit *visit, void *arg, struct embd__error *e)
{
    struct place_s3 *p = (struct place_s3 *)place;
    struct page page = {.text = malloc(LIST_BYTES_MAX + 1)};
    int stop = 0;
    if (page.text == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a list of objects");
    do {
        if (list_page(p, &page, e) == EMBD_OK)
            stop = visit_keys(p, page.text, visit, arg);
    } while (!stop && e->status == EMBD_OK && page.token[0] != '\0');
    free(page.text);
    return e->status ? e->status : stop;
}

/* ---- opening ---- */

static void close_place(struct place *place)
{
    struct place_s3 *p = (struct place_s3 *)place;
    if (p->curl != NULL)
        curl_easy_cleanup(p->curl);
    explicit_bzero(&p->s3, sizeof p->s3);
    free(p);
}

static const struct place_ops ops = {put, get, read_whole, list_files, remove_file, close_place};

static int init_prefix(struct place_s3 *p, const char *path, struct embd__error *e)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
    const char *prefix = strchr(path, '/');
    size_t n = prefix == NULL ? 0 : strlen(++prefix);
    if (n == 0)
        return EMBD_OK;
    if (n + 2 > sizeof p->prefix || strspn(prefix, all) != n || prefix[0] == '/' ||
        strstr(prefix, "//") != NULL || strstr(prefix, "..") != NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "s3://%.150s: the prefix is not at most %u of A-Z, a-z, 0-9, '_', "
                               "'-', '.' and single slashes",
                               path, PREFIX_BYTES - 2);
    snprintf(p->prefix, sizeof p->prefix, "%s/", prefix);
    return EMBD_OK;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int place_open_s3(const char *path, const struct backup_where *where, struct place **out,
                  struct embd__error *e)
{
    struct place_s3 *p = calloc(1, sizeof *p);
    if (p == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for s3://%.200s", path);
    p->base.ops = &ops;
    if (s3_init(&p->s3, path, where, e) == EMBD_OK && init_prefix(p, path, e) == EMBD_OK) {
        pthread_once(&once, init_curl);
        p->curl = curl_easy_init();
        if (p->curl == NULL)
            embd__error_set(e, EMBD_NO_MEMORY, "no memory for s3://%.200s", path);
    }
    if (e->status != EMBD_OK) {
        close_place(&p->base);
        return e->status;
    }
    *out = &p->base;
    return EMBD_OK;
}
