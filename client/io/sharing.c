/* sharing.c - behind hello by the data socket, the link's server is given memory: the client's, for
 * rows and gradients (`share`), then the link's own, for all bytes of the connection (`ring`). Each
 * is a request with the memfd's descriptor beside its first byte. Nothing else is on the connection
 * then, so the descriptor cannot be read past. A server that refuses has no memory for it, and
 * everything goes through the socket. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/io/link_internal.h"
#include "client/io/ring_memory.h"

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to share or ring has a bin of %u bytes",
                    bytes);
    return NULL;
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    (void)x;
    embd__reader_end(reader);
}

void embd__sharing_init(struct link *link)
{
    embd__msg_init(&link->share.msg);
    link->share.link = link;
    link->share.owner = link;
    link->share.msgid = SHARE_MSGID;
    link->share.on_bin = on_bin;
    link->share.on_answer = on_answer;
}

bool embd__sharing_is_wanted(const struct link *link, enum sharing what)
{
    const struct shared *shared = link->config.shared;
    if (!link->is_local || shared == NULL || shared->wanted == 0)
        return false;
    return what == SHARING_RING ? link->takes_ring && link->config.rings != NULL
                                : link->takes_share;
}

/* It is short, and the socket is empty. */
static bool send_with(int fd, const struct msg *m, int descriptor)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec iov = {m->head, m->head_bytes};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)m->head_bytes;
}

/* ---- the two ---- */

static bool ask_memory(struct link *link)
{
    struct shared *shared = link->config.shared;
    struct msg *m = &link->share.msg;
    if (!embd__shared_open(shared, link->share_most))
        return false;
    embd__msg_request(m, SHARE_MSGID, METHOD_SHARE);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "bytes", shared->bytes);
    return embd__msg_end(m) == EMBD_OK && send_with(link->channel.fd, m, shared->fd);
}

static bool ask_ring(struct link *link)
{
    struct channel_ring *ring = &link->ring;
    struct msg *m = &link->share.msg;
    int fd;
    ring->bytes = embd__ring_total(RINGS_REQUEST_BYTES, RINGS_ANSWER_BYTES);
    bool is_open = embd__ring_memory_open(ring, &fd);
    embd__msg_request(m, SHARE_MSGID, METHOD_RING);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "requests", RINGS_REQUEST_BYTES);
    embd__msg_field_uint(m, "answers", RINGS_ANSWER_BYTES);
    bool is_sent = is_open && embd__msg_end(m) == EMBD_OK && send_with(link->channel.fd, m, fd);
    if (fd >= 0)
        close(fd);
    return is_sent;
}

static void end_memory(struct link *link, bool is_taken)
{
    link->receiver.shared = is_taken ? link->config.shared : NULL;
    link->receiver.frame.takes_shared = is_taken;
    link->terms.shares = is_taken;
}

/* From now on both sides send by it. */
static void end_ring(struct link *link, bool is_taken)
{
    struct channel_ring *r = &link->ring;
    if (!is_taken) {
        embd__channel_close_ring(r);
        return;
    }
    embd__ring_init(&r->ring, r->memory, RINGS_REQUEST_BYTES, RINGS_ANSWER_BYTES, false);
    link->channel.ring = r;
}

/* ---- one after the other ---- */

static bool ask(struct link *link)
{
    struct exchange *x = &link->share;
    if (!embd__sharing_is_wanted(link, link->sharing) ||
        !(link->sharing == SHARING_MEMORY ? ask_memory(link) : ask_ring(link)))
        return false;
    x->error.status = EMBD_OK;
    x->deadline_ns = UINT64_MAX; /* as for hello, the attempt to connect has one */
    x->state = EXCHANGE_SENT;
    link->inflight.list[link->inflight.n++] = (struct pending){.msgid = x->msgid, .x = x};
    return true;
}

bool embd__sharing_begin(struct link *link)
{
    for (link->sharing = SHARING_MEMORY; link->sharing < SHARING_DONE; link->sharing++)
        if (ask(link))
            return true;
    return false;
}

bool embd__sharing_go_on(struct link *link)
{
    bool is_taken = link->share.error.status == EMBD_OK;
    if (link->sharing == SHARING_MEMORY)
        end_memory(link, is_taken);
    else
        end_ring(link, is_taken);
    while (++link->sharing < SHARING_DONE)
        if (ask(link))
            return true;
    return false;
}
