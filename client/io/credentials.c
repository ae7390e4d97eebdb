/* credentials.c - the files and variables that say who a client is, read and read again. */
#include "client/io/credentials.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/tls/secret.h"
#include "proto/tls/tls.h"

#define TOKEN_MAX 256u /* as a server takes it */

static const char *option_or(const char *option, const char *variable)
{
    const char *value = option != NULL ? option : getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int take_token(const char *text, size_t n, const char *from, struct credentials *out,
                      struct embd__error *e)
{
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return embd__error_set(e, EMBD_INVALID, "%.200s: byte %zu is not allowed in a token",
                                   from, i);
    if (n == 0 || n > TOKEN_MAX)
        return embd__error_set(e, EMBD_INVALID,
                               "%.200s: a token has 1 to %u bytes, this one has %zu", from,
                               TOKEN_MAX, n);
    out->token = strndup(text, n);
    return out->token != NULL ? EMBD_OK
                              : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a token");
}

static int read_token(const char *path, struct credentials *out, struct embd__error *e)
{
    char text[TOKEN_MAX + 4];
    size_t n;
    int status = embd__secret_read(path, "token", text, sizeof text, &n, e);
    return status == EMBD_OK ? take_token(text, n, path, out, e) : status;
}

/* ---- from the options and the environment ---- */

static int copy(char **to, const char *text, struct embd__error *e)
{
    *to = text != NULL ? strdup(text) : NULL;
    return text == NULL || *to != NULL
               ? EMBD_OK
               : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a client");
}

static int find_token(const embd_options *options, struct credentials *out, struct embd__error *e)
{
    const char *path = options->token_file != NULL || options->token == NULL
                           ? option_or(options->token_file, "EMBD_TOKEN_FILE")
                           : NULL;
    const char *token = option_or(options->token, "EMBD_TOKEN"),
               *plain = getenv("EMBD_PLAIN_TOKEN");
    out->plain_token = options->plain_token || (plain != NULL && strcmp(plain, "yes") == 0);
    if (path == NULL && token != NULL)
        return take_token(token, strlen(token), "the token", out, e);
    return copy(&out->token_file, path, e);
}

static int find(const embd_options *options, struct credentials *out, struct embd__error *e)
{
    if (find_token(options, out, e) != EMBD_OK ||
        copy(&out->ca, option_or(options->tls_ca, "EMBD_TLS_CA"), e) != EMBD_OK ||
        copy(&out->cert, option_or(options->tls_cert, "EMBD_TLS_CERT"), e) != EMBD_OK ||
        copy(&out->key, option_or(options->tls_key, "EMBD_TLS_KEY"), e) != EMBD_OK)
        return e->status;
    if (out->ca == NULL && (out->cert != NULL || out->key != NULL))
        return embd__error_set(e, EMBD_INVALID,
                               "a TLS certificate is given without tls_ca; set both");
    return EMBD_OK;
}

/* ---- from the files ---- */

static uint64_t stamp_of(const struct credentials *credentials)
{
    const char *const paths[] = {credentials->token_file, credentials->ca, credentials->cert,
                                 credentials->key};
    uint64_t stamp = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct stat found;
        if (paths[i] == NULL || stat(paths[i], &found) != 0)
            found = (struct stat){0};
        const uint64_t facts[] = {found.st_dev, found.st_ino, (uint64_t)found.st_size,
                                  (uint64_t)found.st_mtim.tv_sec, (uint64_t)found.st_mtim.tv_nsec};
        stamp = XXH3_64bits_withSeed(facts, sizeof facts, stamp);
    }
    return stamp;
}

/* token, where there is a file, and tls of *out. */
static int read_files(const struct credentials *credentials, struct credentials *out,
                      struct embd__error *e)
{
    const struct tls_files files = {
        .ca = credentials->ca, .cert = credentials->cert, .key = credentials->key};
    if (credentials->token_file != NULL && read_token(credentials->token_file, out, e) != EMBD_OK)
        return e->status;
    return files.ca == NULL ? EMBD_OK : embd__tls_client(&files, &out->tls, e);
}

