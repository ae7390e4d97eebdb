/* receive.c - one recvmsg reads the rest of a bin into its destination and the following bytes into
 * a buffer, so that a large answer is copied once, by the kernel, and a small one takes one call.
 *
 * A bin of units, such as rows that belong to many places, is read into the buffer, and its owner
 * puts each unit where it belongs while the buffer is in the cache. That costs less than a readv
 * with an iovec for each: the kernel takes some 50 ns for an iovec, a copy out of the cache some
 * 10 ns for 256 bytes. The unit that has not come as a whole waits in the owner's memory. */
#include "client/io/receive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/assert.h"

uint8_t *embd__receive_buffer_new(void)
{
    return aligned_alloc(RECEIVE_ALIGNMENT, RECEIVE_BUFFER_BYTES);
}

int embd__receive_init(struct receiver *r, struct embd__error *e)
{
    EMBD_ASSERT(r->in != NULL);
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
    embd__frame_init(&r->frame, r->first, LIMIT_ANSWER_HEADER_BYTES, LIMIT_FRAME_BYTES);
    r->frame.more = r->more;
    r->left = 0;
    embd__receive_drop(r);
    r->bin_ended = false;
    r->patience = 1;
    r->has_heard = r->has_ended = false;
    r->shared = NULL;
    r->frame.takes_shared = false;
}

void embd__receive_drop(struct receiver *r)
{
    r->to = NULL;
    r->unit = r->kept = 0;
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
    embd__receive_drop(r);
    int status = r->on_bin(r->owner, &r->to, &r->unit, e);
    if (status != EMBD_OK)
        return status;
    bool is_there = r->unit == 0 && (uintptr_t)r->to % sizeof elsewhere == 0;
    bin->data = is_there ? r->to : (uint8_t *)&elsewhere;
    r->left = r->frame.bin_bytes;
    EMBD_ASSERT(r->unit <= RECEIVE_UNIT_BYTES && (r->unit == 0 || r->left % r->unit == 0));
    r->bin_ended = r->left == 0;
    return EMBD_OK;
}

static void landed(struct receiver *r, size_t n)
{
    r->left -= (uint32_t)n;
    r->bin_ended = r->left == 0;
}

/* p[0 .. n) of the buffer: `kept` bytes that were there before, and new ones. Returns how many are
 * the bin's. */
static size_t take_units(struct receiver *r, uint8_t *p, size_t n)
{
    size_t fresh = n - r->kept < r->left ? n - r->kept : r->left, taken = r->kept + fresh;
    size_t whole = taken / r->unit * r->unit, shift = (uintptr_t)p % RECEIVE_ALIGNMENT;
    if (shift > 0)
        p = memmove(p - shift, p, taken);
    landed(r, fresh);
    if (whole > 0)
        r->on_units(r->owner, p, (uint32_t)whole);
    r->kept = (uint32_t)(taken - whole);
    memcpy(r->to, p + whole, r->kept);
    return taken;
}

static size_t take_payload(struct receiver *r, uint8_t *p, size_t n)
{
    if (r->unit > 0)
        return take_units(r, p, n);
    size_t taken = n < r->left ? n : r->left;
    if (r->to != NULL)
        r->to = (uint8_t *)memcpy(r->to, p, taken) + taken;
    landed(r, taken);
    return taken;
}

/* A bin that lies in shared memory is there at once. */
static int take_shared(struct receiver *r, struct embd__error *e)
{
    uint64_t at = r->frame.shared_at, bytes = r->frame.bin_bytes, most = r->shared->bytes;
    if (bytes > most || at > most - bytes)
        return embd__error_set(e, EMBD_PROTOCOL,
                               "an answer's bin of %llu bytes lies at %llu in shared memory, which "
                               "has %llu",
                               (unsigned long long)bytes, (unsigned long long)at,
                               (unsigned long long)most);
    if (begin_bin(r, e) != EMBD_OK)
        return e->status;
    const uint8_t *from = embd__shared_view(r->shared, at);
    if (r->unit > 0 && bytes > 0)
        r->on_units(r->owner, from, (uint32_t)bytes);
    else if (r->to != NULL && r->to != from)
        memcpy(r->to, from, bytes);
    embd__shared_viewed(r->shared);
    landed(r, bytes);
    r->bin_ended = true;
    return EMBD_OK;
}

