/* identity.h - who a client is to its servers, and which servers it believes: token, certificate,
 * authorities. Read once, when the client connects. */
#ifndef EMBD_CLIENT_IDENTITY_H
#define EMBD_CLIENT_IDENTITY_H

#include "errors.h"
#include "tls.h"

struct identity {
    char *token;             /* NULL: none */
    struct tls_context *tls; /* NULL: plain TCP */
};

/* From the options, else from the environment (EMBD_TOKEN_FILE, EMBD_TOKEN, EMBD_TLS_CA,
 * EMBD_TLS_CERT, EMBD_TLS_KEY). EMBD_INVALID names file or variable and what is wrong. */
int embd__identity_open(const embd_options *options, struct identity *out, struct embd__error *e);
void embd__identity_fini(struct identity *identity);

#endif