static void drop_secrets(struct credentials *credentials)
{
    if (credentials->token != NULL)
        explicit_bzero(credentials->token, strlen(credentials->token));
    free(credentials->token);
    embd__tls_drop(credentials->tls);
    credentials->token = NULL;
    credentials->tls = NULL;
}

int embd__credentials_open(const embd_options *options, struct credentials *out,
                           struct embd__error *e)
{
    *out = (struct credentials){0};
    int status = find(options, out, e);
    if (status == EMBD_OK) {
        out->stamp = stamp_of(out);
        status = read_files(out, out, e);
    }
    if (status != EMBD_OK)
        embd__credentials_fini(out);
    return status;
}

void embd__credentials_refresh(struct credentials *credentials)
{
    struct credentials next = {0};
    struct embd__error ignored = {.status = EMBD_OK};
    bool has_files = credentials->token_file != NULL || credentials->ca != NULL;
    uint64_t stamp = has_files ? stamp_of(credentials) : 0;
    if (!has_files || stamp == credentials->stamp)
        return;
    credentials->stamp = stamp;
    if (read_files(credentials, &next, &ignored) != EMBD_OK) {
        drop_secrets(&next);
        return;
    }
    if (credentials->token_file != NULL) {
        char *before = credentials->token;
        credentials->token = next.token;
        next.token = before;
    }
    struct tls_context *before = credentials->tls;
    credentials->tls = next.tls;
    next.tls = before;
    drop_secrets(&next);
}

void embd__credentials_fini(struct credentials *credentials)
{
    drop_secrets(credentials);
    free(credentials->acts_for);
    free(credentials->token_file);
    free(credentials->ca);
    free(credentials->cert);
    free(credentials->key);
    *credentials = (struct credentials){0};
}

/* ---- handed over ---- */

#define CA_MAX (1u << 20) /* as a server takes it */

/* Anything but EMBD_OK: `out` has nothing. */
static int read_ca(const char *path, struct credentials_copy *out, struct embd__error *e)
{
    struct stat found;
    FILE *file = fopen(path, "re");
    bool is_read = file != NULL && fstat(fileno(file), &found) == 0 && found.st_size > 0 &&
                   found.st_size <= CA_MAX && (out->ca = malloc((size_t)found.st_size)) != NULL;
    if (is_read)
        out->ca_bytes = fread(out->ca, 1, (size_t)found.st_size, file);
    if (file != NULL)
        fclose(file);
    if (is_read)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "%.200s: cannot be read, or has more than %u bytes",
                           path, CA_MAX);
}

int embd__credentials_copy(const struct credentials *credentials, struct credentials_copy *out,
                           struct embd__error *e)
{
    struct credentials own = {.token = NULL};
    *out = (struct credentials_copy){.token = NULL};
    if (credentials->token_file != NULL)
        read_token(credentials->token_file, &own, e);
    else
        copy(&own.token, credentials->token, e); /* which does not change then */
    out->token = own.token;
    out->believes_system = credentials->ca != NULL && strcmp(credentials->ca, "system") == 0;
    if (e->status == EMBD_OK && credentials->ca != NULL && !out->believes_system)
        read_ca(credentials->ca, out, e);
    if (e->status != EMBD_OK)
        embd__credentials_copy_fini(out);
    return e->status;
}

void embd__credentials_copy_fini(struct credentials_copy *proof)
{
    if (proof->token != NULL)
        explicit_bzero(proof->token, strlen(proof->token));
    free(proof->token);
    free(proof->ca);
    *proof = (struct credentials_copy){.token = NULL};
}

/* ---- which servers may get the token ---- */

static bool is_this_host(const struct sockaddr_storage *peer)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)peer;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)peer;
    if (peer->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    if (peer->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
                v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    return peer->ss_family == AF_UNIX;
}

int embd__credentials_may_send(const struct credentials *credentials, int fd, struct embd__error *e)
{
    struct sockaddr_storage peer = {0};
    socklen_t bytes = sizeof peer;
    if (credentials->token == NULL || credentials->tls != NULL || credentials->plain_token)
        return EMBD_OK;
    if (getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 && is_this_host(&peer))
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_DENIED,
        "the token is not sent: the server is on another host and TLS is off; set EMBD_TLS_CA, or "
        "EMBD_PLAIN_TOKEN=yes to send it in the clear");
}
