/* shared.c - memory that a peer on this host shares: its rows and gradients do not go through the
 * socket.
 *
 * The happy path: hello of a connection to the data socket says that `share` comes. That request
 * brings a descriptor of a memfd beside its first byte. The memory is checked, charged to
 * frame_memory and mapped; requests name places in it, until the connection ends. Memory for the
 * connection's bytes comes in the same way, by the request `ring`: ring.c has the road of these.
 *
 * libuv reads with read(), which drops descriptors. So while one is awaited, each read is preceded
 * by a look at the socket, which leaves the bytes to libuv and brings the descriptor.
 *
 * What can fail: no descriptor came, or it is of something that could shrink under us (SIGBUS), or
 * that a page of could be missing; it is larger than what is taken; memory is short. The connection
 * goes on without. The peer can write there at any time: see request_parser.c and handle_pull.c. */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "server/net/connection_internal.h"

enum {
    PAGE_BYTES = 4096,
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};
#define SHARED_MOST_BYTES (256ull << 20)
/* Of frame_memory, for one connection. */
#define SHARED_SHARE 16u

/* ---- the descriptor ---- */

static void close_fd(struct connection *c)
{
    if (c->shared_fd >= 0)
        close(c->shared_fd);
    c->shared_fd = -1;
}

static void keep_fd(struct connection *c, struct msghdr *message)
{
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (control == NULL || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
        control->cmsg_len != CMSG_LEN(sizeof(int)))
        return;
    close_fd(c);
    memcpy(&c->shared_fd, CMSG_DATA(control), sizeof c->shared_fd);
}

void shared_look(struct connection *c)
{
    uint8_t byte;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(sizeof(int))}; /* others are dropped */
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&c->uv.pipe, &fd) == 0 &&
        recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) > 0)
        keep_fd(c, &message);
}

/* ---- taking ---- */

static int check_bytes(const struct shard_session *session, uint64_t bytes, struct embd__error *e)
{
    if (session->shared.base != NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "share: the connection shares %llu bytes already, and may once",
                               (unsigned long long)session->shared.bytes);
    if (bytes == 0 || bytes % PAGE_BYTES != 0 || bytes > session->share_most)
        return embd__error_set(e, EMBD_INVALID,
                               "share field 'bytes' is %llu, expected a multiple of %u, at most "
                               "%llu (a %uth of frame_memory)",
                               (unsigned long long)bytes, PAGE_BYTES,
                               (unsigned long long)session->share_most, SHARED_SHARE);
    return EMBD_OK;
}

/* Whether its pages stay, whatever the peer does: F_SEAL_SHRINK is what only memory can have, and
 * huge pages may be missing when they are touched. */
