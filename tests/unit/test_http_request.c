/* Heads of HTTP requests: what is taken, what is refused with which status, and that neither
 * depends on how the bytes arrive. */
#include "tests/unit/cmocka_all.h"
#include "server/net/http/http_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST " HTTP/1.1\r\nHost: a\r\n\r\n"

/* Fed byte by byte: the first verdict. */
static int read_slowly(const char *bytes, size_t n, struct http_request *out)
{
    char *copy = malloc(n);
    int status = HTTP_MORE;
    for (size_t i = 1; i <= n && status == HTTP_MORE; i++) {
        memcpy(copy, bytes, i);
        status = http_request_read(copy, i, out);
    }
    free(copy);
    return status;
}

static void check(const char *text, int expected)
{
    struct http_request whole, slow;
    int status = http_request_read(text, strlen(text), &whole);
    if (status != expected)
        print_error("%s gave %d\n", text, status);
    assert_int_equal(status, expected);
    assert_int_equal(read_slowly(text, strlen(text), &slow), expected);
    if (expected != HTTP_OK)
        return;
    assert_string_equal(whole.path, slow.path);
    assert_string_equal(whole.query, slow.query);
}

static void test_a_get_gives_path_and_query(void **state)
{
    (void)state;
    struct http_request r;
    const char *text = "GET /readyz?verbose&a=1 HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
    assert_int_equal(http_request_read(text, strlen(text), &r), HTTP_OK);
    assert_string_equal(r.path, "/readyz");
    assert_string_equal(r.query, "verbose&a=1");
    assert_false(r.is_head);
    assert_true(http_request_has(&r, "verbose"));
    assert_true(http_request_has(&r, "a"));
    assert_false(http_request_has(&r, "verb"));
    assert_false(http_request_has(&r, "1"));
    text = "HEAD / HTTP/1.0\n\n";
    assert_int_equal(http_request_read(text, strlen(text), &r), HTTP_OK);
    assert_true(r.is_head);
    assert_string_equal(r.query, "");
}

static void test_verdicts(void **state)
{
    (void)state;
    check("GET /" REST, HTTP_OK);
    check("GET /x HTTP/1.0\r\nA:\r\nContent-Length: 0\r\n\r\n", HTTP_OK);
    check("GET / HTTP/1.1\r\nHost: a\r\n", HTTP_MORE);
    check("POST /" REST, 405);
    check("get /" REST, 400);
    check("GET http://a/" REST, 400);
    check("GET  / HTTP/1.1\r\n\r\n", 400);
    check("GET / HTTP/2.0\r\n\r\n", 505);
    check("GET / HTTX/1.1\r\n\r\n", 400);
    check("GET /\r\n\r\n", 400);
    check("GET /\x01" REST, 400);
    check("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400);
    check("GET / HTTP/1.1\r\n: empty\r\n\r\n", 400);
    check("GET / HTTP/1.1\r\nA : blank\r\n\r\n", 400);
    check("GET / HTTP/1.1\r\nContent-length:\t5 \r\n\r\nhello", 400);
    check("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    check("\x16\x03\x01\x02", 400); /* a TLS peer */
    check("\x94\x00\x01\xa5hello", 400);
    check("GET / HTTP/1.1\r\nA: \x01\r\n\r\n", 400);
    check("GET / HTTP/1.1\r\nA: tab\tinside\r\n\r\n", HTTP_OK);
    struct http_request r;
    static const char with_nul[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
    assert_int_equal(http_request_read(with_nul, sizeof with_nul - 1, &r), 400);
}

static void test_a_host_is_strange_by_its_name(void **state)
{
    static const struct {
        const char *host;
        bool is_strange;
    } hosts[] = {{"localhost", false},      {"LOCALHOST:7780", false},   {"127.0.0.1:7780", false},
                 {"[::1]:7780", false},     {"10.1.2.3", false},         {"", false},
                 {"evil.example", true},    {"evil.example:7780", true}, {"localhost.evil", true},
                 {"127.0.0.1.evil:1", true}};
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        char text[100];
        struct http_request r;
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nhost: %s\r\n\r\n", hosts[i].host);
        assert_int_equal(http_request_read(text, strlen(text), &r), HTTP_OK);
        assert_int_equal(r.has_strange_host, hosts[i].is_strange);
    }
}

static void test_lengths_are_bounded(void **state)
{
    (void)state;
    char *text = malloc(HTTP_HEAD_BYTES + 1);
    for (unsigned n = HTTP_TARGET_BYTES; n <= HTTP_TARGET_BYTES + 1; n++) {
        int at = sprintf(text, "GET /");
        memset(text + at, 'x', n - 1);
        strcpy(text + at + n - 1, REST);
        check(text, n <= HTTP_TARGET_BYTES ? HTTP_OK : 414);
    }
    int at = sprintf(text, "GET / HTTP/1.1\r\nCookie: ");
    memset(text + at, 'x', HTTP_HEAD_BYTES - (size_t)at);
    struct http_request r;
    assert_int_equal(http_request_read(text, HTTP_HEAD_BYTES - 1, &r), HTTP_MORE);
    assert_int_equal(http_request_read(text, HTTP_HEAD_BYTES, &r), 431);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_get_gives_path_and_query),
        cmocka_unit_test(test_a_host_is_strange_by_its_name),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_lengths_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
