/* credentials.h - who a client is to its servers, and which servers it trusts: token, certificate,
 * authorities. Read when the client is made, and again before a link connects where a file has
 * changed, so that a client outlives its token and certificates. Owner: the loop's thread, once the
 * client is made. */
#ifndef EMBD_IO_CREDENTIALS_H
#define EMBD_IO_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/errors.h"

struct tls_context;

struct credentials {
    char *token;             /* NULL: none */
    struct tls_context *tls; /* NULL: plain TCP */
    char *acts_for;          /* of a server: the token that it makes a snapshot for; NULL: none */
    bool plain_token;        /* the token may go to other hosts without TLS */
    char *token_file, *ca, *cert, *key; /* paths; NULL: none */
    uint64_t stamp; /* of these files, when they were last read or could not be */
};

/* From the options, else from the environment (EMBD_TOKEN_FILE, EMBD_TOKEN, EMBD_TLS_CA,
 * EMBD_TLS_CERT, EMBD_TLS_KEY). EMBD_INVALID names file or variable and what is wrong. */
int embd__credentials_open(const embd_options *options, struct credentials *out,
                           struct embd__error *e);
/* Reads the files again where one was written or replaced; what cannot be read leaves all as it
 * was. */
void embd__credentials_refresh(struct credentials *credentials);
/* Whether the token may be sent to the peer of this socket. EMBD_DENIED says why not. */
int embd__credentials_may_send(const struct credentials *credentials, int fd,
                               struct embd__error *e);

/* Copies of the credentials that a server needs to ask other servers for this client, read again if
 * they are in files. The caller frees them, and overwrites the token first. Any thread.
 * EMBD_INVALID, EMBD_NO_MEMORY. */
struct credentials_copy {
    char *token; /* NULL: none */
    void *ca;    /* [ca_bytes] PEM; NULL: none */
    size_t ca_bytes;
    bool believes_system;
};
int embd__credentials_copy(const struct credentials *credentials, struct credentials_copy *out,
                           struct embd__error *e);
void embd__credentials_copy_fini(struct credentials_copy *copy);

void embd__credentials_fini(struct credentials *credentials);

#endif
