/* context.h - the inside of a context, for session.c. */
#ifndef EMBD_TLS_CONTEXT_H
#define EMBD_TLS_CONTEXT_H

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>

#include "proto/tls/tls.h"

struct tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *bio; /* how its sessions read and write */
    bool is_server;
    atomic_uint n_owners; /* sessions too */
};

/* session.c: what stands where OpenSSL expects a socket. NULL: out of memory. */
BIO_METHOD *embd__tls_bio(void);

#endif