/* How many of n bytes may go into the head, if they are all its own. */
static size_t head_room(struct receiver *r, size_t n)
{
    size_t room = RECEIVE_HEAD_BYTES - RECEIVE_HEAD_SPARE;
    if (r->frame.head != r->first)
        return n;
    if (r->frame.head_bytes < room)
        return n < room - r->frame.head_bytes ? n : room - r->frame.head_bytes;
    r->frame.head = memcpy(r->head, r->first, r->frame.head_bytes);
    return n;
}

static int scan(struct receiver *r, const uint8_t *p, size_t n, size_t *used_out,
                struct embd__error *e)
{
    r->bin_ended = false;
    n = head_room(r, n);
    int event = embd__frame_scan(&r->frame, p, n, used_out, e);
    if (event == FRAME_BIN)
        return begin_bin(r, e);
    if (event == FRAME_SHARED)
        return take_shared(r, e);
    if (event == FRAME_DONE) {
        int status = r->on_frame(r->owner, e);
        embd__frame_reset(&r->frame);
        r->frame.head = r->first;
        return status;
    }
    if (event == FRAME_MORE)
        return EMBD_OK;
    e->status =
        EMBD_PROTOCOL; /* the scanner's words suit, its status is the one a server would answer */
    return EMBD_PROTOCOL;
}

/* n bytes are the first of the next frame, and its owner looks at these. */
static bool is_at_start(const struct receiver *r, size_t n)
{
    return n > 0 && r->on_start != NULL && r->frame.head_bytes == 0 && r->frame.token_want == 0;
}

static int eat(struct receiver *r, uint8_t *p, size_t n, struct embd__error *e)
{
    while (n > 0 || r->bin_ended) {
        size_t used = 0;
        if (r->left > 0) {
            used = take_payload(r, p, n);
        } else if (!is_at_start(r, n) || (used = r->on_start(r->owner, p, n)) == 0) {
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
    size_t placed = got < r->left ? got : r->left;
    r->to += placed;
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
static int ended(struct receiver *r, const struct channel *ch, int error, struct embd__error *e)
{
    r->has_ended = error == 0 || error == ECONNRESET;
    const char *what = error == 0 ? "server closed the connection"
                       : error == ECONNRESET
                           ? "server reset the connection; it may be shutting down"
                           : strerror(error);
    return embd__error_set(e, EMBD_CLOSED, "%s%s", what,
                           r->has_heard || ch->tls != NULL ? ""
                                                           : "; if it uses TLS, set EMBD_TLS_CA");
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Reads until the socket is empty. */
static int read_all(struct receiver *r, struct channel *ch, struct embd__error *e)
{
    for (;;) {
        bool is_direct = r->left > 0 && r->to != NULL && r->unit == 0;
        size_t kept = r->kept, most = (size_t)RECEIVE_AHEAD_BYTES + (is_direct ? 0 : r->left);
        struct iovec iov[2] = {{r->to, r->left},
                               {r->in + kept, least(most, RECEIVE_BUFFER_BYTES - kept)}};
        size_t asked = (is_direct ? r->left : 0) + iov[1].iov_len;
        ssize_t got = embd__channel_receive(ch, is_direct ? iov : iov + 1, is_direct ? 2 : 1);
        if (got == -EAGAIN)
            return EMBD_OK;
        if (got == -EPROTO && embd__channel_error(ch)->status != EMBD_OK)
            return embd__error_set(e, EMBD_PROTOCOL, "%s", embd__channel_error(ch)->text);
        if (got <= 0)
            return ended(r, ch, (int)-got, e);
        r->has_heard = true;
        embd__count(r->bytes, (uint64_t)got);
        size_t placed = is_direct ? account_direct(r, (size_t)got) : 0;
        if (kept > 0)
            memcpy(r->in, r->to, kept);
        int status = eat(r, r->in, kept + (size_t)got - placed, e);
        if (status != EMBD_OK || (size_t)got < asked)
            return status;
    }
}

int embd__receive_given(struct receiver *r, uint8_t *p, size_t n, struct embd__error *e)
{
    size_t kept = r->kept;
    r->has_heard = true;
    embd__count(r->bytes, n);
    if (kept > 0)
        memcpy(p - kept, r->to, kept);
    return eat(r, p - kept, kept + n, e);
}

int embd__receive(struct receiver *r, struct channel *ch, struct embd__error *e)
{
    int status = read_all(r, ch, e);
    bool is_socket = ch->tls == NULL && ch->ring == NULL && ch->line == NULL;
    if (status == EMBD_OK && is_socket) /* what a session holds, the kernel cannot count */
        set_patience(r, ch->fd);
    return status;
}
