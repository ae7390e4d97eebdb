/* trunk.c - see trunk.h. Edges of epoll are kept as flags, so that a stream costs no system call
 * but the reads and writes of its bytes. */
#include "server/net/trunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/log/log.h"

enum {
    READS_PER_TURN = 4,
    /* Kept free in `out` for what is not an answer: a credit for each half window that is held. */
    ROOM_LEAST = 32 << 10,
    READ_LEAST = 4 << 10, /* of a stream, at once */
};

static void lose(struct trunk *t, const char *why)
{
    if (!t->is_lost)
        log_event(LOG_WARN, "trunk_dropped", "peer=%s why=\"%s\" streams=%u", t->peer.name, why,
                  t->n_streams);
    t->is_lost = true;
}

/* ---- to the peer ---- */

static size_t room(const struct trunk *t)
{
    return TRUNK_OUT_BYTES - t->out_bytes;
}

/* False: there is no memory. */
static bool has_out(struct trunk *t)
{
    if (t->out != NULL)
        return true;
    t->out = malloc(TRUNK_OUT_BYTES);
    if (t->out == NULL) {
        lose(t, "no memory");
        return false;
    }
    quota_force(t->desk->quota, TRUNK_OUT_BYTES);
    t->moved_ms = t->desk->now_ms;
    return true;
}

static void put_head(struct trunk *t, uint32_t kind, uint32_t stream, uint32_t value)
{
    if (!has_out(t))
        return;
    EMBD_ASSERT(room(t) >= TRUNK_HEAD_BYTES);
    embd__trunk_head(t->out + t->out_bytes, kind, stream, value);
    t->out_bytes += TRUNK_HEAD_BYTES;
}

static void free_out(struct trunk *t)
{
    if (t->out != NULL)
        quota_give(t->desk->quota, TRUNK_OUT_BYTES);
    free(t->out);
    t->out = NULL;
}

/* Of what is gathered, and of ciphertext, what the socket takes. */
static size_t send_some(struct trunk *t)
{
    size_t sent = 0;
    while (t->end.is_writable && (sent < t->out_bytes || trunk_wire_is_pending(&t->wire))) {
        ssize_t n = trunk_wire_send(&t->wire, t->out + sent, t->out_bytes - sent);
        if (n >= 0)
            sent += (size_t)n;
        else
            t->end.is_writable = false;
        t->is_lost |= n < 0 && n != -EAGAIN; /* it is gone */
    }
    return sent;
}

/* While ciphertext waits `out` stays, so that the peer is watched. */
static void flush(struct trunk *t)
{
    uint64_t before = t->wire.sent_bytes;
    size_t sent = send_some(t);
    if (t->is_lost)
        return;
    t->moved_ms = t->wire.sent_bytes != before ? t->desk->now_ms : t->moved_ms;
    t->out_bytes -= sent;
    if (t->out_bytes > 0 && sent > 0)
        memmove(t->out, t->out + sent, t->out_bytes);
    else if (t->out_bytes == 0 && !trunk_wire_is_pending(&t->wire))
        free_out(t);
    else if (t->out_bytes == 0)
        has_out(t);
}

/* ---- streams ---- */

static struct trunk_stream *stream_of(const struct trunk *t, uint32_t number)
{
    struct trunk_stream *s = t->streams[embd__trunk_slot(number)];
    return s != NULL && s->number == number ? s : NULL;
}

static void set_ready(struct trunk_stream *s, bool is_ready)
{
    if (s->is_ready == is_ready)
        return;
    s->is_ready = is_ready;
    if (is_ready)
        TAILQ_INSERT_TAIL(&s->trunk->ready, s, in_ready);
    else
        TAILQ_REMOVE(&s->trunk->ready, s, in_ready);
}

static void free_held(struct trunk_stream *s)
{
    s->trunk->held_bytes -= s->held_bytes;
    quota_give(s->trunk->desk->quota, s->held_bytes);
    free(s->held);
    s->held = NULL;
    s->held_at = s->held_bytes = 0;
}

static bool watch(const struct trunk_desk *desk, struct trunk_end *end)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = end};
    return epoll_ctl(desk->epoll, EPOLL_CTL_ADD, end->fd, &event) == 0;
}

/* Closing alone leaves events of a socket that somebody else has, too: the shard that the trunk
 * began on may not have closed its descriptor yet. */
