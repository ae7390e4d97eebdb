/* session.c - one connection's TLS between two spans of memory.
 *
 * OpenSSL reads through our BIO from the span that it is given, and writes behind the bytes that
 * wait to be sent, so that the cipher copies ciphertext once each way. What can fail: the peer's
 * bytes (OpenSSL gives the reason), and memory for bytes to send. After either the session is
 * unusable. */
#include <stdlib.h>
#include <string.h>

#include <openssl/x509v3.h>

#include "proto/tls/context.h"

#define RECORD_PLAIN (16u << 10)
#define RECORD_EXTRA 64u /* header, type and tag, rounded up */

struct tls_session {
    SSL *ssl;
    struct tls_context *context;
    const uint8_t *in; /* fed: the caller's, or `kept` */
    size_t in_bytes;
    uint8_t *kept; /* malloc'd, or NULL */
    uint8_t *out;  /* [out_capacity]; bytes [out_first .. out_end) wait. TLS_OUT_BYTES stay */
    size_t out_first, out_end, out_capacity;
};

/* ---- where OpenSSL expects a socket ---- */

static int bio_read(BIO *bio, char *to, size_t n, size_t *n_out)
{
    struct tls_session *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *n_out = n < s->in_bytes ? n : s->in_bytes;
    if (*n_out == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(to, s->in, *n_out);
    s->in += *n_out;
    s->in_bytes -= *n_out;
    return 1;
}

/* What waits moves to the front once as much was sent before it: a byte sent costs one moved at
 * most, and the memory is twice what waits at most, however seldom nothing does. */
static void move_to_front(struct tls_session *s)
{
    size_t waiting = s->out_end - s->out_first;
    if (s->out_first == 0 || s->out_first < waiting)
        return;
    if (waiting > 0)
        memmove(s->out, s->out + s->out_first, waiting);
    s->out_first = 0;
    s->out_end = waiting;
}

static bool make_room(struct tls_session *s, size_t n)
{
    if (s->out_first == s->out_end || n > s->out_capacity - s->out_end)
        move_to_front(s);
    if (n <= s->out_capacity - s->out_end)
        return true;
    size_t capacity = s->out_end + n;
    if (capacity < TLS_OUT_BYTES)
        capacity = TLS_OUT_BYTES;
    uint8_t *out = realloc(s->out, capacity);
    if (out == NULL)
        return false;
    s->out = out;
    s->out_capacity = capacity;
    return true;
}

static int bio_write(BIO *bio, const char *from, size_t n, size_t *n_out)
{
    struct tls_session *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!make_room(s, n))
        return 0;
    memcpy(s->out + s->out_end, from, n);
    s->out_end += n;
    *n_out = n;
    return 1;
}

static long bio_control(BIO *bio, int command, long number, void *arg)
{
    (void)bio;
    (void)number;
    (void)arg;
    return command == BIO_CTRL_FLUSH;
}

BIO_METHOD *embd__tls_bio(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "embd");
    if (method == NULL)
        return NULL;
    BIO_meth_set_read_ex(method, bio_read);
    BIO_meth_set_write_ex(method, bio_write);
    BIO_meth_set_ctrl(method, bio_control);
    return method;
}

/* ---- life ---- */

