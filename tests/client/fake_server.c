/* fake_server.c - one blocking connection at a time, on a thread of its own. Frames are read with
 * the product's scanner and good answers are made with the product's builder; bad ones are bent
 * from them. */
#include "tests/client/fake_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/placement_wire.h"
#include "proto/route.h"
#include "proto/schema.h"

#define BIN_MAX (1u << 20)

struct peer {
    struct fake_server *server;
    int fd;
    struct frame_scanner frame;
    uint8_t head[LIMIT_HEADER_BYTES];
    uint64_t bins[8][BIN_MAX / 8];
    msgpack_zone zone;
    struct msg answer;
};

static bool read_all(int fd, void *to, size_t bytes)
{
    return bytes == 0 || recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static bool send_all(int fd, const void *from, size_t bytes)
{
    const uint8_t *p = from;
    while (bytes > 0) {
        ssize_t sent = send(fd, p, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        p += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

/* A whole request, byte by byte; slow and plain. */
static bool read_request(struct peer *p)
{
    struct embd__error e = {0};
    embd__frame_init(&p->frame, p->head, sizeof p->head, LIMIT_FRAME_BYTES);
    for (;;) {
        uint8_t byte;
        size_t used;
        if (!read_all(p->fd, &byte, 1))
            return false;
        int event = embd__frame_scan(&p->frame, &byte, 1, &used, &e);
        while (event == FRAME_BIN) {
            struct frame_bin *bin = &p->frame.bins[p->frame.n_bins - 1];
            if (bin->bytes > BIN_MAX || p->frame.n_bins > 8 ||
                !read_all(p->fd, p->bins[p->frame.n_bins - 1], bin->bytes))
                return false;
            bin->data = (uint8_t *)p->bins[p->frame.n_bins - 1];
            event = embd__frame_scan(&p->frame, &byte, 0, &used, &e);
        }
        if (event != FRAME_MORE)
            return event == FRAME_DONE;
    }
}

static bool send_answer_until(struct peer *p, uint64_t limit)
{
    struct msg *m = &p->answer;
    if (embd__msg_end(m) != EMBD_OK)
        return false;
    for (uint32_t i = 0; i < embd__msg_n_pieces(m) && limit > 0; i++) {
        struct msg_piece piece = embd__msg_piece(m, i);
        uint64_t bytes = piece.bytes < limit ? piece.bytes : limit;
        if (!send_all(p->fd, piece.data, bytes))
            return false;
        limit -= bytes;
    }
    return true;
}

#define PIECES 8u

/* In one go, as servers do: it comes whole, unless it is long. */
static bool send_answer(struct peer *p)
{
    struct msg *m = &p->answer;
    struct iovec iov[PIECES];
    uint32_t n = embd__msg_end(m) == EMBD_OK ? embd__msg_n_pieces(m) : 0;
    if (n == 0 || n > PIECES)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct msg_piece piece = embd__msg_piece(m, i);
        iov[i] = (struct iovec){(void *)(uintptr_t)piece.data, piece.bytes};
    }
    const struct msghdr message = {.msg_iov = iov, .msg_iovlen = n};
    return sendmsg(p->fd, &message, MSG_NOSIGNAL) == (ssize_t)embd__msg_bytes(m);
}

/* ---- answers ---- */

static bool answer_hello(struct peer *p, uint32_t msgid, int manner)
{
    struct msg *m = &p->answer;
    bool other = manner == FAKE_OTHER_SHARD;
    embd__msg_result(m, msgid);
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "protocol", manner == FAKE_OLD_VERSION ? 2 : 1);
    embd__msg_field_uint(m, "shard", other ? 1 : 0);
    embd__msg_field_uint(m, "shards", other ? 2 : 1);
    return send_answer(p);
}

static uint64_t map_version(const struct peer *p)
{
    return p->server->moves != NULL ? atomic_load(&p->server->moves->version) : 0;
}

static bool answer_cluster(struct peer *p, uint32_t msgid, int manner)
{
    struct msg *m = &p->answer;
    uint32_t n = manner == FAKE_NO_MAP ? 0 : 1;
    uint64_t version = map_version(p);
    struct placement place;
    const struct fake_server *home =
        p->server->moves != NULL ? p->server->moves->homes[version % 2] : p->server;
    if (manner == FAKE_MAP_LATER) {
        p->server->manner = FAKE_MAP_NEW;
        embd__msg_error(m, msgid, EMBD_BUSY, "not now");
        return send_answer(p);
    }
    embd__msg_result(m, msgid);
    embd__msg_map(m, manner == FAKE_MAP_NEW ? 3 : 2);
    embd__placement_even(&place, 2, 1);
    if (manner == FAKE_MAP_NEW)
        embd__placement_write(m, &place);
    embd__msg_field_uint(m, "version", version);
    embd__msg_str(m, "shards");
    embd__msg_array(m, n);
    if (n > 0) {
        embd__msg_map(m, 1);
        embd__msg_field_str(m, "address", home->address);
    }
    return send_answer(p);
}

static bool answer_describe(struct peer *p, uint32_t msgid, int manner)
{
    struct msg *m = &p->answer;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, manner == FAKE_OTHER_SCHEMA ? "u" : "t");
    schema.dim = FAKE_DIM;
    embd__msg_result(m, msgid);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", embd__table_id("t"));
    embd__msg_str(m, "schema");
    embd__schema_write(m, &schema);
    return send_answer(p);
}

static bool answer_empty(struct peer *p, uint32_t msgid)
{
    embd__msg_result(&p->answer, msgid);
    embd__msg_map(&p->answer, 0);
    return send_answer(p);
}

static void write_pull(struct peer *p, uint32_t msgid, uint32_t rows, uint32_t dim,
                       embd_dtype dtype, const void *values)
{
    struct part_answer answer = {.n_rows = rows, .dim = dim, .dtype = dtype, .values = values};
    embd__msg_result(&p->answer, msgid);
    embd__pull_answer_write(&p->answer, &answer, 1, map_version(p), NULL);
}

static void rewrite_rows(struct msg *m, uint8_t rows)
{
    uint8_t *at = memmem(m->head, m->head_bytes, "\xa4rows", 5);
    at[5] = rows;
}

static bool send_huge_bin(struct peer *p, uint32_t msgid)
{
    uint8_t head[16] = {0x94,
                        0x01,
                        0xce,
                        (uint8_t)(msgid >> 24),
                        (uint8_t)(msgid >> 16),
                        (uint8_t)(msgid >> 8),
                        (uint8_t)msgid,
                        0xc0,
                        0x91,
                        0xc6,
                        0xff,
                        0xff,
                        0xff,
                        0xff};
    return send_all(p->fd, head, 14) && read_all(p->fd, head, 1);
}

/* False ends the connection. */
static bool answer_pull(struct peer *p, uint32_t msgid, uint32_t rows, int manner)
{
    static const float ones[4096] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct msg *m = &p->answer;
    struct timespec pause = {.tv_nsec = 450000000};
    uint64_t all = (uint64_t)rows * FAKE_DIM * 4;
    write_pull(p, msgid, rows, FAKE_DIM, EMBD_DTYPE_F32, ones);
    switch (manner) {
    case FAKE_SILENT:
        return true;
    case FAKE_SLOW:
        send_answer_until(p, embd__msg_bytes(m) - all / 2);
        nanosleep(&pause, NULL);
        return send_all(p->fd, ones, all / 2);
    case FAKE_CLOSES:
        return false;
    case FAKE_ANSWERS_AND_RESETS:
        p->server->manner = FAKE_GOOD;
        setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        send_answer(p);
        return false;
    case FAKE_CLOSES_ONCE:
        p->server->manner = FAKE_CLOSES_MIDWAY_ONCE;
        return false;
    case FAKE_CLOSES_MIDWAY_ONCE:
        p->server->manner = FAKE_GOOD;
        send_answer_until(p, embd__msg_bytes(m) - all / 2);
        return false;
    case FAKE_CLOSES_MIDWAY:
        send_answer_until(p, embd__msg_bytes(m) - all / 2);
        return false;
    case FAKE_GARBAGE:
        return send_all(p->fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    case FAKE_OTHER_MSGID:
        write_pull(p, msgid + 1000, rows, FAKE_DIM, EMBD_DTYPE_F32, ones);
        break;
    case FAKE_REQUESTS:
        embd__msg_request(m, msgid, METHOD_PING);
        embd__msg_map(m, 0);
        break;
    case FAKE_MANY_ROWS:
        write_pull(p, msgid, rows + 100, FAKE_DIM, EMBD_DTYPE_F32, ones);
        break;
    case FAKE_FEW_ROWS:
        write_pull(p, msgid, rows - 1, FAKE_DIM, EMBD_DTYPE_F32, ones);
        break;
    case FAKE_OTHER_DIM:
        write_pull(p, msgid, rows * 2, FAKE_DIM / 2, EMBD_DTYPE_F32, ones);
        break;
    case FAKE_OTHER_DTYPE:
        write_pull(p, msgid, rows, FAKE_DIM * 2, EMBD_DTYPE_F16, ones);
        break;
    case FAKE_LYING_ROWS:
        rewrite_rows(m, (uint8_t)(rows + 1));
        break;
    case FAKE_LONG_BIN:
        write_pull(p, msgid, rows + 1, FAKE_DIM, EMBD_DTYPE_F32, ones);
        rewrite_rows(m, (uint8_t)rows);
        break;
    case FAKE_EXTRA_BIN:
        embd__msg_bin(m, ones, 8);
        break;
    case FAKE_NO_BIN:
        embd__msg_result(m, msgid);
        embd__msg_map(m, 0);
        break;
    case FAKE_HUGE_BIN:
        return send_huge_bin(p, msgid);
    case FAKE_STRANGE_ERROR:
        embd__msg_error(m, msgid, -12345, "strange");
        return send_all(p->fd, m->head, m->head_bytes);
    case FAKE_MOVED:
        p->server->manner = FAKE_MAP_LATER;
        embd__msg_error(m, msgid, EMBD_MOVED, "by another map");
        break;
    case FAKE_NOTIFIES:
        send_all(p->fd, "\x93\x02\xa4news\x90", 8);
        break;
    default:
        break;
    }
    return send_answer(p);
}

static bool answer_one(struct peer *p)
{
    struct reader reader;
    struct embd__error e = {0};
    struct part part;
    struct timespec pause = {.tv_nsec = 900000000};
    int manner = p->server->manner;
    if (embd__reader_init(&reader, &p->frame, &p->zone, &e) != EMBD_OK)
        return false;
    switch (reader.method) {
    case METHOD_HELLO:
        return answer_hello(p, reader.msgid, manner);
    case METHOD_CLUSTER:
        return answer_cluster(p, reader.msgid, manner);
    case METHOD_TABLE_DESCRIBE:
        return answer_describe(p, reader.msgid, manner);
    case METHOD_PING:
        if (manner == FAKE_READS_NOTHING)
            nanosleep(&pause, NULL);
        return answer_empty(p, reader.msgid);
    case METHOD_PULL:
        if (embd__parts_read(&reader, &part, 1, PARTS_PULL) != 1)
            return false;
        return answer_pull(p, reader.msgid, part.n_rows, manner);
    default:
        return false;
    }
}

static void serve(struct fake_server *server, int fd)
{
    struct peer *p = calloc(1, sizeof *p);
    p->server = server;
    p->fd = fd;
    msgpack_zone_init(&p->zone, 1024);
    embd__msg_init(&p->answer);
    while (read_request(p) && answer_one(p))
        continue;
    embd__msg_fini(&p->answer);
    msgpack_zone_destroy(&p->zone);
    close(fd);
    free(p);
}

static void *run(void *arg)
{
    struct fake_server *server = arg;
    while (!server->stops) {
        struct pollfd poll_fd = {.fd = server->listener, .events = POLLIN};
        if (poll(&poll_fd, 1, 20) == 1)
            serve(server, accept(server->listener, NULL, NULL));
    }
    return NULL;
}

void fake_server_start(struct fake_server *server)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    server->listener = socket(AF_INET, SOCK_STREAM, 0);
    server->moves = NULL;
    server->manner = FAKE_GOOD;
    server->stops = false;
    if (bind(server->listener, (struct sockaddr *)&name, sizeof name) != 0 ||
        listen(server->listener, 16) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&name, &bytes) != 0)
        exit(1);
    snprintf(server->address, sizeof server->address, "127.0.0.1:%d", ntohs(name.sin_port));
    pthread_create(&server->thread, NULL, run, server);
}

void fake_server_stop(struct fake_server *server)
{
    server->stops = true;
    pthread_join(server->thread, NULL);
    close(server->listener);
}
