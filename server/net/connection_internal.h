/* connection_internal.h - what the files of a connection ask of each other: connection.c (its life,
 * sending, receiving), request_parser.c (requests), tls_connection.c (both through TLS), shared.c
 * (memory that its peer shares), ring.c (both through such memory), accept.c (how it begins),
 * sweep.c (deadlines and the end). After each call that may close, look at the state. */
#ifndef EMBD_CONNECTION_INTERNAL_H
#define EMBD_CONNECTION_INTERNAL_H

#include "server/net/connection.h"
#include "server/net/unauthenticated.h"

/* ---- connection.c ---- */

static inline uint64_t connection_now_ms(const struct shard_io *io)
{
    return uv_now(io->uv);
}

static inline struct connection *connection_of_session(struct shard_session *session)
{
    return (struct connection *)(void *)((char *)session - offsetof(struct connection, session));
}

/* Takes requests. */
static inline bool connection_is_open(const struct connection *c)
{
    return c->state <= CONNECTION_STARVED;
}

/* May send answers. */
static inline bool connection_may_send(const struct connection *c)
{
    return c->state <= CONNECTION_PEER_ENDED;
}

/* Enters a state; the same one again is allowed. */
void connection_move(struct connection *c, enum connection_state to);

/* Does everything that is possible after something has changed. */
void connection_go(struct connection *c);
/* connection_go, once the shard's other connections had their turn. */
static inline void connection_mark(struct connection *c)
{
    if (c->is_dirty)
        return;
    c->is_dirty = true;
    TAILQ_INSERT_TAIL(&c->io->dirty, c, in_dirty);
}

/* A connection that was starved or yielding goes on. */
void connection_retry(struct connection *c);
/* For shard_session.trunk: with the answer that is due, its socket becomes a trunk's. */
int connection_leave(struct shard_session *session, struct embd__error *e);
/* Takes no more requests; ends when what is in flight is sent. */
void connection_finish(struct connection *c);
void connection_close(struct connection *c);
/* The same with a line in the log. */
void connection_drop(struct connection *c, const char *why);

/* n bytes of the batch are on their way. */
void connection_took(struct connection *c, uint64_t n);
/* Wakes a peer that sleeps beside its ring. False: it is gone. */
bool connection_doorbell(struct connection *c);
/* Grows with each byte that the kernel takes of what libuv has. */
uint64_t connection_out_bytes(const struct connection *c);

/* There is no memory to read on: sweep.c tries again. */
void connection_starve(struct connection *c);
/* Asks libuv for further bytes, or to stop, as the state needs. */
void connection_set_reading(struct connection *c);
/* Whether an open connection takes further bytes. */
bool connection_wants(const struct connection *c);
/* The buffer of the next plaintext; and its first n bytes are filled. */
void connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
void connection_take(struct connection *c, const uv_buf_t *buf, size_t n);
void connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);
static inline void connection_count(struct connection *c, size_t n)
{
    c->bytes_in += n;
    c->io->bytes_in += n;
    c->io->has_read = true;
    embd__spin_found(&c->io->spin);
    c->busy_ms = connection_now_ms(c->io);
}

void connection_on_end(struct connection *c);

/* An exchange is over. */
void connection_forget(struct connection *c, struct exchange *x, bool was_in_flight);
/* For request.on_answer. */
void connection_on_answer(struct request *request);
/* For request.on_more. */
void connection_on_more(struct request *request);
/* Sends what may be sent now. */
void connection_flush(struct connection *c);

/* ---- request_parser.c ---- */

enum { HELD_ANSWER_BYTES = 1 << 20 }; /* of heads of answers that a peer has not taken */

/* Whether another request must wait. One frame may always come, so that every allowed one can. Only
 * one at a time may come while frame memory is short, and of a peer that is not authenticated. */
static inline bool request_parser_is_full(const struct connection *c)
{
    if (c->n_in_flight > 0 && (c->is_unauthenticated || quota_is_tight(c->io->pool.quota)))
        return true;
    return c->n_in_flight >= LIMIT_REQUESTS_IN_FLIGHT || c->answer_bytes >= HELD_ANSWER_BYTES ||
           c->bin_bytes >= c->io->limits.frame_bytes;
}

/* Memory that the next bytes of the stream belong into, or NULL: they go through the shared buffer.
 */
static inline uint8_t *request_parser_direct(const struct connection *c, size_t *bytes_out)
{
    const struct request_parser *parser = &c->parser;
    if (parser->bin == NULL || parser->bin_left == 0)
        return NULL;
    *bytes_out = parser->bin_left < PARSER_DIRECT_BYTES ? parser->bin_left : PARSER_DIRECT_BYTES;
    return parser->bin;
}

/* n bytes were received there, or into the shared buffer; what may not become requests now is kept.
 */
void request_parser_landed(struct connection *c, size_t n);
void request_parser_take(struct connection *c, const uint8_t *p, size_t n);
/* Goes on with what is kept, or with a frame that waited for memory. */
void request_parser_go_on(struct connection *c);
/* Forgets the arriving request and what is kept. */
void request_parser_drop(struct connection *c);

/* ---- tls_connection.c ---- */

/* Sends the ciphertext there is; `later`: after others had their turn. */
void tls_connection_push(struct connection *c, bool later);
/* Encrypts of the batch what may go in one turn. */
void tls_connection_write(struct connection *c, bool later);
/* Decrypts what was received, as far as the connection takes it. */
void tls_connection_read(struct connection *c);
void tls_connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
void tls_connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

/* ---- shared.c: memory that a peer on this host shares ---- */

void shared_begin(struct connection *c);
/* Something is to be read, and perhaps brings a descriptor. */
void shared_look(struct connection *c);
/* Gives it back. No request may be left. */
void shared_end(struct connection *c);
/* Maps memory of `bytes`, which `fields` of the request `method` ask for and whose descriptor came;
 * NULL: `e` says why. */
uint8_t *shared_take(struct connection *c, const char *method, const char *fields, uint64_t bytes,
                     struct embd__error *e);
void shared_give(struct connection *c, uint8_t *base, uint64_t bytes);

/* A ring in such memory. For shard_session.ring. */
int shared_agree_ring(struct shard_session *session, uint64_t requests, uint64_t answers,
                      struct embd__error *e);
void shared_close_ring(struct connection *c);

/* ---- ring.c: the bytes of the connection in such memory ---- */

/* It may have something to do: ring_look looks at it. */
static inline void ring_watch(struct connection *c)
{
    if (c->ring.is_watched || c->ring.state == RING_NONE)
        return;
    embd__ring_wake(&c->ring.ring);
    c->ring.is_watched = true;
    c->io->n_ringing++;
    TAILQ_INSERT_TAIL(&c->io->ringing, c, in_ringing);
}

static inline void ring_unwatch(struct connection *c)
{
    if (!c->ring.is_watched)
        return;
    c->ring.is_watched = false;
    c->io->n_ringing--;
    TAILQ_REMOVE(&c->io->ringing, c, in_ringing);
}

/* ---- unauthenticated.c, for the few that are ---- */

static inline void connection_look_at_peer(struct connection *c)
{
    if (c->is_unauthenticated)
        unauthenticated_look_at(c);
}

static inline size_t connection_read_room(const struct connection *c, size_t bytes)
{
    return c->is_unauthenticated ? unauthenticated_room(c, bytes) : bytes;
}

#endif