static void close_end(const struct trunk_desk *desk, struct trunk_end *end)
{
    if (end->fd < 0)
        return;
    epoll_ctl(desk->epoll, EPOLL_CTL_DEL, end->fd, NULL);
    close(end->fd);
    end->fd = -1;
}

/* Its socket is closed; the peer has it still. */
static void cut(struct trunk_stream *s)
{
    close_end(s->trunk->desk, &s->end);
    set_ready(s, false);
    free_held(s);
}

static void drop(struct trunk_stream *s)
{
    struct trunk *t = s->trunk;
    cut(s);
    t->streams[embd__trunk_slot(s->number)] = NULL;
    t->n_streams--;
    s->trunk = NULL;
    s->next_dead = t->desk->dead;
    t->desk->dead = s;
}

void trunk_bury(struct trunk_desk *desk)
{
    while (desk->dead != NULL) {
        struct trunk_stream *s = desk->dead;
        desk->dead = s->next_dead;
        free(s);
    }
}

/* NULL: there are not the means. */
static struct trunk_stream *stream_new(struct trunk *t, uint32_t number, uint32_t shard)
{
    int pair[2];
    struct embd__error e = {0};
    struct trunk_stream *s = calloc(1, sizeof *s);
    if (s == NULL ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        free(s);
        return NULL;
    }
    *s = (struct trunk_stream){.end = {.fd = pair[0], .is_stream = true, .is_writable = true},
                               .trunk = t,
                               .number = number};
    bool is_watched = watch(t->desk, &s->end);
    if (is_watched && t->desk->adopt(t->desk->arg, shard, pair[1], &t->peer, &e) == EMBD_OK)
        return s;
    close_end(t->desk, &s->end);
    close(pair[1]);
    free(s);
    return NULL;
}

static void open_stream(struct trunk *t, uint32_t number, uint32_t shard)
{
    struct trunk_stream **at = &t->streams[embd__trunk_slot(number)];
    if (*at != NULL) {
        lose(t, "it opens a stream in a slot that has one");
        return;
    }
    *at = stream_new(t, number, shard);
    if (*at == NULL)
        put_head(t, TRUNK_CLOSE, number, 0);
    else
        t->n_streams++;
}

/* ---- to shards ---- */

/* The peer may send as much again, half a window at a time. */
static void credit(struct trunk_stream *s, size_t n)
{
    s->taken += (uint32_t)n;
    if (s->taken < TRUNK_WINDOW_BYTES / 2)
        return;
    put_head(s->trunk, TRUNK_CREDIT, s->number, s->taken);
    s->uncredited -= s->taken;
    s->taken = 0;
}

/* How much of it the shard's socket takes. What a shard that has ended would get is dropped. */
static size_t give(struct trunk_stream *s, const uint8_t *p, size_t n)
{
    size_t given = 0;
    while (given < n && s->end.fd >= 0 && s->end.is_writable) {
        ssize_t sent = send(s->end.fd, p + given, n - given, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0)
            given += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            s->end.is_writable = false;
        else if (errno != EINTR)
            given = n;
    }
    return s->end.fd < 0 ? n : given;
}

static void end_if_given(struct trunk_stream *s)
{
    if (s->has_ended && s->held_bytes == 0 && s->end.fd >= 0)
        shutdown(s->end.fd, SHUT_WR);
}

static void give_held(struct trunk_stream *s)
{
    size_t n = give(s, s->held + s->held_at, s->held_bytes - s->held_at);
    s->held_at += n;
    if (s->held_at == s->held_bytes) {
        free_held(s);
        end_if_given(s);
    }
    credit(s, n);
}

static void hold(struct trunk_stream *s, const uint8_t *p, size_t n)
{
    uint8_t *held = realloc(s->held, s->held_bytes + n);
    if (held == NULL) {
        lose(s->trunk, "no memory");
        return;
    }
    memcpy(held + s->held_bytes, p, n);
    quota_force(s->trunk->desk->quota, n);
    s->held = held;
    s->held_bytes += n;
    s->trunk->held_bytes += n;
}

static void take(struct trunk_stream *s, const uint8_t *p, size_t n)
{
    size_t given = s->held_bytes > 0 ? 0 : give(s, p, n);
    if (given < n)
        hold(s, p + given, n - given);
    if (given > 0)
        credit(s, given);
}

/* ---- from the peer ---- */

