/* s3.c - see s3.h.
 *
 * The happy path: one request by libcurl, which signs it (AWS Signature Version 4) and hashes its
 * body. What can fail: the connection, or the service has too much to do (5xx, 429): then the same
 * request is sent again, later each time. Errors have the code of the service's refusal, and not
 * its body, which may name keys of accounts. */
#include "client/backup/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "embd/embd.h"

#define TRIES             6
#define PAUSE_NS          200000000ull /* after the first; twice as long after each */
#define CONNECT_S         10L
#define SILENT_S          60L
#define REFUSAL_BYTES_MAX 4096

/* ---- where, and who ---- */

static const char *setting(const char *given, const char *name, const char *other)
{
    const char *value = given != NULL ? given : getenv(name);
    return value != NULL && value[0] != '\0' ? value : getenv(other);
}

static int init_endpoint(struct s3 *s3, const struct backup_where *where, struct embd__error *e)
{
    const char *region = setting(where->region, "AWS_REGION", "AWS_DEFAULT_REGION");
    const char *endpoint = setting(where->endpoint, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    if (region == NULL || region[0] == '\0')
        region = "us-east-1";
    if (strlen(region) > 64 || strspn(region, all) != strlen(region))
        return embd__error_set(e, EMBD_INVALID, "the region '%.80s' is not of the form [a-z0-9-]+",
                               region);
    snprintf(s3->sigv4, sizeof s3->sigv4, "aws:amz:%s:s3", region);
    if (endpoint == NULL || endpoint[0] == '\0') {
        snprintf(s3->endpoint, sizeof s3->endpoint, "https://s3.%s.amazonaws.com", region);
        return EMBD_OK;
    }
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    bool is_url = strncmp(endpoint, "http://", 7) == 0 || strncmp(endpoint, "https://", 8) == 0;
    if (!is_url || n >= sizeof s3->endpoint || memchr(endpoint, '@', n) || memchr(endpoint, '?', n))
        return embd__error_set(e, EMBD_INVALID,
                               "the S3 endpoint is not of the form http[s]://HOST[:PORT]");
    snprintf(s3->endpoint, sizeof s3->endpoint, "%.*s", (int)n, endpoint);
    return EMBD_OK;
}

static int init_login(struct s3 *s3, struct embd__error *e)
{
    const char *key = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");
    const char *token = getenv("AWS_SESSION_TOKEN");
    if (key == NULL || key[0] == '\0' || secret == NULL || secret[0] == '\0')
        return embd__error_set(e, EMBD_INVALID,
                               "S3 needs credentials: set AWS_ACCESS_KEY_ID and "
                               "AWS_SECRET_ACCESS_KEY");
    int n = snprintf(s3->login, sizeof s3->login, "%s:%s", key, secret), n_token = 0;
    if (token != NULL && token[0] != '\0')
        n_token = snprintf(s3->token, sizeof s3->token, "x-amz-security-token: %s", token);
    if (n >= (int)sizeof s3->login || n_token >= (int)sizeof s3->token)
        return embd__error_set(e, EMBD_INVALID,
                               "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN is "
                               "too long");
    const char *authorities = getenv("AWS_CA_BUNDLE");
    s3->authorities = authorities != NULL && authorities[0] != '\0' ? authorities : NULL;
    return EMBD_OK;
}

int s3_init(struct s3 *s3, const char *bucket, const struct backup_where *where,
            struct embd__error *e)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    size_t n = strcspn(bucket, "/");
    *s3 = (struct s3){.authorities = NULL};
    if (n < 3 || n >= sizeof s3->bucket || strspn(bucket, all) != n)
        return embd__error_set(e, EMBD_INVALID,
                               "s3://%.100s: the bucket's name is not 3 to 63 of a-z, 0-9, '.' and "
                               "'-'",
                               bucket);
    snprintf(s3->bucket, sizeof s3->bucket, "%.*s", (int)n, bucket);
    return init_endpoint(s3, where, e) == EMBD_OK ? init_login(s3, e) : e->status;
}

/* ---- one request ---- */

struct attempt {
    CURL *curl;
    struct s3_request *request;
    long http;
    char refusal[REFUSAL_BYTES_MAX + 1]; /* body of an answer that refuses */
    size_t n_refusal;
    bool is_too_large;
    char why[CURL_ERROR_SIZE];
};

static size_t on_body(char *data, size_t one, size_t bytes, void *arg)
{
    struct attempt *a = arg;
    struct s3_request *r = a->request;
    (void)one;
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &a->http);
    if (a->http < 200 || a->http >= 300) {
        size_t room = REFUSAL_BYTES_MAX - a->n_refusal, n = bytes < room ? bytes : room;
        memcpy(a->refusal + a->n_refusal, data, n);
        a->n_refusal += n;
        return bytes;
    }
    a->is_too_large = bytes > r->room - r->got;
    if (a->is_too_large)
        return 0;
    memcpy(r->to + r->got, data, bytes);
    r->got += bytes;
    return bytes;
}

