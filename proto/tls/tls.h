/* tls.h - TLS 1.3 over memory: bytes of a peer in, plaintext out, and the other way round.
 *
 * Both ends of the wire use this and own their sockets themselves: nothing here waits, reads or
 * writes one. A session's memory beyond OpenSSL's own state is bounded: bytes that it was given and
 * has not decrypted (the caller's memory, or kept), and bytes that it has encrypted and that are
 * not sent yet.
 *
 * TLS 1.3 only, no tickets, no early data, no compression. */
#ifndef EMBD_TLS_H
#define EMBD_TLS_H

#include "proto/errors.h"

/* ---- context: certificate, key and authorities; read from files once, never changed ---- */

struct tls_context; /* counted; any thread */

/* Paths, PEM. NULL: none. */
struct tls_files {
    const char *cert; /* own certificate, then its intermediates */
    const char *key;
    const char *ca;     /* server: peers must show a certificate signed by one of these.
                       client: the server's must be; "system": those that the system trusts */
    const void *ca_pem; /* client, instead of `ca`: the same from memory, [ca_pem_bytes] */
    size_t ca_pem_bytes;
};

/* EMBD_INVALID names the file and what is wrong with it, EMBD_NO_MEMORY. A key that others can read
 * or its group can write is refused. */
int embd__tls_server(const struct tls_files *files, struct tls_context **out,
                     struct embd__error *e);
int embd__tls_client(const struct tls_files *files, struct tls_context **out,
                     struct embd__error *e);
struct tls_context *embd__tls_share(struct tls_context *context);
void embd__tls_drop(struct tls_context *context); /* NULL is allowed */
/* When its own certificate, or the first to expire of those sent with it, expires: seconds since
 * 1970; 0: it has none. */
int64_t embd__tls_expires(const struct tls_context *context);

/* ---- session: one connection. Owner: one thread ---- */

struct tls_session;

/* Upper bound of a session's memory, besides what it was fed and keeps, and what waits to be
 * sent beyond TLS_OUT_BYTES: while it shakes hands, where the peer decides how long its messages
 * are, and afterwards. Measured with OpenSSL 3.0 and 3.5 (tests/unit/test_tls_memory.c), rounded
 * up. */
#define TLS_HANDSHAKE_BYTES (320u << 10)
#define TLS_SESSION_BYTES   (104u << 10)
#define TLS_OUT_BYTES       (20u << 10)
/* The longest record, with its header. */
#define TLS_RECORD_BYTES ((16u << 10) + 256 + 5)

/* `host`: name or address that the server's certificate must match; NULL: this is the server's
 * side. EMBD_NO_MEMORY. */
int embd__tls_open(struct tls_context *context, const char *host, struct tls_session **out,
                   struct embd__error *e);
void embd__tls_close(struct tls_session *s); /* NULL is allowed */

/* Bytes of the peer, used by the calls of embd__tls_read that follow. They stay the caller's, until
 * embd__tls_keep, or until embd__tls_read has returned 0. Nothing may be left of those before. */
void embd__tls_feed(struct tls_session *s, const void *bytes, size_t n);
/* Takes a copy of what is left of them. EMBD_NO_MEMORY. */
int embd__tls_keep(struct tls_session *s, struct embd__error *e);
/* Bytes that were fed and not decrypted. */
size_t embd__tls_fed(const struct tls_session *s);

/* The next plaintext, and the handshake before it. > 0: bytes in `to`; 0: feed more first;
 * TLS_ENDED: the peer has ended the stream; EMBD_PROTOCOL: not TLS, or not accepted; `e` says why.
 * Each may leave bytes to send. */
#define TLS_ENDED (-1000)
long embd__tls_read(struct tls_session *s, void *to, size_t n, struct embd__error *e);

/* The handshake alone, as far as it goes with what was fed: a client's first step. */
int embd__tls_handshake(struct tls_session *s, struct embd__error *e);
/* The handshake is over: plaintext can be written. */
bool embd__tls_is_up(const struct tls_session *s);

/* Encrypts bytes behind those that wait to be sent. */
int embd__tls_write(struct tls_session *s, const void *bytes, size_t n, struct embd__error *e);
/* Says that no more comes. */
void embd__tls_end(struct tls_session *s);

/* Ciphertext that waits to be sent, valid until the next call that encrypts.
 * embd__tls_sent: its first n bytes were sent. */
const uint8_t *embd__tls_outgoing(const struct tls_session *s, size_t *n_out);
void embd__tls_sent(struct tls_session *s, size_t n);
/* Memory allocated for these bytes: about twice as many as ever waited, at most. */
size_t embd__tls_out_bytes(const struct tls_session *s);
/* The same bytes handed to the caller: from *first_out on, in memory that the caller frees. NULL:
 * nothing waits. */
uint8_t *embd__tls_detach(struct tls_session *s, size_t *first_out, size_t *n_out);

#endif
