/* peer_server.c - the peer's server: one blocking thread for each connection, as many at work at a
 * time as embd has shards, each on the processor that a shard has.
 *
 * The happy path of a request is: read the header, read the keys, make the answer a chunk at a time
 * and write each chunk while it is in the cache. There is no framing to check and no loop to go
 * around: this is how little a server can do and still be one. It believes its client, which is the
 * same program. */
#include "client/bench/cpu.h"
#include "client/bench/mover.h"
#include "tests/bench/suite/peer_table.h"
#include "tests/bench/suite/peer_wire.h"
#include "client/bench/workload.h"

#include "client/bench/pages.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK_BYTES (1u << 20) /* made or read, then written or used */

struct buffer {
    char *data;
    size_t bytes;
};

/* What one processor does: the connections given to it take turns. */
struct lane {
    pthread_mutex_t turn; /* held while a request is served */
    int cpu;
};

/* One connection; its thread owns it. */
struct session {
    struct server *server;
    struct lane *lane;
    int fd;
    struct buffer in, out;
};

struct server {
    struct peer_table table;
    pthread_rwlock_t table_lock; /* lanes share the table; nobody waits where there is one lane */
    struct lane *lanes;          /* [n_lanes] */
    uint32_t n_lanes, n_sessions;
};

static bool reserve(struct buffer *b, size_t bytes)
{
    if (b->bytes >= bytes)
        return true;
    pages_free(b->data, b->bytes);
    b->data = pages_new(bytes);
    b->bytes = b->data ? bytes : 0;
    return b->data != NULL;
}

static bool serve_echo(struct session *s, const struct peer_request *q)
{
    if (!reserve(&s->in, q->request_bytes) || !reserve(&s->out, q->answer_bytes) ||
        !peer_read(s->fd, s->in.data, q->request_bytes))
        return false;
    for (uint64_t at = 0; at < q->answer_bytes; at += CHUNK_BYTES) {
        uint64_t left = q->answer_bytes - at;
        if (!peer_write(s->fd, s->out.data + at, left < CHUNK_BYTES ? left : CHUNK_BYTES))
            return false;
    }
    return true;
}

/* Output rows of one chunk, at least one. */
static uint64_t chunk_rows(const struct session *s)
{
    uint64_t rows = CHUNK_BYTES / ((uint64_t)s->server->table.dim * sizeof(float));
    return rows ? rows : 1;
}

static bool serve_rows(struct session *s, const struct peer_request *q)
{
    const struct peer_table *t = &s->server->table;
    uint64_t per_row = q->method == PEER_SUM ? q->keys_per_row : 1;
    uint64_t n_rows = q->n_keys / per_row, most = chunk_rows(s),
             row_bytes = (uint64_t)t->dim * sizeof(float);
    if (!reserve(&s->in, q->request_bytes) || !reserve(&s->out, most * row_bytes) ||
        !peer_read(s->fd, s->in.data, q->request_bytes))
        return false;
    const uint64_t *keys = (const uint64_t *)(const void *)s->in.data;
    float *out = (float *)(void *)s->out.data;
    for (uint64_t row = 0; row < n_rows; row += most) {
        uint64_t count = n_rows - row < most ? n_rows - row : most;
        pthread_rwlock_rdlock(&s->server->table_lock);
        if (per_row == 1)
            peer_table_copy(t, keys + row, count, out);
        else
            peer_table_sum(t, keys + row * per_row, count, (uint32_t)per_row, out);
        pthread_rwlock_unlock(&s->server->table_lock);
        if (!peer_write(s->fd, out, count * row_bytes))
            return false;
    }
    return true;
}

static bool serve_add(struct session *s, const struct peer_request *q)
{
    struct peer_table *t = &s->server->table;
    uint64_t most = chunk_rows(s), row_bytes = (uint64_t)t->dim * sizeof(float);
    size_t key_bytes = q->n_keys * sizeof(uint64_t);
    if (!reserve(&s->in, key_bytes) || !reserve(&s->out, most * row_bytes) ||
        !peer_read(s->fd, s->in.data, key_bytes))
        return false;
    const uint64_t *keys = (const uint64_t *)(const void *)s->in.data;
    float *grads = (float *)(void *)s->out.data;
    for (uint64_t at = 0; at < q->n_keys; at += most) {
        uint64_t count = q->n_keys - at < most ? q->n_keys - at : most;
        if (!peer_read(s->fd, grads, count * row_bytes))
            return false;
        pthread_rwlock_wrlock(&s->server->table_lock);
        peer_table_add(t, keys + at, count, grads);
        pthread_rwlock_unlock(&s->server->table_lock);
    }
    static const char ack[PEER_ACK_BYTES];
    return peer_write(s->fd, ack, sizeof ack);
}