static struct curl_slist *headers_of(const struct s3 *s3, const struct s3_request *r)
{
    struct curl_slist *list = NULL;
    if (r->body != NULL)
        list = curl_slist_append(list, "Content-Type: application/octet-stream");
    if (s3->token[0] != '\0')
        list = curl_slist_append(list, s3->token);
    return list;
}

static void set_options(const struct s3 *s3, struct attempt *a, const char *url,
                        struct curl_slist *headers)
{
    CURL *c = a->curl;
    const struct s3_request *r = a->request;
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
    curl_easy_setopt(c, CURLOPT_AWS_SIGV4, s3->sigv4);
    curl_easy_setopt(c, CURLOPT_USERPWD, s3->login);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, SILENT_S);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, a->why);
    if (s3->authorities != NULL)
        curl_easy_setopt(c, CURLOPT_CAINFO, s3->authorities);
    if (r->body != NULL) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_bytes);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
    }
}

static CURLcode try_once(const struct s3 *s3, struct attempt *a)
{
    char url[2048];
    const struct s3_request *r = a->request;
    struct curl_slist *headers = headers_of(s3, r);
    snprintf(url, sizeof url, "%s/%s%s%s%s%s", s3->endpoint, s3->bucket, r->key[0] ? "/" : "",
             r->key, r->query ? "?" : "", r->query ? r->query : "");
    set_options(s3, a, url, headers);
    a->request->got = a->n_refusal = 0;
    a->http = 0;
    a->why[0] = '\0';
    CURLcode code = curl_easy_perform(a->curl);
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &a->http);
    a->refusal[a->n_refusal] = '\0';
    curl_slist_free_all(headers);
    return code;
}

/* ---- what came of it ---- */

/* <Code>NoSuchKey</Code>; "" where there is none. */
static void find_code(const struct attempt *a, char out[64])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const char *at = strstr(a->refusal, "<Code>");
    size_t n = at == NULL ? 0 : strspn(at + 6, letters);
    snprintf(out, 64, "%.*s", n < 63 ? (int)n : 63, at == NULL ? "" : at + 6);
}

static bool may_pass(const struct attempt *a, CURLcode code)
{
    if (code == CURLE_OK)
        return a->http >= 500 || a->http == 429 || a->http == 408;
    return !a->is_too_large && code != CURLE_PEER_FAILED_VERIFICATION &&
           code != CURLE_SSL_CACERT_BADFILE && code != CURLE_URL_MALFORMAT &&
           code != CURLE_UNSUPPORTED_PROTOCOL && code != CURLE_OUT_OF_MEMORY;
}

static int status_of(const struct attempt *a, CURLcode code)
{
    if (a->is_too_large)
        return EMBD_CORRUPT;
    if (code == CURLE_OUT_OF_MEMORY)
        return EMBD_NO_MEMORY;
    if (code != CURLE_OK)
        return EMBD_UNREACHABLE;
    return a->http == 401 || a->http == 403 ? EMBD_DENIED : EMBD_IO;
}

static int tell(const struct s3 *s3, const struct attempt *a, CURLcode code, int n_tries,
                struct embd__error *e)
{
    char what[64], tries[32] = "";
    const char *slash = a->request->key[0] ? "/" : "";
    find_code(a, what);
    if (n_tries > 1)
        snprintf(tries, sizeof tries, ", after %d tries", n_tries);
    if (a->is_too_large)
        return embd__error_set(e, EMBD_CORRUPT, "s3://%s%s%s: is larger than its backup says",
                               s3->bucket, slash, a->request->key);
    if (code != CURLE_OK)
        return embd__error_set(e, status_of(a, code), "s3://%s%s%s: %s: %.150s%s", s3->bucket,
                               slash, a->request->key, a->request->method,
                               a->why[0] ? a->why : curl_easy_strerror(code), tries);
    return embd__error_set(e, status_of(a, code), "s3://%s%s%s: %s: HTTP %ld%s%s%s%s", s3->bucket,
                           slash, a->request->key, a->request->method, a->http, what[0] ? " (" : "",
                           what, what[0] ? ")" : "", tries);
}

/* Twice as long each time; not all programs at the same moment. */
static void rest(int n_tries)
{
    uint64_t ns = PAUSE_NS << (n_tries - 1);
    ns += ns / 2 * (uint64_t)(rand() % 1000) / 1000;
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
}

int s3_do(const struct s3 *s3, CURL *curl, struct s3_request *request, struct embd__error *e)
{
    struct attempt a = {.curl = curl, .request = request};
    char what[64];
    int n_tries = 1;
    request->is_missing = false;
    CURLcode code = try_once(s3, &a);
    while (may_pass(&a, code) && n_tries < TRIES) {
        rest(n_tries++);
        code = try_once(s3, &a);
    }
    if (code == CURLE_OK && a.http >= 200 && a.http < 300)
        return EMBD_OK;
    find_code(&a, what);
    request->is_missing = code == CURLE_OK && a.http == 404 && strcmp(what, "NoSuchBucket") != 0;
    return request->is_missing ? EMBD_OK : tell(s3, &a, code, n_tries, e);
}
