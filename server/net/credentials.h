/* credentials.h - what decides who gets in: the certificate and the list of tokens. They are read
 * from files at start, when the files change, and on SIGHUP. */
#ifndef EMBD_CREDENTIALS_H
#define EMBD_CREDENTIALS_H

#include "proto/errors.h"

struct access;
struct tls_context;

/* Paths; "": not configured. */
struct credential_files {
    char tls_cert[1024], tls_key[1024], tls_client_ca[1024], tokens[1024];
    char peer_ca[1024]; /* or "system" */
};

static inline bool credential_files_have_tls(const struct credential_files *files)
{
    return files->tls_cert[0] != '\0';
}

static inline bool credential_files_have_tokens(const struct credential_files *files)
{
    return files->tokens[0] != '\0';
}

/* Differs when one of the files was written or replaced. */
uint64_t credential_files_stamp(const struct credential_files *files);

/* The authorities that this server believes when it asks others, as they were read: a file that
 * cannot be read later changes nothing. */
struct peer_ca {
    bool is_system; /* those of the system, and no bytes */
    uint64_t bytes;
    char pem[]; /* [bytes] */
};

/* Shares; NULL where the files name none. */
struct credentials {
    struct tls_context *tls;
    struct access *access;
    struct peer_ca *peer_ca; /* malloc'd; not in shares: NULL */
};

/* All or nothing. EMBD_INVALID and others, naming the file and what is wrong with it. */
int credentials_open(const struct credential_files *files, struct credentials *out,
                     struct embd__error *e);
/* When the certificate expires: seconds since 1970; 0: no certificate. */
int64_t credentials_expire(const struct credentials *credentials);
struct credentials credentials_share(const struct credentials *credentials);
void credentials_drop(struct credentials *credentials);

/* Shares in separate memory, to be handed to another thread; NULL: none. */
struct credentials *credentials_new(const struct credentials *credentials);
void credentials_free(struct credentials *credentials); /* NULL is allowed */

#endif
