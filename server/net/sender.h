/* sender.h - a thread that sends the large answers of one connection, those to a server that
 * follows: the copy into the socket would take the time of the shard's thread, which pushes need.
 *
 * One batch at a time, whose memory stays until it is over. The thread writes while the socket
 * takes bytes, and else waits for it; the end of the socket ends both. Owner: the shard's thread.
 */
#ifndef EMBD_SENDER_H
#define EMBD_SENDER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* A smaller batch costs less than its way to the thread and back. */
#define SENDER_LEAST_BYTES (64u << 10)
#define SENDER_BUFS        64u

struct sender;

/* NULL: no memory, or no thread. `wake` is called from the thread when a batch is over. */
struct sender *sender_open(void (*wake)(void *arg), void *wake_arg);
/* Ends a batch that is under way, by the end of its socket: when this returns nothing of it is
 * touched any more. NULL is allowed. */
void sender_close(struct sender *sender);

/* Begins to send what is in bufs[0 .. n), n <= SENDER_BUFS; no other batch is under way. The socket
 * stays open. */
void sender_begin(struct sender *sender, int fd, const uv_buf_t *bufs, uint32_t n);
/* Whether it is over; *error_out: 0, or why not all of it was sent, as uv_strerror has it. */
bool sender_is_over(const struct sender *sender, int *error_out);
/* Bytes of the batch that the kernel has taken so far. */
uint64_t sender_sent(const struct sender *sender);

#endif
