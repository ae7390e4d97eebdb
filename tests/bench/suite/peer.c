/* peer.c - the peer's process and its client.
 *
 * The server is forked, not threaded, so that it shares neither allocator nor address space with
 * what it is compared with, and its CPU time can be told apart. It is killed with this process.
 *
 * The client writes a request whole and reads the answer whole, into one array, as a caller of
 * embd_pull gets it: start() is the writing and finish() the reading. */
#include "tests/bench/suite/peer.h"

#include "client/bench/pages.h"

#include "client/bench/cpu.h"
#include "tests/bench/suite/peer_table.h"
#include "tests/bench/suite/peer_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const char *what)
{
    fprintf(stderr, "bench-suite: peer: %s: %s\n", what, strerror(errno));
    return FAILED;
}

/* ---- the process ----------------------------------------------------------------------------- */

static int listen_anywhere(int *port_out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *a = (struct sockaddr *)&address;
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, a, sizeof address) || listen(fd, 64) || getsockname(fd, a, &bytes)) {
        close(fd);
        return -1;
    }
    *port_out = ntohs(address.sin_port);
    return fd;
}

/* In the child. It keeps the listener and the pipe and nothing else of its parent's: a copy of a
 * connection would keep that connection alive. */
static _Noreturn void run_server(int listener, int ready, uint64_t n_keys, uint32_t dim,
                                 const struct cpu_list *cpus)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int low = listener < ready ? listener : ready, high = listener < ready ? ready : listener;
    close_range(3, (unsigned)low - 1, 0);
    close_range((unsigned)low + 1, (unsigned)high - 1, 0);
    close_range((unsigned)high + 1, ~0u, 0);
    cpu_pin(cpus->ids[0]);
    peer_serve(listener, n_keys, dim, cpus, ready);
}

/* The server writes one byte when its table is filled. */
static int wait_ready(struct peer *peer, int ready)
{
    char byte;
    if (peer_read(ready, &byte, 1))
        return DONE;
    fprintf(stderr,
            "bench-suite: the peer ended before it listened; is there memory for its table?\n");
    peer_stop(peer);
    return FAILED;
}

int peer_start(struct peer *peer, uint64_t n_keys, uint32_t dim, const struct cpu_list *cpus)
{
    int ready[2], code;
    *peer = (struct peer){0};
    int listener = listen_anywhere(&peer->port);
    if (listener < 0)
        return fail("listen");
    if (pipe(ready)) {
        close(listener);
        return fail("pipe");
    }
    peer->pid = fork();
    if (peer->pid == 0)
        run_server(listener, ready[1], n_keys, dim, cpus);
    close(listener);
    close(ready[1]);
    if (peer->pid < 0) {
        peer->pid = 0;
        code = fail("fork");
    } else {
        code = wait_ready(peer, ready[0]);
    }
    close(ready[0]);
    return code;
}

void peer_stop(struct peer *peer)
{
    if (peer->pid > 0) {
        kill(peer->pid, SIGKILL);
        waitpid(peer->pid, NULL, 0);
    }
    *peer = (struct peer){0};
}

/* ---- the client ------------------------------------------------------------------------------ */

/* One request of a call: a train call makes two, a pull and a push. */
struct leg {
    struct peer_request header;
    bool has_rows; /* rows follow the keys */
};

struct caller {
    int fd;
    const struct workload *workload;
    struct leg legs[2];
    uint32_t n_legs;
    uint64_t batch;     /* of the request in flight */
    char *rows;         /* where answers land */
    char *grads;        /* zeros: a step that moves bytes and changes no value */
    size_t array_bytes; /* of each */
};

