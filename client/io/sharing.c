/* sharing.c - behind hello by the data socket, the link's server is given the client's shared
 * memory: the request `share`, with the memfd's descriptor beside its first byte. Nothing else is
 * on the connection then, so the descriptor cannot be read past. A server that refuses has no
 * memory for it, and everything goes through the socket. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "client/io/link_internal.h"

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to share has a bin of %u bytes", bytes);
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

bool embd__sharing_is_wanted(const struct link *link)
{
    const struct shared *shared = link->config.shared;
    return link->is_local && link->takes_share && shared != NULL && shared->wanted > 0;
}

static bool build(struct link *link)
{
    struct msg *m = &link->share.msg;
    embd__msg_request(m, SHARE_MSGID, METHOD_SHARE);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "bytes", link->config.shared->bytes);
    return embd__msg_end(m) == EMBD_OK;
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

bool embd__sharing_begin(struct link *link)
{
    struct shared *shared = link->config.shared;
    struct exchange *x = &link->share;
    if (!embd__sharing_is_wanted(link) || !embd__shared_open(shared, link->share_most) ||
        !build(link) || !send_with(link->channel.fd, &x->msg, shared->fd))
        return false;
    x->error.status = EMBD_OK;
    x->deadline_ns = UINT64_MAX; /* as for hello, the attempt to connect has one */
    x->state = EXCHANGE_SENT;
    link->inflight.list[link->inflight.n++] = (struct pending){.msgid = x->msgid, .x = x};
    return true;
}

void embd__sharing_end(struct link *link)
{
    bool shares = link->share.error.status == EMBD_OK;
    link->receiver.shared = shares ? link->config.shared : NULL;
    link->receiver.frame.takes_shared = shares;
    link->shares = shares;
}

bool embd__link_shares(const struct link *link)
{
    return link->shares;
}