static bool expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1)
        return true;
    ERR_clear_error(); /* a name, then */
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int embd__tls_open(struct tls_context *context, const char *host, struct tls_session **out,
                   struct embd__error *e)
{
    *out = NULL;
    ERR_clear_error();
    struct tls_session *s = calloc(1, sizeof *s);
    if (s == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a TLS session");
    s->context = embd__tls_share(context);
    s->ssl = SSL_new(context->ssl);
    BIO *bio = s->ssl != NULL ? BIO_new(context->bio) : NULL;
    if (bio != NULL) {
        BIO_set_data(bio, s);
        BIO_set_init(bio, 1);
        SSL_set_bio(s->ssl, bio, bio);
    }
    if (bio == NULL || (host != NULL && !expect_host(s->ssl, host))) {
        ERR_clear_error();
        embd__tls_close(s);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a TLS session");
    }
    if (context->is_server)
        SSL_set_accept_state(s->ssl);
    else
        SSL_set_connect_state(s->ssl);
    *out = s;
    return EMBD_OK;
}

void embd__tls_close(struct tls_session *s)
{
    if (s == NULL)
        return;
    SSL_free(s->ssl);
    embd__tls_drop(s->context);
    free(s->kept);
    free(s->out);
    free(s);
}

/* ---- input ---- */

void embd__tls_feed(struct tls_session *s, const void *bytes, size_t n)
{
    s->in = bytes;
    s->in_bytes = n;
}

int embd__tls_keep(struct tls_session *s, struct embd__error *e)
{
    uint8_t *kept = NULL;
    if (s->in_bytes > 0) {
        kept = malloc(s->in_bytes);
        if (kept == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for bytes received");
        memcpy(kept, s->in, s->in_bytes);
    }
    free(s->kept);
    s->in = s->kept = kept;
    return EMBD_OK;
}

size_t embd__tls_fed(const struct tls_session *s)
{
    return s->in_bytes;
}

/* ---- plaintext ---- */

/* Reports OpenSSL's reason, and for a certificate why it was not accepted. */
static int blame(struct tls_session *s, struct embd__error *e)
{
    unsigned long code = ERR_peek_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    long verdict = SSL_get_verify_result(s->ssl);
    bool is_verdict = code != 0 && ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED;
    bool is_plain = code != 0 && ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER;
    const char *more = is_verdict ? X509_verify_cert_error_string(verdict)
                       : is_plain ? "the peer does not seem to use TLS"
                                  : NULL;
    ERR_clear_error();
    return embd__error_set(e, EMBD_PROTOCOL, "TLS: %s%s%s", reason != NULL ? reason : "failed",
                           more != NULL ? ": " : "", more != NULL ? more : "");
}

long embd__tls_read(struct tls_session *s, void *to, size_t n, struct embd__error *e)
{
    size_t got;
    ERR_clear_error();
    int result = SSL_read_ex(s->ssl, to, n, &got);
    if (result == 1)
        return (long)got;
    switch (SSL_get_error(s->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_ENDED;
    default:
        return blame(s, e);
    }
}

int embd__tls_handshake(struct tls_session *s, struct embd__error *e)
{
    ERR_clear_error();
    int result = SSL_do_handshake(s->ssl);
    if (result == 1 || SSL_get_error(s->ssl, result) == SSL_ERROR_WANT_READ)
        return EMBD_OK;
    return blame(s, e);
}

bool embd__tls_is_up(const struct tls_session *s)
{
    return SSL_is_init_finished(s->ssl) == 1;
}

int embd__tls_write(struct tls_session *s, const void *bytes, size_t n, struct embd__error *e)
{
    size_t written;
    ERR_clear_error();
    make_room(s, n + (n / RECORD_PLAIN + 1) * RECORD_EXTRA); /* at once, not record by record */
    if (n == 0 || SSL_write_ex(s->ssl, bytes, n, &written) == 1)
        return EMBD_OK;
    return blame(s, e);
}

void embd__tls_end(struct tls_session *s)
{
    ERR_clear_error();
    if (embd__tls_is_up(s))
        SSL_shutdown(s->ssl);
    ERR_clear_error();
}

/* ---- output ---- */

const uint8_t *embd__tls_outgoing(const struct tls_session *s, size_t *n_out)
{
    *n_out = s->out_end - s->out_first;
    return s->out + s->out_first;
}

void embd__tls_sent(struct tls_session *s, size_t n)
{
    s->out_first += n;
    if (s->out_first < s->out_end || s->out_capacity <= TLS_OUT_BYTES)
        return;
    free(s->out);
    s->out = NULL;
    s->out_first = s->out_end = s->out_capacity = 0;
}

size_t embd__tls_out_bytes(const struct tls_session *s)
{
    return s->out_capacity;
}

uint8_t *embd__tls_detach(struct tls_session *s, size_t *first_out, size_t *n_out)
{
    uint8_t *out = s->out;
    *first_out = s->out_first;
    *n_out = s->out_end - s->out_first;
    if (*n_out == 0)
        return NULL;
    s->out = NULL;
    s->out_first = s->out_end = s->out_capacity = 0;
    return out;
}
