/* keys.h - what decides who gets in: the certificate and the list of tokens, read from files at
 * start, again when the files change, and on SIGHUP. */
#ifndef EMBD_KEYS_H
#define EMBD_KEYS_H

#include "server/access/access.h"
#include "proto/tls/tls.h"

/* Paths; "": not given. */
struct key_files {
    char tls_cert[1024], tls_key[1024], tls_client_ca[1024], tokens[1024];
};

static inline bool key_files_have_tls(const struct key_files *files)
{
    return files->tls_cert[0] != '\0';
}

static inline bool key_files_have_tokens(const struct key_files *files)
{
    return files->tokens[0] != '\0';
}

/* Differs when one of the files was written or replaced. */
uint64_t key_files_stamp(const struct key_files *files);

/* Shares; NULL where the files name none. */
struct keys {
    struct tls_context *tls;
    struct access *access;
};

/* All or nothing. EMBD_INVALID and others, naming the file and what is wrong with it. */
int keys_open(const struct key_files *files, struct keys *out, struct embd__error *e);
/* When the certificate expires: seconds since 1970; 0: there is none. */
int64_t keys_expire(const struct keys *keys);
struct keys keys_share(const struct keys *keys);
void keys_drop(struct keys *keys);

/* Shares in memory of their own, to be handed to another thread; NULL: there is none. */
struct keys *keys_new(const struct keys *keys);
void keys_free(struct keys *keys); /* NULL is allowed */

#endif
