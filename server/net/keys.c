/* keys.c - see keys.h. */
#include "server/net/keys.h"

#include <stdlib.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *path_or_null(const char *path)
{
    return path[0] != '\0' ? path : NULL;
}

uint64_t key_files_stamp(const struct key_files *files)
{
    const char *const paths[] = {files->tls_cert, files->tls_key, files->tls_client_ca,
                                 files->tokens};
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

int keys_open(const struct key_files *files, struct keys *out, struct embd__error *e)
{
    int status = EMBD_OK;
    *out = (struct keys){0};
    if (key_files_have_tls(files)) {
        const struct tls_files tls = {.cert = files->tls_cert,
                                      .key = path_or_null(files->tls_key),
                                      .ca = path_or_null(files->tls_client_ca)};
        status = embd__tls_server(&tls, &out->tls, e);
    }
    if (status == EMBD_OK && key_files_have_tokens(files))
        status = access_open(files->tokens, &out->access, e);
    if (status != EMBD_OK)
        keys_drop(out);
    return status;
}

int64_t keys_expire(const struct keys *keys)
{
    return keys->tls != NULL ? embd__tls_expires(keys->tls) : 0;
}

struct keys keys_share(const struct keys *keys)
{
    return (struct keys){
        .tls = keys->tls != NULL ? embd__tls_share(keys->tls) : NULL,
        .access = keys->access != NULL ? access_share(keys->access) : NULL,
    };
}

void keys_drop(struct keys *keys)
{
    embd__tls_drop(keys->tls);
    access_drop(keys->access);
    *keys = (struct keys){0};
}

struct keys *keys_new(const struct keys *keys)
{
    struct keys *copy = malloc(sizeof *copy);
    if (copy != NULL)
        *copy = keys_share(keys);
    return copy;
}

void keys_free(struct keys *keys)
{
    if (keys != NULL)
        keys_drop(keys);
    free(keys);
}
