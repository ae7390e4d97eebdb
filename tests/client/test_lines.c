/* test_lines.c - which trunk a link's line goes by, with carriers that connect to nobody; and how
 * one through TLS is read, and ends, with a server that is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/io/channel.h"
#include "client/io/trunk.h"
#include "proto/tls/tls.h"
#include "proto/trunk.h"
#include "tests/unit/certificate.h"

static uint32_t n_carried;
static struct trunk *last_carried;

static int carry(struct trunk *trunk, uv_loop_t *loop, const struct link_config *config,
                 struct trunk_carrier *out, struct embd__error *e)
{
    (void)loop;
    (void)config;
    (void)out;
    (void)e;
    n_carried++;
    last_carried = trunk;
    return EMBD_OK;
}

static uint32_t n_lost;

static void on_lose(void *owner, int status, const char *why)
{
    (void)status;
    (void)why;
    n_lost++;
    embd__trunk_line_close(owner);
}

static const struct trunk_line_events events = {.on_lose = on_lose};

static void open_line(struct trunks *trunks, struct trunk_line *line, uint64_t process,
                      const char *host)
{
    struct embd__error e = {0};
    *line = (struct trunk_line){.events = &events, .owner = line};
    assert_int_equal(embd__trunk_line_open(trunks, line, process, host, NULL, &e), EMBD_OK);
}

static void lines_share_a_trunk_where_process_and_verified_name_are_the_same(void **state)
{
    enum { LINES = 6 };
    static const struct {
        uint64_t process;
        const char *host;
        uint32_t n_carried;
    } cases[LINES] = {
        {1, "", 1},          {1, "", 1},          {2, "", 2}, {1, "a.example", 3},
        {1, "a.example", 3}, {1, "b.example", 4}, /* which only says that it is that process */
    };
    struct trunk_line lines[LINES];
    struct trunks trunks;
    struct embd__error e = {0};
    uv_loop_t loop;
    (void)state;
    uv_loop_init(&loop);
    assert_int_equal(embd__trunks_init(&trunks, &loop, TRUNK_ALWAYS, &e), EMBD_OK);
    trunks.carry = carry;
    n_carried = 0;
    for (int i = 0; i < LINES; i++) {
        open_line(&trunks, &lines[i], cases[i].process, cases[i].host);
        assert_int_equal(n_carried, cases[i].n_carried);
    }
    embd__trunk_start(last_carried, &(struct channel){.fd = -1}); /* none was opened */
    assert_int_equal(n_lost, 1);
    assert_null(lines[LINES - 1].trunk);
    for (int i = 0; i < LINES; i++)
        embd__trunk_line_close(&lines[i]);
    assert_null(trunks.list);
    embd__trunks_close(&trunks);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    embd__trunks_fini(&trunks);
}

/* ---- through TLS ---- */

static struct tls_context *server_context, *client_context;

static void read_context(void)
{
    char folder[] = "/tmp/embd-lines-XXXXXX", cert[64], key[64];
    struct embd__error e = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(cert, sizeof cert, "%s/cert", folder);
    snprintf(key, sizeof key, "%s/key", folder);
    certificate_write(cert, key);
    const struct tls_files own = {.cert = cert, .key = key}, ca = {.ca = cert};
    assert_int_equal(embd__tls_server(&own, &server_context, &e), EMBD_OK);
    assert_int_equal(embd__tls_client(&ca, &client_context, &e), EMBD_OK);
    unlink(cert);
    unlink(key);
    rmdir(folder);
}

/* A trunk with one line, and its server. */
struct sealed {
    uv_loop_t loop;
    struct trunks trunks;
    struct trunk_line line;
    struct tls_session *server;
    int fd;                                /* the server's */
    size_t sent, come, come_in_turn, most; /* bytes of the line; `most` are sent in all */
    bool has_failed;                       /* the time is up */
    char why[LIMIT_ERROR_TEXT];            /* of the line's end */
};