static void on_chunk(struct trunk *t)
{
    const struct trunk_chunk *chunk = &t->reader.chunk;
    struct trunk_stream *s = stream_of(t, chunk->stream);
    if (chunk->kind == TRUNK_OPEN) {
        open_stream(t, chunk->stream, chunk->value);
    } else if (s == NULL) {
        return; /* of a stream that did not begin */
    } else if (chunk->kind == TRUNK_CLOSE) {
        drop(s);
    } else if (s->has_ended) {
        lose(t, "it sends on a stream that it has ended");
    } else if (chunk->kind == TRUNK_END) {
        s->has_ended = true;
        end_if_given(s);
    } else {
        s->uncredited += chunk->value;
        if (s->uncredited > TRUNK_WINDOW_BYTES)
            lose(t, "it sends more on a stream than its window takes");
    }
}

static bool may_go_on(const struct trunk *t)
{
    uint64_t most = quota_is_tight(t->desk->quota) ? 0 : TRUNK_HELD_BYTES;
    return !t->is_lost && room(t) > ROOM_LEAST && t->held_bytes <= most;
}

/* How much was looked at; less than n: it is choked or lost. */
static size_t eat(struct trunk *t, const uint8_t *p, size_t n)
{
    struct embd__error e = {0};
    size_t at = 0, used;
    while (at < n && may_go_on(t)) {
        int event = embd__trunk_read(&t->reader, true, p + at, n - at, &used, &e);
        if (event < 0)
            lose(t, e.text);
        else if (event == TRUNK_CHUNK)
            on_chunk(t);
        struct trunk_stream *s = event == TRUNK_BYTES ? stream_of(t, t->reader.chunk.stream) : NULL;
        if (s != NULL)
            take(s, p + at, used);
        at += used;
    }
    return at;
}

static void free_kept(struct trunk *t)
{
    if (t->kept != NULL)
        quota_give(t->desk->quota, t->kept_bytes);
    free(t->kept);
    t->kept = NULL;
}

static void keep(struct trunk *t, const uint8_t *p, size_t n)
{
    t->is_choked = true;
    t->kept = malloc(n);
    if (t->kept == NULL) {
        lose(t, "no memory");
        return;
    }
    memcpy(t->kept, p, n);
    quota_force(t->desk->quota, n);
    t->kept_at = 0;
    t->kept_bytes = n;
}

/* Requests that have come are answered. */
static void end_streams(struct trunk *t)
{
    t->has_ended = true;
    t->end.is_readable = false;
    for (uint32_t i = 0; i < TRUNK_SLOTS; i++) {
        struct trunk_stream *s = t->streams[i];
        if (s == NULL)
            continue;
        s->has_ended = true;
        if (s->has_told)
            drop(s);
        else
            end_if_given(s);
    }
}

static void fail_read(struct trunk *t, ssize_t error, const struct embd__error *e)
{
    t->end.is_readable = error == -EINTR;
    if (error == -EPROTO && e->status != EMBD_OK)
        lose(t, e->text);
    t->is_lost |= error != -EAGAIN && error != -EINTR;
}

static void read_some(struct trunk *t)
{
    struct trunk_desk *desk = t->desk;
    struct embd__error e = {0};
    bool is_empty;
    ssize_t n = trunk_wire_receive(&t->wire, desk->in, desk->sealed, &is_empty, &e);
    if (n == 0)
        end_streams(t);
    else if (n < 0)
        fail_read(t, n, &e);
    if (n <= 0)
        return;
    if (is_empty)
        t->end.is_readable = t->end.has_hung_up;
    size_t used = eat(t, desk->in, (size_t)n);
    if (used < (size_t)n && !t->is_lost)
        keep(t, desk->in + used, (size_t)n - used);
}

/* Whether the next read may be made. */
static bool may_read(const struct trunk *t)
{
    return t->end.is_readable && !t->is_choked && !t->is_lost && !trunk_wire_is_choked(&t->wire);
}

static void receive(struct trunk *t)
{
    if (t->is_choked) {
        t->kept_at += eat(t, t->kept + t->kept_at, t->kept_bytes - t->kept_at);
        if (t->kept_at < t->kept_bytes)
            return;
        free_kept(t);
        t->is_choked = false;
    }
    for (int i = 0; i < READS_PER_TURN && may_read(t); i++)
        read_some(t);
}

/* ---- from shards ---- */

/* The shard has ended its side, or all of it. The stream is there until the peer closes it. */
static void end_shard(struct trunk_stream *s, uint32_t kind)
{
    s->end.is_readable = s->end.has_hung_up = false;
    if (!s->has_told)
        put_head(s->trunk, kind, s->number, 0);
    s->has_told = true;
    if (kind == TRUNK_CLOSE)
        cut(s);
}

