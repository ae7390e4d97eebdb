/* What OpenSSL takes for one connection on the server's side, and what waits to be sent: the
 * charges of tls.h are no less, whatever the peer does. Each block remembers for whom it was taken,
 * so that the client beside it does not count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/tls/tls.h"
#include "tests/unit/certificate.h"

/* ---- who takes how much ---- */

struct block {
    size_t bytes, is_servers;
};

static bool is_servers_turn;
static size_t taken, most;

static void count(size_t bytes)
{
    taken += bytes;
    if (taken > most)
        most = taken;
}

static void *take(size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    struct block *block = malloc(sizeof *block + bytes);
    if (block == NULL)
        return NULL;
    *block = (struct block){bytes, is_servers_turn};
    if (block->is_servers)
        count(bytes + sizeof *block); /* malloc's own is no more */
    return block + 1;
}

static void give(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    struct block *block = p;
    if (block == NULL)
        return;
    block--;
    if (block->is_servers)
        taken -= block->bytes + sizeof *block;
    free(block);
}

static void *take_again(void *p, size_t bytes, const char *file, int line)
{
    void *next = bytes > 0 ? take(bytes, file, line) : NULL;
    if (p != NULL && next != NULL) {
        size_t before = ((struct block *)p)[-1].bytes;
        memcpy(next, p, before < bytes ? before : bytes);
    }
    if (next != NULL || bytes == 0)
        give(p, file, line);
    return next;
}

/* ---- two ends ---- */

static char folder[] = "/tmp/embd-tls-memory-XXXXXX", cert[64], key[64];
static struct tls_context *server, *asking, *client;

static struct tls_session *open_end(struct tls_context *context, const char *host)
{
    struct embd__error e = {0};
    struct tls_session *out;
    assert_int_equal(embd__tls_open(context, host, &out, &e), EMBD_OK);
    return out;
}

/* What `from` has to say reaches `to`, `step` bytes at a time. */
static void carry(struct tls_session *from, struct tls_session *to, bool to_server, size_t step)
{
    static uint8_t bytes[1 << 20], plain[1 << 16];
    struct embd__error e = {0};
    size_t n, at;
    const uint8_t *out = embd__tls_outgoing(from, &n);
    memcpy(bytes, out, n);
    embd__tls_sent(from, n);
    for (at = 0; at < n; at += step) {
        is_servers_turn = to_server;
        embd__tls_feed(to, bytes + at, n - at < step ? n - at : step);
        while (embd__tls_read(to, plain, sizeof plain, &e) > 0)
            ;
        is_servers_turn = false;
        assert_int_equal(e.status, EMBD_OK);
    }
}

static struct tls_session *open_server(struct tls_context *context)
{
    taken = most = 0;
    is_servers_turn = true;
    struct tls_session *out = open_end(context, NULL);
    is_servers_turn = false;
    return out;
}

static void shake(struct tls_session *here, struct tls_session *there)
{
    struct embd__error e = {0};
    embd__tls_handshake(there, &e);
    for (int i = 0; i < 4; i++) {
        carry(there, here, true, 700);
        carry(here, there, false, 700);
    }
    assert_true(embd__tls_is_up(here) && embd__tls_is_up(there));
}

static void close_end(struct tls_session *s, bool is_servers)
{
    is_servers_turn = is_servers;
    embd__tls_close(s);
    is_servers_turn = false;
}

/* ---- the charges ---- */

static void check_rest(struct tls_context *context, const char *what)
{
    struct tls_session *here = open_server(context), *there = open_end(client, "localhost");
    struct embd__error e = {0};
    static uint8_t data[100000];
    shake(here, there);
    print_message("%s: %zu bytes at most in the handshake, %zu after it\n", what, most, taken);
    assert_true(most + TLS_OUT_BYTES < TLS_HANDSHAKE_BYTES);
    assert_true(taken + TLS_OUT_BYTES < TLS_SESSION_BYTES);
    most = taken;
    for (int i = 0; i < 3; i++) { /* with records that come in pieces, too */
        embd__tls_write(there, data, sizeof data, &e);
        carry(there, here, true, i == 0 ? sizeof data : 5000);
        is_servers_turn = true;
        embd__tls_write(here, data, sizeof data, &e);
        is_servers_turn = false;
        carry(here, there, false, sizeof data);
    }
    print_message("%s: %zu at most while data passes, %zu after it\n", what, most, taken);
    assert_true(most + TLS_OUT_BYTES < TLS_SESSION_BYTES);
    assert_true(taken > 1000); /* it is counted at all */
    close_end(there, false);
    close_end(here, true);
}