static void push(struct sealed *s)
{
    size_t n = 0;
    ssize_t sent = 0;
    const uint8_t *out;
    while ((out = embd__tls_outgoing(s->server, &n), n > 0) && sent >= 0) {
        sent = send(s->fd, out, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        embd__tls_sent(s->server, sent > 0 ? (size_t)sent : 0);
    }
}

/* As much as the socket takes. */
static void fill(struct sealed *s)
{
    static uint8_t chunk[TRUNK_HEAD_BYTES + TRUNK_DATA_BYTES];
    struct embd__error e = {0};
    size_t waiting = 0;
    embd__trunk_head(chunk, TRUNK_DATA, 0, TRUNK_DATA_BYTES);
    for (push(s); waiting == 0 && s->sent < s->most; push(s)) {
        assert_int_equal(embd__tls_write(s->server, chunk, sizeof chunk, &e), EMBD_OK);
        s->sent += TRUNK_DATA_BYTES;
        push(s);
        embd__tls_outgoing(s->server, &waiting);
    }
}

static void on_open(void *owner)
{
    (void)owner;
}

static void on_soon(void *owner, bool is_next)
{
    (void)owner;
    (void)is_next;
}

/* The server is never slower than the client. */
static void on_bytes(void *owner, uint8_t *p, size_t n)
{
    struct sealed *s = owner;
    (void)p;
    s->come += n;
    s->come_in_turn += n;
    fill(s);
}

static void on_ready(void *owner, bool readable, bool writable)
{
    struct sealed *s = owner;
    (void)writable;
    if (!readable || embd__trunk_receive(&s->line) != -EPROTO)
        return;
    snprintf(s->why, sizeof s->why, "%s", embd__trunk_error(&s->line)->text);
    embd__trunk_line_close(&s->line);
    uv_stop(&s->loop);
}

static void on_sealed_lose(void *owner, int status, const char *why)
{
    struct sealed *s = owner;
    (void)status;
    snprintf(s->why, sizeof s->why, "%s", why);
    embd__trunk_line_close(&s->line);
    uv_stop(&s->loop);
}

static const struct trunk_line_events sealed_events = {on_open, on_ready, on_soon, on_bytes,
                                                       on_sealed_lose};

static void shake(struct sealed *s, struct channel *ch)
{
    uint8_t bytes[8192], plain[64];
    struct embd__error e = {0};
    int done = 0;
    for (int i = 0; i < 10 && done == 0; i++) {
        done = embd__channel_handshake(ch);
        ssize_t n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        embd__tls_feed(s->server, bytes, n > 0 ? (size_t)n : 0);
        assert_int_equal(embd__tls_read(s->server, plain, sizeof plain, &e), 0);
        push(s);
    }
    assert_int_equal(done, 1);
    assert_true(embd__tls_is_up(s->server));
}

static void begin(struct sealed *s)
{
    struct embd__error e = {0};
    struct channel ch;
    int pair[2];
    *s = (struct sealed){.line = {.events = &sealed_events, .owner = s}};
    uv_loop_init(&s->loop);
    s->loop.data = s;
    assert_int_equal(embd__trunks_init(&s->trunks, &s->loop, TRUNK_ALWAYS, &e), EMBD_OK);
    s->trunks.carry = carry;
    assert_int_equal(embd__trunk_line_open(&s->trunks, &s->line, 1, "localhost", NULL, &e),
                     EMBD_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    s->fd = pair[1];
    const int much = 4 << 20; /* or what the host allows */
    setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &much, sizeof much);
    assert_int_equal(embd__tls_open(server_context, NULL, &s->server, &e), EMBD_OK);
    assert_int_equal(embd__channel_open(&ch, pair[0], client_context, "localhost", &e), EMBD_OK);
    shake(s, &ch);
    embd__trunk_start(last_carried, &ch);
}

static void end(struct sealed *s)
{
    embd__trunk_line_close(&s->line);
    assert_null(s->trunks.list);
    embd__trunks_close(&s->trunks);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&s->loop), 0);
    embd__trunks_fini(&s->trunks);
    embd__tls_close(s->server);
    close(s->fd);
}

static void on_time_up(uv_timer_t *timer)
{
    struct sealed *s = timer->loop->data;
    s->has_failed = true;
    uv_stop(timer->loop);
}

static size_t most_in_turn;

static void on_turn(uv_check_t *check)
{
    struct sealed *s = check->loop->data;
    most_in_turn = s->come_in_turn > most_in_turn ? s->come_in_turn : most_in_turn;
    s->come_in_turn = 0;
    fill(s);
    if (s->come == s->most)
        uv_stop(check->loop);
}

/* Until the line has all that it is to get, or has ended. */
static void run(struct sealed *s)
{
    uv_timer_t timer;
    uv_check_t check;
    uv_timer_init(&s->loop, &timer);
    uv_timer_start(&timer, on_time_up, 60000, 0);
    uv_check_init(&s->loop, &check);
    uv_check_start(&check, on_turn);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_close((uv_handle_t *)&check, NULL);
    uv_run(&s->loop, UV_RUN_NOWAIT);
    assert_false(s->has_failed);
}

static void a_server_that_is_never_slower_leaves_others_their_turns_and_nothing_is_forgotten(
    void **state)
{
    enum { TURN_BYTES = 4 << 20 };
    struct sealed s;
    (void)state;
    for (size_t more = 0; more < 16; more++) { /* a turn ends in the midst of what came last, too */
        begin(&s);
        s.most = (more == 0 ? 4 * TURN_BYTES : TURN_BYTES) + more * TRUNK_DATA_BYTES;
        most_in_turn = 0;
        fill(&s);
        run(&s);
        assert_int_equal(s.come, s.most);
        assert_in_range(most_in_turn, 1, TURN_BYTES);
        end(&s);
    }
}

static void lines_are_told_why_tls_has_ended(void **state)
{
    struct sealed s;
    (void)state;
    begin(&s);
    s.most = 1; /* which never come */
    s.sent = 1;
    assert_int_equal(send(s.fd, "this is no record of TLS", 24, 0), 24);
    run(&s);
    assert_memory_equal(s.why, "TLS: ", 5);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_share_a_trunk_where_process_and_verified_name_are_the_same),
        cmocka_unit_test(
            a_server_that_is_never_slower_leaves_others_their_turns_and_nothing_is_forgotten),
        cmocka_unit_test(lines_are_told_why_tls_has_ended),
    };
    read_context();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    embd__tls_drop(server_context);
    embd__tls_drop(client_context);
    return failed;
}
