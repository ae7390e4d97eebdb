/* context.c - from files to a context.
 *
 * What can fail: a file that does not exist, is not PEM, or does not match the others; the sentence
 * names it and gives OpenSSL's reason. A key with a passphrase is refused: there is no terminal to
 * ask. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tls/context.h"
#include "proto/tls/secret.h"

/* Limit of a peer's chain of certificates; ten certificates take less. */
#define CHAIN_BYTES (32 << 10)

static int refuse(const char *path, const char *what, struct embd__error *e)
{
    unsigned long first = ERR_peek_error(), code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    if (ERR_SYSTEM_ERROR(first))
        reason = strerror(ERR_GET_REASON(first));
    ERR_clear_error();
    return embd__error_set(e, EMBD_INVALID, "%.200s: %s%s%s", path, what,
                           reason != NULL ? ": " : "", reason != NULL ? reason : "");
}

static int no_passphrase(char *out, int bytes, int rwflag, void *arg)
{
    (void)out;
    (void)bytes;
    (void)rwflag;
    (void)arg;
    return 0;
}

/* Own certificate and key. */
static int take_identity(SSL_CTX *ssl, const struct tls_files *files, struct embd__error *e)
{
    if (files->cert == NULL && files->key == NULL)
        return EMBD_OK;
    if (files->cert == NULL || files->key == NULL)
        return embd__error_set(e, EMBD_INVALID, "%.200s: a %s is missing beside it",
                               files->cert != NULL ? files->cert : files->key,
                               files->cert != NULL ? "key" : "certificate");
    if (SSL_CTX_use_certificate_chain_file(ssl, files->cert) != 1)
        return refuse(files->cert, "cannot read a certificate", e);
    if (embd__secret_check(files->key, "key", e) != EMBD_OK)
        return e->status;
    if (SSL_CTX_use_PrivateKey_file(ssl, files->key, SSL_FILETYPE_PEM) != 1)
        return refuse(files->key, "cannot read a key, or it does not belong to the certificate", e);
    return EMBD_OK;
}

static int trust(SSL_CTX *ssl, const char *ca, bool is_server, struct embd__error *e)
{
    if (!is_server && strcmp(ca, "system") == 0)
        return SSL_CTX_set_default_verify_paths(ssl) == 1
                   ? EMBD_OK
                   : refuse(ca, "the system's certificates cannot be read", e);
    if (SSL_CTX_load_verify_file(ssl, ca) != 1)
        return refuse(ca, "cannot read a CA certificate", e);
    if (is_server)
        SSL_CTX_set_client_CA_list(ssl, SSL_load_client_CA_file(ca));
    return EMBD_OK;
}

/* PEM: one certificate after the other. */
static int trust_bytes(SSL_CTX *ssl, const void *pem, size_t bytes, struct embd__error *e)
{
    BIO *bio = bytes <= INT_MAX ? BIO_new_mem_buf(pem, (int)bytes) : NULL;
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    uint32_t n = 0;
    for (X509 *x; bio != NULL && (x = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL; n++) {
        X509_STORE_add_cert(store, x);
        X509_free(x);
    }
    BIO_free(bio);
    if (n == 0)
        return refuse("the request's ca", "cannot read a CA certificate", e);
    ERR_clear_error();
    return EMBD_OK;
}

static int set_up(SSL_CTX *ssl, const struct tls_files *files, bool is_server,
                  struct embd__error *e)
{
    int verify = is_server && files->ca == NULL ? SSL_VERIFY_NONE
                                                : SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(ssl, verify, NULL);
    SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);
    /* Buffers go back while a connection rests; writes come from memory that may move. */
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ssl, CHAIN_BYTES);
    if (SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                      "TLS_CHACHA20_POLY1305_SHA256") != 1 ||
        SSL_CTX_set_num_tickets(ssl, 0) != 1)
        return refuse("TLS", "this OpenSSL has no TLS 1.3", e);
    int status = take_identity(ssl, files, e);
    if (status == EMBD_OK && files->ca != NULL)
        status = trust(ssl, files->ca, is_server, e);
    else if (status == EMBD_OK && files->ca_pem != NULL)
        status = trust_bytes(ssl, files->ca_pem, files->ca_pem_bytes, e);
    return status;
}

static int make(const struct tls_files *files, bool is_server, struct tls_context **out,
                struct embd__error *e)
{
    *out = NULL;
    ERR_clear_error();
    struct tls_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for TLS");
    atomic_init(&context->n_owners, 1);
    context->is_server = is_server;
    context->bio = embd__tls_bio();
    context->ssl = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    int status = context->bio != NULL && context->ssl != NULL
                     ? set_up(context->ssl, files, is_server, e)
                     : embd__error_set(e, EMBD_NO_MEMORY, "no memory for TLS");
    if (status != EMBD_OK) {
        embd__tls_drop(context);
        return status;
    }
    *out = context;
    return EMBD_OK;
}

int embd__tls_server(const struct tls_files *files, struct tls_context **out, struct embd__error *e)
{
    if (files->cert == NULL || files->key == NULL)
        return embd__error_set(e, EMBD_INVALID, "TLS needs a certificate and its key");
    return make(files, true, out, e);
}

int embd__tls_client(const struct tls_files *files, struct tls_context **out, struct embd__error *e)
{
    if (files->ca == NULL && files->ca_pem == NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "TLS needs an authority (CA) to verify the server with");
    return make(files, false, out, e);
}

static int64_t expires(const X509 *certificate)
{
    int days = 0, seconds = 0;
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    bool is_read = certificate != NULL && epoch != NULL &&
                   ASN1_TIME_diff(&days, &seconds, epoch, X509_get0_notAfter(certificate)) == 1;
    ASN1_TIME_free(epoch);
    return is_read ? days * INT64_C(86400) + seconds : 0;
}

int64_t embd__tls_expires(const struct tls_context *context)
{
    STACK_OF(X509) *chain = NULL;
    int64_t least = expires(SSL_CTX_get0_certificate(context->ssl));
    SSL_CTX_get0_chain_certs(context->ssl, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t one = expires(sk_X509_value(chain, i));
        least = one < least ? one : least;
    }
    return least;
}

struct tls_context *embd__tls_share(struct tls_context *context)
{
    atomic_fetch_add(&context->n_owners, 1);
    return context;
}

void embd__tls_drop(struct tls_context *context)
{
    if (context == NULL || atomic_fetch_sub(&context->n_owners, 1) != 1)
        return;
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->bio);
    free(context);
}