static void a_session_takes_no_more_than_it_is_charged_with(void **state)
{
    (void)state;
    check_rest(server, "server");
    check_rest(asking, "server that asks for a certificate");
}

/* Announces a message of `bytes` in records, and sends it but for its end. */
static void announce(uint32_t bytes, size_t sent)
{
    static uint8_t stream[200000];
    uint8_t plain[1024];
    struct embd__error e = {0};
    size_t n = 0;
    for (size_t at = 0; at < sent; at += 16384) {
        uint8_t head[5] = {22, 3, 1, 0x40, 0};
        memcpy(stream + n, head, sizeof head);
        memset(stream + n + sizeof head, 0, 16384);
        if (at == 0) {
            uint8_t hello[6] = {1, (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8), (uint8_t)bytes, 3,
                                3};
            memcpy(stream + n + sizeof head, hello, sizeof hello);
        }
        n += sizeof head + 16384;
    }
    struct tls_session *here = open_server(server);
    is_servers_turn = true;
    embd__tls_feed(here, stream, n);
    embd__tls_read(here, plain, sizeof plain, &e);
    is_servers_turn = false;
    print_message("a hello of %u bytes, %zu of them sent: %zu bytes\n", bytes, sent, most);
    assert_true(most + TLS_OUT_BYTES < TLS_HANDSHAKE_BYTES);
    close_end(here, true);
}

static void a_hello_that_announces_much_takes_no_more_than_a_handshake_is_charged_with(void **state)
{
    (void)state;
    announce(131396, 16384); /* the longest that OpenSSL takes */
    announce(131396, 131072);
    announce(131397, 16384);
    announce(0xffffff, 16384);
}

/* ---- what waits to be sent ---- */

static struct tls_session *slow_end;
static uint32_t n_read;

/* `slow_end` gets n bytes more, which go on with the numbers that it got before. */
static void read_numbers(const uint8_t *bytes, size_t n)
{
    uint32_t number;
    struct embd__error e = {0};
    long got;
    embd__tls_feed(slow_end, bytes, n);
    while ((got = embd__tls_read(slow_end, &number, sizeof number, &e)) > 0) {
        assert_int_equal(got, sizeof number);
        assert_int_equal(number, n_read++);
    }
    assert_int_equal(got, 0);
}

static void a_peer_that_reads_slowly_is_kept_no_more_than_twice_what_waits(void **state)
{
    enum { RECORDS = 100000, MOST = 40000 };
    struct tls_session *here = open_server(server);
    struct embd__error e = {0};
    size_t waiting;
    (void)state;
    slow_end = open_end(client, "localhost");
    shake(here, slow_end);
    n_read = 0;
    for (uint32_t i = 0; i < RECORDS; i++) {
        assert_int_equal(embd__tls_write(here, &i, sizeof i, &e), EMBD_OK);
        const uint8_t *out = embd__tls_outgoing(here, &waiting);
        size_t step = waiting > MOST ? 61 : 0; /* it lags, and never has all */
        read_numbers(out, step);
        embd__tls_sent(here, step);
        assert_in_range(embd__tls_out_bytes(here), waiting, 2 * MOST + 1000);
    }
    const uint8_t *out = embd__tls_outgoing(here, &waiting);
    read_numbers(out, waiting);
    assert_int_equal(n_read, RECORDS);
    close_end(slow_end, false);
    close_end(here, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_takes_no_more_than_it_is_charged_with),
        cmocka_unit_test(
            a_hello_that_announces_much_takes_no_more_than_a_handshake_is_charged_with),
        cmocka_unit_test(a_peer_that_reads_slowly_is_kept_no_more_than_twice_what_waits),
    };
    struct embd__error e = {0};
    if (CRYPTO_set_mem_functions(take, take_again, give) != 1 || mkdtemp(folder) == NULL)
        return 1;
    snprintf(cert, sizeof cert, "%s/cert", folder);
    snprintf(key, sizeof key, "%s/key", folder);
    certificate_write(cert, key);
    const struct tls_files own = {.cert = cert, .key = key},
                           both = {.cert = cert, .key = key, .ca = cert};
    if (embd__tls_server(&own, &server, &e) != EMBD_OK ||
        embd__tls_server(&both, &asking, &e) != EMBD_OK ||
        embd__tls_client(&both, &client, &e) != EMBD_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    embd__tls_drop(server);
    embd__tls_drop(asking);
    embd__tls_drop(client);
    unlink(cert);
    unlink(key);
    rmdir(folder);
    return failed;
}
