/* steps.h - what the files of a connection ask of each other: connection.c (its life, and
 * answers), digest.c (requests), sealed.c (the same through TLS), arrival.c (how it begins),
 * sweep.c (deadlines and the end). After each call that may close, look at the state. */
#ifndef EMBD_STEPS_H
#define EMBD_STEPS_H

#include "server/net/connection.h"

/* ---- connection.c ---- */

static inline uint64_t connection_now_ms(const struct hub *hub)
{
    return uv_now(hub->uv);
}

/* Does all there is to do after something has changed. */
void connection_go(struct connection *c);
/* To be gone through when the shard's other connections had their turn. */
void connection_mark(struct connection *c);
/* Takes no more requests; ends when what is in flight is sent. */
void connection_finish(struct connection *c);
void connection_close(struct connection *c);
/* The same with a line in the log. */
void connection_drop(struct connection *c, const char *why);

/* n bytes of the batch are on their way. */
void connection_took(struct connection *c, uint64_t n);
/* Grows with each byte that the kernel takes of what libuv has. */
uint64_t connection_out_bytes(const struct connection *c);

/* There is no memory to read on: sweep.c tries again. */
void connection_starve(struct connection *c);
/* Whether further bytes may come, and asks libuv for them. */
bool connection_wants(const struct connection *c);
void connection_set_reading(struct connection *c);
/* Where the next plaintext goes; that n bytes of it are there. */
void connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
void connection_take(struct connection *c, const uv_buf_t *buf, size_t n);
void connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);
void connection_count(struct connection *c, size_t n);
void connection_on_end(struct connection *c);

/* An exchange is over. */
void connection_forget(struct connection *c, struct exchange *x, bool was_in_flight);
/* For request.on_answer. */
void connection_on_answer(struct request *request);
/* Sends what may be sent now. */
void connection_flush(struct connection *c);

/* ---- digest.c ---- */

/* Whether a further request has to wait. */
bool digest_is_full(const struct connection *c);
/* Cuts bytes into requests. Returns how many were used: fewer than n when a request has to wait. */
size_t digest_bytes(struct connection *c, const uint8_t *p, size_t n);
/* Keeps bytes that no request may be made of now; goes on with them; drops them. */
void digest_keep(struct connection *c, const uint8_t *p, size_t n);
void digest_kept(struct connection *c);
void digest_drop_kept(struct connection *c);
/* Has it go on in the next turn of the loop. */
void digest_next_turn(struct connection *c);
/* A connection that starved, or let others have their turn, goes on. */
void digest_retry(struct connection *c);

/* ---- sealed.c ---- */

/* Sends the ciphertext there is; `later`: after others had their turn. */
void sealed_push(struct connection *c, bool later);
/* Encrypts of the batch what may go in one turn. */
void sealed_write(struct connection *c, bool later);
/* Makes plaintext of what was received, as far as the connection takes it. */
void sealed_read(struct connection *c);
void sealed_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
void sealed_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

#endif