static int dial(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static struct leg pull_leg(enum peer_kind kind, const struct workload_spec *spec,
                           uint64_t row_bytes)
{
    enum peer_method method = kind == PEER_MOVE        ? PEER_ECHO
                              : spec->keys_per_row > 1 ? PEER_SUM
                                                       : PEER_COPY;
    return (struct leg){.header = {.method = method,
                                   .keys_per_row = spec->keys_per_row,
                                   .n_keys = spec->batch,
                                   .request_bytes = spec->batch * sizeof(uint64_t),
                                   .answer_bytes = workload_rows(spec) * row_bytes}};
}

static struct leg push_leg(enum peer_kind kind, const struct workload_spec *spec,
                           uint64_t row_bytes)
{
    return (struct leg){.has_rows = true,
                        .header = {.method = kind == PEER_MOVE ? PEER_ECHO : PEER_ADD,
                                   .keys_per_row = 1,
                                   .n_keys = spec->batch,
                                   .request_bytes = spec->batch * (sizeof(uint64_t) + row_bytes),
                                   .answer_bytes = PEER_ACK_BYTES}};
}

static int send_leg(struct caller *c, const struct leg *leg)
{
    size_t key_bytes = c->workload->spec.batch * sizeof(uint64_t);
    struct iovec pieces[] = {
        {(void *)(uintptr_t)&leg->header, sizeof leg->header},
        {(void *)(uintptr_t)workload_batch(c->workload, c->batch), key_bytes},
        {c->grads, leg->header.request_bytes - key_bytes},
    };
    return peer_write_pieces(c->fd, pieces, leg->has_rows ? 3 : 2) ? DONE : fail("write");
}

static int receive_leg(struct caller *c, const struct leg *leg)
{
    char ack[PEER_ACK_BYTES];
    void *to = leg->has_rows ? ack : c->rows;
    return peer_read(c->fd, to, leg->header.answer_bytes) ? DONE : fail("read");
}

static int start(void *context, uint64_t batch, uint32_t lane)
{
    struct caller *c = context;
    (void)lane;
    c->batch = batch;
    return send_leg(c, &c->legs[0]);
}

static int finish(void *context, uint32_t lane)
{
    struct caller *c = context;
    (void)lane;
    int code = receive_leg(c, &c->legs[0]);
    for (uint32_t i = 1; code == DONE && i < c->n_legs; i++) {
        code = send_leg(c, &c->legs[i]);
        if (code == DONE)
            code = receive_leg(c, &c->legs[i]);
    }
    return code;
}

static void close_caller(void *context)
{
    struct caller *c = context;
    if (c->fd >= 0)
        close(c->fd);
    pages_free(c->rows, c->array_bytes);
    pages_free(c->grads, c->array_bytes);
    free(c);
}

static void set_legs(struct caller *c, enum peer_kind kind, uint64_t row_bytes)
{
    const struct workload_spec *spec = &c->workload->spec;
    if (spec->mix != MIX_PUSH)
        c->legs[c->n_legs++] = pull_leg(kind, spec, row_bytes);
    if (spec->mix == MIX_PUSH || spec->mix == MIX_TRAIN)
        c->legs[c->n_legs++] = push_leg(kind, spec, row_bytes);
}

int peer_mover_open(const struct peer *peer, enum peer_kind kind, const struct workload *w,
                    uint64_t row_bytes, struct mover *out)
{
    struct caller *c = malloc(sizeof *c);
    uint64_t wide = w->spec.dim * sizeof(float);
    size_t bytes = w->spec.batch * (row_bytes > wide ? row_bytes : wide);
    if (!c)
        return fail("memory");
    *c = (struct caller){.fd = dial(peer->port), .workload = w, .array_bytes = bytes};
    c->rows = pages_new(bytes);
    c->grads = pages_new(bytes);
    if (c->fd < 0 || !c->rows || !c->grads) {
        int code = fail(c->fd < 0 ? "connect" : "memory");
        close_caller(c);
        return code;
    }
    set_legs(c, kind, row_bytes);
    *out = (struct mover){c, 1, start, finish, close_caller};
    return DONE;
}

int peer_gather(const void *context, const struct workload *w, double seconds,
                double *keys_per_s_out, uint64_t *n_keys_out)
{
    const struct peer *peer = context;
    uint64_t n_keys = (uint64_t)WORKLOAD_BATCHES * w->spec.batch;
    struct peer_request q = {.method = PEER_GATHER,
                             .keys_per_row = 1,
                             .n_keys = n_keys,
                             .request_bytes = n_keys * sizeof(uint64_t),
                             .answer_bytes = sizeof(struct peer_gathered),
                             .nanoseconds = (uint64_t)(seconds * 1e9)};
    struct peer_gathered done = {0, 1};
    struct iovec pieces[] = {{&q, sizeof q}, {w->keys, q.request_bytes}};
    int code = DONE, fd = dial(peer->port);
    if (fd < 0)
        return fail("connect");
    if (!peer_write_pieces(fd, pieces, 2) || !peer_read(fd, &done, sizeof done))
        code = fail("gather");
    *keys_per_s_out = (double)done.n_keys * 1e9 / (double)done.nanoseconds;
    *n_keys_out = done.n_keys;
    close(fd);
    return code;
}
