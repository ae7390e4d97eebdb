/* receive.c - one recvmsg reads the rest of a bin into its destination and the following bytes into
 * a small buffer, so that a large answer is copied once, by the kernel, and a small one takes one
 * call. A bin with a window is read in pieces, into the same place: each piece is processed while
 * it is in the cache. */
#include "client/io/receive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int embd__receive_init(struct receiver *r, struct embd__error *e)
{
    r->head = malloc(LIMIT_ANSWER_HEADER_BYTES);
    r->more = malloc((LIMIT_ANSWER_BINS - LIMIT_BINS) * sizeof *r->more);
    if (r->head == NULL || r->more == NULL) {
        embd__receive_fini(r);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a receive buffer");
    }
    embd__receive_reset(r);
    return EMBD_OK;
}

void embd__receive_fini(struct receiver *r)
{
    free(r->head);
    free(r->more);
}

void embd__receive_reset(struct receiver *r)
{
    embd__frame_init(&r->frame, r->head, LIMIT_ANSWER_HEADER_BYTES, LIMIT_FRAME_BYTES);
    r->frame.more = r->more;
    r->to = NULL;
    r->left = 0;
    r->window = 0;
    r->bin_ended = false;
    r->patience = 1;
    r->has_heard = false;
}

/* Shown to the reader in place of a destination that is not aligned as it requires: the owner of
 * such memory knows where the bytes are, the reader only learns that they came. */
static uint64_t elsewhere;

static int begin_bin(struct receiver *r, struct embd__error *e)
{
    struct frame_bin *bin = embd__frame_bin(&r->frame, r->frame.n_bins - 1);
    if (embd__frame_over(&r->frame))
        return embd__error_set(e, EMBD_PROTOCOL, "an answer of %llu bytes is over the limit of %u",
                               (unsigned long long)r->frame.frame_bytes, LIMIT_FRAME_BYTES);
    r->window = r->filled = 0;
    int status = r->on_bin(r->owner, &r->to, &r->window, e);
    if (status != EMBD_OK)
        return status;
    bin->data = (uintptr_t)r->to % sizeof elsewhere == 0 ? r->to : (uint8_t *)&elsewhere;
    r->left = r->frame.bin_bytes;
    r->bin_ended = r->left == 0;
    return EMBD_OK;
}

/* Bytes that there is room for where the next ones go. */
static uint32_t room(const struct receiver *r)
{
    uint32_t rest = r->window - r->filled;
    return r->window == 0 || r->left < rest ? r->left : rest;
}

/* So many have come; to `to`, if that is anywhere. */
static void landed(struct receiver *r, size_t n)
{
    r->left -= (uint32_t)n;
    r->bin_ended = r->left == 0;
    if (r->to == NULL)
        return;
    r->to += n;
    r->filled += (uint32_t)n;
    if (r->window == 0 || (r->filled < r->window && !r->bin_ended))
        return;
    r->to -= r->filled;
    r->on_window(r->owner, r->filled);
    r->filled = 0;
}

static size_t take_payload(struct receiver *r, const uint8_t *p, size_t n)
{
    size_t taken = n < room(r) ? n : room(r);
    if (r->to != NULL)
        memcpy(r->to, p, taken);
    landed(r, taken);
    return taken;
}

static int scan(struct receiver *r, const uint8_t *p, size_t n, size_t *used_out,
                struct embd__error *e)
{
    r->bin_ended = false;
    int event = embd__frame_scan(&r->frame, p, n, used_out, e);
    if (event == FRAME_BIN)
        return begin_bin(r, e);
    if (event == FRAME_DONE) {
        int status = r->on_frame(r->owner, e);
        embd__frame_reset(&r->frame);
        return status;
    }
    if (event == FRAME_MORE)
        return EMBD_OK;
    e->status =
        EMBD_PROTOCOL; /* the scanner's words suit, its status is the one a server would answer */
    return EMBD_PROTOCOL;
}

static int eat(struct receiver *r, const uint8_t *p, size_t n, struct embd__error *e)
{
    while (n > 0 || r->bin_ended) {
        size_t used = 0;
        if (r->left > 0) {
            used = take_payload(r, p, n);
        } else {
            int status = scan(r, p, n, &used, e);
            if (status != EMBD_OK)
                return status;
        }
        p += used;
        n -= used;
    }
    return EMBD_OK;
}

/* Bytes that came directly to their destination. */
static size_t account_direct(struct receiver *r, size_t got)
{
    if (r->left == 0 || r->to == NULL)
        return 0;
    size_t placed = got < room(r) ? got : room(r);
    landed(r, placed);
    return placed;
}

/* In powers of two, so that it seldom changes. */
static uint32_t patience_for(uint32_t left)
{
    uint32_t bytes = RECEIVE_PATIENCE_MOST;
    while (bytes > left / 8)
        bytes /= 2;
    return bytes < RECEIVE_PATIENCE_LEAST ? 1 : bytes;
}

/* Tells the kernel how many bytes are worth waking up for. A failure costs wakeups only. */
static void set_patience(struct receiver *r, int fd)
{
    uint32_t patience = patience_for(r->left);
    int bytes = (int)patience;
    if (patience == r->patience)
        return;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    r->patience = patience;
}

/* The connection ended (error 0) or was lost. A server that uses TLS closes the connection of a
 * client that does not; a server that shuts down, or is gone, resets it. */
static int ended(const struct receiver *r, const struct channel *ch, int error,
                 struct embd__error *e)
{
    const char *what = error == 0 ? "server closed the connection"
                       : error == ECONNRESET
                           ? "server reset the connection; it may be shutting down"
                           : strerror(error);
    return embd__error_set(e, EMBD_CLOSED, "%s%s", what,
                           r->has_heard || ch->tls != NULL ? ""
                                                           : "; if it uses TLS, set EMBD_TLS_CA");
}

/* Reads until the socket is empty. */
static int read_all(struct receiver *r, struct channel *ch, struct embd__error *e)
{
    for (;;) {
        bool direct = r->left > 0 && r->to != NULL, has_more = direct && room(r) < r->left;
        struct iovec iov[2] = {{r->to, room(r)}, {r->in, sizeof r->in}};
        size_t asked = (direct ? room(r) : 0) + (has_more ? 0 : sizeof r->in);
        ssize_t got =
            embd__channel_receive(ch, direct ? iov : iov + 1, direct && !has_more ? 2 : 1);
        if (got == -EAGAIN)
            return EMBD_OK;
        if (got == -EPROTO && ch->error.status != EMBD_OK)
            return embd__error_set(e, EMBD_PROTOCOL, "%s", ch->error.text);
        if (got <= 0)
            return ended(r, ch, (int)-got, e);
        r->has_heard = true;
        embd__count(r->bytes, (uint64_t)got);
        size_t placed = account_direct(r, (size_t)got);
        int status = eat(r, r->in, (size_t)got - placed, e);
        if (status != EMBD_OK || (size_t)got < asked)
            return status;
    }
}

int embd__receive(struct receiver *r, struct channel *ch, struct embd__error *e)
{
    int status = read_all(r, ch, e);
    if (status == EMBD_OK && ch->tls == NULL) /* what a session holds, the kernel cannot count */
        set_patience(r, ch->fd);
    return status;
}
