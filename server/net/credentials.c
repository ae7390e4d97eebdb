/* credentials.c - see credentials.h. */
#include "server/net/credentials.h"
#include "proto/tls/tls.h"
#include "server/access/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *path_or_null(const char *path)
{
    return path[0] != '\0' ? path : NULL;
}

uint64_t credential_files_stamp(const struct credential_files *files)
{
    const char *const paths[] = {files->tls_cert, files->tls_key, files->tls_client_ca,
                                 files->tokens, files->peer_ca};
    uint64_t stamp = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct stat found = {0};
        if (paths[i][0] != '\0' && stat(paths[i], &found) != 0)
            found = (struct stat){0};
        const uint64_t facts[] = {found.st_dev,
                                  found.st_ino,
                                  (uint64_t)found.st_size,
                                  (uint64_t)found.st_mtim.tv_sec,
                                  (uint64_t)found.st_mtim.tv_nsec,
                                  found.st_mode};
        stamp = XXH3_64bits_withSeed(facts, sizeof facts, stamp);
    }
    return stamp;
}

/* As much as a peer may be sent. */
#define PEER_CA_MAX (1u << 20)

static int read_bytes(const char *path, struct peer_ca **out, struct embd__error *e)
{
    struct peer_ca *ca = NULL;
    struct stat found;
    FILE *file = fopen(path, "re");
    bool is_read = file != NULL && fstat(fileno(file), &found) == 0 && found.st_size > 0 &&
                   found.st_size <= PEER_CA_MAX &&
                   (ca = calloc(1, sizeof *ca + (size_t)found.st_size)) != NULL;
    if (is_read)
        ca->bytes = fread(ca->pem, 1, (size_t)found.st_size, file);
    if (file != NULL)
        fclose(file);
    *out = ca;
    if (is_read)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "%.200s: cannot be read, or has more than %u bytes",
                           path, PEER_CA_MAX);
}

static int read_system(struct peer_ca **out, struct embd__error *e)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for peer_ca");
    (*out)->is_system = true;
    return EMBD_OK;
}

/* The context says whether these are authorities. */
static int read_peer_ca(const char *path, struct peer_ca **out, struct embd__error *e)
{
    const struct tls_files files = {.ca = path};
    struct tls_context *tried = NULL;
    if (embd__tls_client(&files, &tried, e) != EMBD_OK)
        return e->status;
    embd__tls_drop(tried);
    return strcmp(path, "system") == 0 ? read_system(out, e) : read_bytes(path, out, e);
}

int credentials_open(const struct credential_files *files, struct credentials *out,
                     struct embd__error *e)
{
    int status = EMBD_OK;
    *out = (struct credentials){0};
    if (credential_files_have_tls(files)) {
        const struct tls_files tls = {.cert = files->tls_cert,
                                      .key = path_or_null(files->tls_key),
                                      .ca = path_or_null(files->tls_client_ca)};
        status = embd__tls_server(&tls, &out->tls, e);
    }
    if (status == EMBD_OK && credential_files_have_tokens(files))
        status = access_open(files->tokens, &out->access, e);
    if (status == EMBD_OK && files->peer_ca[0] != '\0')
        status = read_peer_ca(files->peer_ca, &out->peer_ca, e);
    if (status != EMBD_OK)
        credentials_drop(out);
    return status;
}

int64_t credentials_expire(const struct credentials *credentials)
{
    return credentials->tls != NULL ? embd__tls_expires(credentials->tls) : 0;
}

struct credentials credentials_share(const struct credentials *credentials)
{
    return (struct credentials){
        .tls = credentials->tls != NULL ? embd__tls_share(credentials->tls) : NULL,
        .access = credentials->access != NULL ? access_share(credentials->access) : NULL,
    };
}

void credentials_drop(struct credentials *credentials)
{
    embd__tls_drop(credentials->tls);
    access_drop(credentials->access);
    free(credentials->peer_ca);
    *credentials = (struct credentials){0};
}

struct credentials *credentials_new(const struct credentials *credentials)
{
    struct credentials *copy = malloc(sizeof *copy);
    if (copy != NULL)
        *copy = credentials_share(credentials);
    return copy;
}

void credentials_free(struct credentials *credentials)
{
    if (credentials != NULL)
        credentials_drop(credentials);
    free(credentials);
}