static int check_file(int fd, const char *method, const char *fields, uint64_t bytes,
                      struct embd__error *e)
{
    struct stat file;
    struct statfs system;
    int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
    if (fd < 0)
        return embd__error_set(e, EMBD_INVALID,
                               "%s: no descriptor came with the request; hello needs the field "
                               "'%s', and the request's first byte brings it by SCM_RIGHTS",
                               method, method);
    if (seals < 0 || fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC ||
        fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return embd__error_set(e, EMBD_INVALID,
                               "%s: the descriptor is not of a memfd of ordinary pages", method);
    if ((seals & SEALS) != SEALS)
        return embd__error_set(e, EMBD_INVALID,
                               "%s: the memfd's seals are 0x%x, expected F_SEAL_SHRINK, "
                               "F_SEAL_GROW and F_SEAL_SEAL (0x%x)",
                               method, (unsigned)seals, (unsigned)SEALS);
    if ((uint64_t)file.st_size < bytes)
        return embd__error_set(e, EMBD_INVALID, "%s %s: %llu bytes, and the memfd has %llu", method,
                               fields, (unsigned long long)bytes, (unsigned long long)file.st_size);
    return EMBD_OK;
}

/* Charged before it is mapped. */
static uint8_t *map(struct connection *c, const char *method, uint64_t bytes, struct embd__error *e)
{
    struct quota *quota = c->io->pool.quota;
    if (!quota_take_shared(quota, bytes)) {
        embd__error_set(e, EMBD_BUSY,
                        "%s: no frame memory for %llu bytes: peers share %llu, the limit is a "
                        "quarter of %llu (frame_memory)",
                        method, (unsigned long long)bytes,
                        (unsigned long long)atomic_load(&quota->shared),
                        (unsigned long long)quota->limit);
        return NULL;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->shared_fd, 0);
    if (base == MAP_FAILED) { /* sealed against writing, too */
        quota_give_shared(quota, bytes);
        embd__error_set(e, EMBD_INVALID, "%s: the memfd cannot be mapped for writing", method);
        return NULL;
    }
    madvise(base, bytes, MADV_DONTDUMP);
    c->io->shared_bytes += bytes;
    return base;
}

uint8_t *shared_take(struct connection *c, const char *method, const char *fields, uint64_t bytes,
                     struct embd__error *e)
{
    uint8_t *base = NULL;
    if (check_file(c->shared_fd, method, fields, bytes, e) == EMBD_OK)
        base = map(c, method, bytes, e);
    close_fd(c); /* what is mapped stays */
    return base;
}

void shared_give(struct connection *c, uint8_t *base, uint64_t bytes)
{
    munmap(base, bytes);
    quota_give_shared(c->io->pool.quota, bytes);
    c->io->shared_bytes -= bytes;
}

static int take(struct shard_session *session, uint64_t bytes, struct embd__error *e)
{
    struct connection *c = connection_of_session(session);
    uint8_t *base = NULL;
    if (check_bytes(session, bytes, e) == EMBD_OK)
        base = shared_take(c, "share", "field 'bytes'", bytes, e);
    if (base != NULL)
        session->shared = (struct shared_memory){base, bytes};
    close_fd(c);
    return e->status;
}

/* ---- the connection ---- */

void shared_begin(struct connection *c)
{
    uint64_t share = c->io->pool.quota->limit / SHARED_SHARE;
    c->shared_fd = -1;
    if (c->door != DOOR_DATA_SOCKET)
        return;
    c->session.share = take;
    c->session.share_most =
        share < SHARED_MOST_BYTES ? share / PAGE_BYTES * PAGE_BYTES : SHARED_MOST_BYTES;
}

void shared_end(struct connection *c)
{
    struct shared_memory *shared = &c->session.shared;
    close_fd(c);
    if (shared->base == NULL)
        return;
    shared_give(c, shared->base, shared->bytes);
    *shared = (struct shared_memory){0};
}

/* ---- the memory of a ring ---- */

int shared_agree_ring(struct shard_session *session, uint64_t requests, uint64_t answers,
                      struct embd__error *e)
{
    struct connection *c = connection_of_session(session);
    struct connection_ring *r = &c->ring;
    if (r->base != NULL)
        return embd__error_set(e, EMBD_INVALID, "ring: the connection has one already");
    if (!embd__ring_fits(requests, answers))
        return embd__error_set(e, EMBD_INVALID,
                               "ring fields 'requests' and 'answers' are %llu and %llu, expected "
                               "powers of two from %u to %u",
                               (unsigned long long)requests, (unsigned long long)answers,
                               RING_LEAST_BYTES, RING_MOST_BYTES);
    r->bytes = embd__ring_total(requests, answers);
    r->base = shared_take(c, "ring", "fields 'requests' and 'answers'", r->bytes, e);
    if (r->base == NULL)
        return e->status;
    embd__ring_init(&r->ring, r->base, requests, answers, true);
    r->state = RING_AGREED;
    ring_watch(c);
    return EMBD_OK;
}

void shared_close_ring(struct connection *c)
{
    ring_unwatch(c);
    if (c->ring.base != NULL)
        shared_give(c, c->ring.base, c->ring.bytes);
    c->ring.base = NULL;
    c->ring.state = RING_NONE;
}