static void stream_failed(struct trunk_stream *s, int error)
{
    s->end.is_readable = error == EINTR;
    if (error != EAGAIN && error != EWOULDBLOCK && error != EINTR)
        end_shard(s, TRUNK_CLOSE);
}

static bool may_gather(const struct trunk *t)
{
    return !t->is_lost && room(t) > ROOM_LEAST + READ_LEAST + TRUNK_HEAD_BYTES;
}

static void gather_one(struct trunk *t, struct trunk_stream *s)
{
    size_t most = room(t) - ROOM_LEAST - TRUNK_HEAD_BYTES;
    uint8_t *to = t->out + t->out_bytes;
    if (most > TRUNK_DATA_BYTES)
        most = TRUNK_DATA_BYTES;
    ssize_t n = recv(s->end.fd, to + TRUNK_HEAD_BYTES, most, MSG_DONTWAIT);
    if (n > 0) {
        embd__trunk_head(to, TRUNK_DATA, s->number, (uint32_t)n);
        t->out_bytes += TRUNK_HEAD_BYTES + (size_t)n;
        if ((size_t)n < most)
            s->end.is_readable = s->end.has_hung_up;
    } else if (n == 0) {
        end_shard(s, TRUNK_END);
    } else {
        stream_failed(s, errno);
    }
}

static void gather(struct trunk *t)
{
    struct trunk_stream *s;
    while (may_gather(t) && (s = TAILQ_FIRST(&t->ready)) != NULL && has_out(t)) {
        gather_one(t, s);
        set_ready(s, false);
        if (t->has_ended && s->has_told)
            drop(s);
        else
            set_ready(s, s->end.fd >= 0 && s->end.is_readable); /* behind the others */
    }
}

/* ---- turns ---- */

static void note(struct trunk_end *end, uint32_t events)
{
    bool has_hung_up = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    end->has_hung_up |= has_hung_up;
    end->is_readable |= has_hung_up || (events & EPOLLIN) != 0;
    end->is_writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
}

struct trunk *trunk_on_event(struct trunk_end *end, uint32_t events)
{
    note(end, events);
    if (!end->is_stream)
        return (struct trunk *)(void *)end;
    struct trunk_stream *s = (struct trunk_stream *)(void *)end;
    if (s->trunk == NULL || s->end.fd < 0)
        return NULL;
    if (s->held_bytes > 0 && end->is_writable)
        give_held(s);
    if (end->is_readable)
        set_ready(s, true);
    return s->trunk;
}

bool trunk_turn(struct trunk *t)
{
    if (t->end.is_readable || t->is_choked)
        receive(t);
    gather(t);
    if (!t->is_lost)
        flush(t);
    t->is_lost |= t->has_ended && t->n_streams == 0 && t->out == NULL;
    bool has_more = may_read(t) && !t->has_ended;
    return t->is_lost || has_more || (may_gather(t) && !TAILQ_EMPTY(&t->ready));
}

bool trunk_has_stalled(struct trunk *t, uint32_t stall_ms)
{
    if (t->out == NULL || t->desk->now_ms - t->moved_ms <= stall_ms)
        return false;
    lose(t, "the peer does not read its answers (stall_timeout)");
    return true;
}

/* ---- life ---- */

static size_t memory_of(const struct trunk *t)
{
    return sizeof *t + trunk_wire_memory(&t->wire);
}

struct trunk *trunk_new(struct trunk_desk *desk, const struct trunk_wire *wire,
                        const struct adopted_peer *peer)
{
    struct trunk *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->end = (struct trunk_end){.fd = wire->fd, .is_writable = true};
    t->wire = *wire;
    t->wire.quota = desk->quota;
    t->desk = desk;
    t->peer = *peer;
    TAILQ_INIT(&t->ready);
    bool is_charged = quota_take_connection(desk->quota, memory_of(t));
    if (is_charged && watch(desk, &t->end))
        return t;
    if (is_charged)
        quota_give_connection(desk->quota, memory_of(t));
    free(t);
    return NULL;
}

void trunk_free(struct trunk *t)
{
    for (uint32_t i = 0; i < TRUNK_SLOTS; i++)
        if (t->streams[i] != NULL)
            drop(t->streams[i]);
    free_out(t);
    free_kept(t);
    quota_give_connection(t->desk->quota, memory_of(t));
    trunk_wire_close(&t->wire);
    close_end(t->desk, &t->end);
    free(t);
}
