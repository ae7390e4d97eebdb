/* sender.c - see sender.h. The lock hands a batch to the thread; that it is over comes back by an
 * atomic, behind which the shard reads the rest. */
#include "server/net/sender.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/assert.h"
#include "server/files/thread.h"

#define STEP_BYTES (1u << 20) /* of one call: a sender that ends waits for one at most */

/* Owner: the shard's thread; of a batch that is not over, the sender's. */
struct sender {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool has_batch, stops; /* guarded */
    void (*wake)(void *arg);
    void *wake_arg;
    int fd;
    uv_buf_t bufs[SENDER_BUFS]; /* bufs[first .. n) are still to be sent */
    uint32_t first, n;
    int error;
    atomic_uint_fast64_t sent;
    atomic_bool is_over;
};

/* ---- the thread ---- */

static void wait_for_room(int fd)
{
    struct pollfd socket = {.fd = fd, .events = POLLOUT};
    poll(&socket, 1, -1); /* a socket that has ended is told of by the next write */
}

/* Of the first buffer. 0, or the error. */
static int send_step(struct sender *s)
{
    uv_buf_t *buf = &s->bufs[s->first];
    size_t n = buf->len < STEP_BYTES ? buf->len : STEP_BYTES;
    ssize_t sent = send(s->fd, buf->base, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        wait_for_room(s->fd);
    else if (sent < 0 && errno != EINTR)
        return uv_translate_sys_error(errno);
    if (sent <= 0)
        return 0;
    atomic_fetch_add_explicit(&s->sent, (uint64_t)sent, memory_order_relaxed);
    buf->base += sent;
    buf->len -= (size_t)sent;
    return 0;
}

static void send_batch(struct sender *s)
{
    while (s->first < s->n && s->error == 0)
        if (s->bufs[s->first].len == 0)
            s->first++;
        else
            s->error = send_step(s);
    atomic_store_explicit(&s->is_over, true, memory_order_release);
    s->wake(s->wake_arg);
}

static void *run(void *arg)
{
    struct sender *s = arg;
    thread_name("embd-sender");
    pthread_mutex_lock(&s->lock);
    while (!s->stops) {
        if (!s->has_batch) {
            pthread_cond_wait(&s->news, &s->lock);
            continue;
        }
        s->has_batch = false;
        pthread_mutex_unlock(&s->lock);
        send_batch(s);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the shard ---- */

static void destroy(struct sender *s)
{
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct sender *sender_open(void (*wake)(void *arg), void *wake_arg)
{
    struct sender *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->news, NULL);
    s->wake = wake;
    s->wake_arg = wake_arg;
    atomic_init(&s->is_over, true);
    if (thread_start(&s->thread, run, s) == 0)
        return s;
    destroy(s);
    return NULL;
}

void sender_close(struct sender *s)
{
    int error;
    if (s == NULL)
        return;
    if (!sender_is_over(s, &error))
        shutdown(s->fd, SHUT_RDWR);
    pthread_mutex_lock(&s->lock);
    s->stops = true;
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    destroy(s);
}

void sender_begin(struct sender *s, int fd, const uv_buf_t *bufs, uint32_t n)
{
    EMBD_ASSERT(n <= SENDER_BUFS);
    memcpy(s->bufs, bufs, n * sizeof *bufs);
    s->fd = fd;
    s->first = 0;
    s->n = n;
    s->error = 0;
    atomic_store_explicit(&s->sent, 0, memory_order_relaxed);
    atomic_store_explicit(&s->is_over, false, memory_order_relaxed);
    pthread_mutex_lock(&s->lock);
    s->has_batch = true;
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
}

bool sender_is_over(const struct sender *s, int *error_out)
{
    bool is_over = atomic_load_explicit(&s->is_over, memory_order_acquire);
    *error_out = is_over ? s->error : 0;
    return is_over;
}

uint64_t sender_sent(const struct sender *s)
{
    return atomic_load_explicit(&s->sent, memory_order_relaxed);
}