/* Whole passes over one batch after the other, into a batch's worth of output, as a caller of pull
 * gets it. */
static struct peer_gathered gather_for(const struct peer_table *t, const uint32_t *rows,
                                       uint64_t n_rows, uint64_t nanoseconds, float *out)
{
    struct peer_gathered done = {0, 0};
    uint64_t batch = n_rows / WORKLOAD_BATCHES, begun = cpu_now_ns();
    for (uint32_t i = 0; done.nanoseconds < nanoseconds; i = (i + 1) % WORKLOAD_BATCHES) {
        peer_table_gather(t, rows + i * batch, batch, out);
        done.n_keys += batch;
        done.nanoseconds = cpu_now_ns() - begun;
    }
    return done;
}

static bool serve_gather(struct session *s, const struct peer_request *q)
{
    const struct peer_table *t = &s->server->table;
    uint64_t batch = q->n_keys / WORKLOAD_BATCHES;
    uint32_t *rows = malloc(q->n_keys * sizeof *rows);
    bool ok = rows && reserve(&s->in, q->request_bytes) &&
              reserve(&s->out, batch * t->dim * sizeof(float)) &&
              peer_read(s->fd, s->in.data, q->request_bytes);
    if (ok) {
        peer_table_find(t, (const uint64_t *)(const void *)s->in.data, q->n_keys, rows);
        struct peer_gathered done =
            gather_for(t, rows, q->n_keys, q->nanoseconds, (float *)(void *)s->out.data);
        ok = peer_write(s->fd, &done, sizeof done);
    }
    free(rows);
    return ok;
}

static bool serve(struct session *s, const struct peer_request *q)
{
    switch ((enum peer_method)q->method) {
    case PEER_ECHO:
        return serve_echo(s, q);
    case PEER_COPY:
    case PEER_SUM:
        return serve_rows(s, q);
    case PEER_ADD:
        return serve_add(s, q);
    case PEER_GATHER:
        return serve_gather(s, q);
    }
    return false;
}

static void *run_session(void *arg)
{
    struct session *s = arg;
    struct peer_request q;
    bool ok = true;
    cpu_pin(s->lane->cpu);
    while (ok && peer_read(s->fd, &q, sizeof q)) {
        pthread_mutex_lock(&s->lane->turn);
        ok = serve(s, &q);
        pthread_mutex_unlock(&s->lane->turn);
    }
    close(s->fd);
    pages_free(s->in.data, s->in.bytes);
    pages_free(s->out.data, s->out.bytes);
    free(s);
    return NULL;
}

static void begin_session(struct server *server, int fd)
{
    int one = 1;
    pthread_t thread;
    struct session *s = malloc(sizeof *s);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct lane *lane = &server->lanes[server->n_sessions++ % server->n_lanes];
    if (s)
        *s = (struct session){.server = server, .lane = lane, .fd = fd};
    if (!s || pthread_create(&thread, NULL, run_session, s)) {
        free(s);
        close(fd);
        return;
    }
    pthread_detach(thread);
}

static bool open_lanes(struct server *server, const struct cpu_list *cpus)
{
    server->lanes = malloc(cpus->n * sizeof *server->lanes);
    for (uint32_t i = 0; server->lanes && i < cpus->n; i++) {
        server->lanes[i].cpu = cpus->ids[i];
        if (pthread_mutex_init(&server->lanes[i].turn, NULL))
            return false;
    }
    server->n_lanes = cpus->n;
    return server->lanes != NULL;
}

_Noreturn void peer_serve(int listener, uint64_t n_keys, uint32_t dim, const struct cpu_list *cpus,
                          int ready_fd)
{
    static struct server server = {.table_lock = PTHREAD_RWLOCK_INITIALIZER};
    if (!open_lanes(&server, cpus) || peer_table_open(&server.table, n_keys, dim) ||
        write(ready_fd, "", 1) != 1)
        _exit(FAILED);
    close(ready_fd);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            begin_session(&server, fd);
        else if (errno != EINTR && errno != ECONNABORTED)
            _exit(FAILED);
    }
}
