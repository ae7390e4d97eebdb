/* test_frame.c - the frame scanner: every byte a value can begin with, every place where a message
 * can be split, and messages that ask for too much. */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/received.h"

#define HEAD 4096

static int feed(struct received *r, const void *bytes, size_t n, size_t piece)
{
    received_init(r, HEAD, LIMIT_FRAME_BYTES);
    return received_feed(r, bytes, n, piece);
}

static void refused(const void *bytes, size_t n, int status, const char *words)
{
    for (size_t piece = 0; piece < 4; piece++) {
        struct received r;
        assert_int_equal(feed(&r, bytes, n, piece), status);
        assert_int_equal(r.error.status, status);
        if (strstr(r.error.text, words) == NULL)
            fail_msg("'%s' does not say '%s'", r.error.text, words);
        received_fini(&r);
    }
}

/* ---- every format ---- */

struct format {
    uint8_t first, last;   /* type bytes */
    uint32_t length_bytes; /* of the length that follows */
    uint32_t more;         /* bytes after the length, for length 0 */
};

/* The MessagePack specification's table of formats, apart from those whose type byte holds a
 * length. */
static const struct format formats[] = {
    {0x00, 0x7f, 0, 0}, {0xc0, 0xc0, 0, 0}, {0xc2, 0xc3, 0, 0}, {0xc4, 0xc4, 1, 0},
    {0xc5, 0xc5, 2, 0}, {0xc6, 0xc6, 4, 0}, {0xc7, 0xc7, 1, 1}, {0xc8, 0xc8, 2, 1},
    {0xc9, 0xc9, 4, 1}, {0xca, 0xca, 0, 4}, {0xcb, 0xcb, 0, 8}, {0xcc, 0xcc, 0, 1},
    {0xcd, 0xcd, 0, 2}, {0xce, 0xce, 0, 4}, {0xcf, 0xcf, 0, 8}, {0xd0, 0xd0, 0, 1},
    {0xd1, 0xd1, 0, 2}, {0xd2, 0xd2, 0, 4}, {0xd3, 0xd3, 0, 8}, {0xd4, 0xd4, 0, 2},
    {0xd5, 0xd5, 0, 3}, {0xd6, 0xd6, 0, 5}, {0xd7, 0xd7, 0, 9}, {0xd8, 0xd8, 0, 17},
    {0xd9, 0xd9, 1, 0}, {0xda, 0xda, 2, 0}, {0xdb, 0xdb, 4, 0}, {0xdc, 0xdc, 2, 0},
    {0xdd, 0xdd, 4, 0}, {0xde, 0xde, 2, 0}, {0xdf, 0xdf, 4, 0}, {0xe0, 0xff, 0, 0},
};

/* Writes [2, "m", [value]] and returns its length. */
static size_t wrap(uint8_t *out, const uint8_t *value, size_t n)
{
    static const uint8_t begin[] = {0x93, 0x02, 0xa1, 'm', 0x91};
    memcpy(out, begin, sizeof begin);
    memcpy(out + sizeof begin, value, n);
    return sizeof begin + n;
}

/* The message ends exactly where it should, at every split, and msgpack-c agrees about the head. */
static void accepted(const uint8_t *value, size_t n)
{
    uint8_t message[512];
    size_t bytes = wrap(message, value, n);
    message[bytes] = 0xc1; /* not to be looked at */
    for (size_t piece = 0; piece < 20; piece++) {
        struct received r;
        msgpack_object o;
        size_t off = 0;
        assert_int_equal(feed(&r, message, bytes + 1, piece), FRAME_DONE);
        assert_int_equal(r.used, bytes);
        assert_int_equal(r.scanner.frame_bytes, bytes);
        assert_int_equal(r.scanner.type, 2);
        assert_false(r.scanner.has_msgid);
        assert_int_equal(msgpack_unpack((char *)r.head, r.scanner.head_bytes, &off, &r.zone, &o),
                         MSGPACK_UNPACK_SUCCESS);
        assert_int_equal(off, r.scanner.head_bytes);
        received_fini(&r);
    }
    for (size_t cut = 0; cut < bytes; cut++) {
        struct received r;
        assert_int_equal(feed(&r, message, cut, 0), FRAME_MORE);
        received_fini(&r);
    }
}

static void every_byte_that_begins_a_value_is_scanned(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        for (uint32_t byte = formats[i].first; byte <= formats[i].last; byte++) {
            uint8_t value[32] = {(uint8_t)byte};
            accepted(value, 1 + formats[i].length_bytes + formats[i].more);
        }
}

static void lengths_inside_the_type_byte_count_bytes_and_elements(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 32; n++) {
        uint8_t str[40] = {(uint8_t)(0xa0 | n)};
        accepted(str, 1 + n);
    }
    for (uint32_t n = 0; n < 16; n++) {
        uint8_t array[40] = {(uint8_t)(0x90 | n)}, map[40] = {(uint8_t)(0x80 | n)};
        accepted(array, 1 + n);
        accepted(map, 1 + 2 * n);
    }
}

/* A value of 3 bytes or elements with its length in 1, 2 and 4 bytes. */
static void lengths_after_the_type_byte_count_bytes_and_elements(void **state)
{
    static const uint8_t types[] = {0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xd9,
                                    0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf};
    static const uint8_t lengths[] = {1, 2, 4, 1, 2, 4, 1, 2, 4, 2, 4, 2, 4};
    (void)state;
    for (size_t i = 0; i < sizeof types; i++) {
        uint8_t value[32] = {types[i]};
        bool is_ext = types[i] >= 0xc7 && types[i] <= 0xc9, is_map = types[i] >= 0xde;
        value[lengths[i]] = 3;
        accepted(value, 1u + lengths[i] + is_ext + (is_map ? 6 : 3));
    }
}

static void the_byte_that_begins_nothing_is_refused(void **state)
{
    (void)state;
    uint8_t message[16], c1 = 0xc1;
    refused(message, wrap(message, &c1, 1), EMBD_MALFORMED, "byte 0xc1");
}

/* ---- the outermost array ---- */

static void a_message_begins_with_an_array_of_three_or_four(void **state)
{
    (void)state;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint8_t message[] = {(uint8_t)byte, 0, 0, 0, 0, 0};
        struct received r;
        int event = feed(&r, message, sizeof message, 0);
        if (byte == 0x94) /* [0, 0, 0, 0]: what the elements are is the reader's business */
            assert_int_equal(event, FRAME_DONE);
        else
            assert_int_equal(event, EMBD_MALFORMED);
        received_fini(&r);
    }
    refused("\xdd\0\0\0\5", 5, EMBD_MALFORMED, "5 elements, expected 3 or 4");
    refused("\xdc\xff\xff", 3, EMBD_MALFORMED, "65535 elements");
    refused("\x82\0\0", 3, EMBD_MALFORMED, "byte 0x82, expected an array");
}

static void the_message_type_and_the_count_of_elements_agree(void **state)
{
    (void)state;
    refused("\x93\0", 2, EMBD_MALFORMED, "a message of type 0 has 3 elements, expected 4");
    refused("\x93\1", 2, EMBD_MALFORMED, "a message of type 1 has 3 elements, expected 4");
    refused("\x94\2", 2, EMBD_MALFORMED, "a message of type 2 has 4 elements, expected 3");
    refused("\x94\3", 2, EMBD_MALFORMED, "byte 0x03, expected 0, 1 or 2");
    refused("\x94\xff", 2, EMBD_MALFORMED, "byte 0xff");
    refused("\x94\xc0", 2, EMBD_MALFORMED, "byte 0xc0");
    refused("\x94\x90", 2, EMBD_MALFORMED, "byte 0x90");
}

static void a_msgid_of_any_encoding_is_recorded(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        uint32_t msgid;
    } cases[] = {
        {"\x7f", 1, 127},
        {"\xcc\xff", 2, 255},
        {"\xcd\1\0", 3, 256},
        {"\xce\xff\xff\xff\xff", 5, UINT32_MAX},
        {"\xcf\0\0\0\0\0\0\0\1", 9, 1},
        {"\xd0\x7f", 2, 127},
        {"\xd3\0\0\0\0\xff\xff\xff\xff", 9, UINT32_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t message[32] = {0x94, 0};
        struct received r;
        memcpy(message + 2, cases[i].bytes, cases[i].n);
        memcpy(message + 2 + cases[i].n, "\xa1m\x90", 3);
        assert_int_equal(feed(&r, message, 5 + cases[i].n, 1), FRAME_DONE);
        assert_true(r.scanner.has_msgid);
        assert_int_equal(r.scanner.msgid, cases[i].msgid);
        received_fini(&r);
    }
}

static void a_msgid_that_is_none_is_refused(void **state)
{
    (void)state;
    refused("\x94\0\xcf\0\0\0\1\0\0\0\0", 11, EMBD_MALFORMED,
            "the msgid is 4294967296, the limit is 4294967295");
    refused("\x94\0\xff", 3, EMBD_MALFORMED, "msgid begins with byte 0xff");
    refused("\x94\1\xd0\x80", 4, EMBD_MALFORMED, "msgid begins with byte 0xd0");
    refused("\x94\0\xa0", 3, EMBD_MALFORMED, "msgid begins with byte 0xa0");
    refused("\x94\0\xc4\0", 4, EMBD_MALFORMED, "msgid begins with byte 0xc4");
}

/* ---- bins ---- */

static void bins_are_cut_out_and_their_places_kept(void **state)
{
    /* [2, "m", [{}, bin 8 "abc", bin 16 "", bin 32 "de"]] */
    static const char message[] = "\x93\2\xa1m\x94\x80\xc4\3abc\xc5\0\0\xc6\0\0\0\2de";
    static const char head[] = "\x93\2\xa1m\x94\x80\xc4\0\xc5\0\0\xc6\0\0\0\0";
    (void)state;
    for (size_t piece = 0; piece < 20; piece++) {
        struct received r;
        assert_int_equal(feed(&r, message, sizeof message - 1, piece), FRAME_DONE);
        const struct frame_scanner *s = &r.scanner;
        assert_int_equal(s->frame_bytes, sizeof message - 1);
        assert_int_equal(s->head_bytes, sizeof head - 1);
        assert_memory_equal(s->head, head, sizeof head - 1);
        assert_int_equal(s->n_bins, 3);
        assert_int_equal(s->bins[0].at, 8);
        assert_int_equal(s->bins[1].at, 11);
        assert_int_equal(s->bins[2].at, 16);
        assert_int_equal(s->bins[0].bytes, 3);
        assert_int_equal(s->bins[1].bytes, 0);
        assert_int_equal(s->bins[2].bytes, 2);
        assert_memory_equal(s->bins[0].data, "abc", 3);
        assert_memory_equal(s->bins[2].data, "de", 2);
        received_fini(&r);
    }
}

/* Clients of the MessagePack before bin pack bytes so. Texts in maps stay what they are. */
static void a_str_among_the_params_of_a_request_is_a_bin(void **state)
{
    /* [0, 1, "m", [{"k": "v"}, fixstr "abc", str 8 "", str 16 "de", str 32 "f"]] */
    static const char message[] = "\x94\0\1\xa1m\x95\x81\xa1k\xa1v\xa3"
                                  "abc\xd9\0\xda\0\2de\xdb\0\0\0\1f";
    static const char head[] = "\x94\0\1\xa1m\x95\x81\xa1k\xa1v\xa0\xd9\0\xda\0\0\xdb\0\0\0\0";
    static const uint32_t sizes[4] = {3, 0, 2, 1};
    (void)state;
    for (size_t piece = 0; piece < 30; piece++) {
        struct received r;
        assert_int_equal(feed(&r, message, sizeof message - 1, piece), FRAME_DONE);
        const struct frame_scanner *s = &r.scanner;
        assert_int_equal(s->frame_bytes, sizeof message - 1);
        assert_int_equal(s->head_bytes, sizeof head - 1);
        assert_memory_equal(s->head, head, sizeof head - 1);
        assert_int_equal(s->n_bins, 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(s->bins[i].bytes, sizes[i]);
        assert_memory_equal(s->bins[0].data, "abc", 3);
        assert_memory_equal(s->bins[3].data, "f", 1);
        received_fini(&r);
    }
}

static void a_message_that_ends_with_a_bin_is_done_without_more_bytes(void **state)
{
    static const uint8_t message[] = {0x93, 2, 0xa1, 'm', 0xc4, 0};
    struct frame_scanner s;
    struct embd__error e = {0};
    uint8_t head[16];
    size_t used;
    (void)state;
    embd__frame_init(&s, head, sizeof head, 100);
    assert_int_equal(embd__frame_scan(&s, message, sizeof message, &used, &e), FRAME_BIN);
    assert_int_equal(used, sizeof message);
    assert_int_equal(embd__frame_scan(&s, NULL, 0, &used, &e), FRAME_DONE);
    assert_int_equal(used, 0);
}

static void too_many_bins_are_refused(void **state)
{
    uint8_t message[16 + 2 * (LIMIT_BINS + 1)] = {
        0x93, 2, 0xa1, 'm', 0xdc, (LIMIT_BINS + 1) >> 8, (LIMIT_BINS + 1) & 0xff};
    (void)state;
    for (uint32_t i = 0; i <= LIMIT_BINS; i++)
        message[7 + 2 * i] = 0xc4;
    refused(message, sizeof message, EMBD_TOO_LARGE, "321 bins or more, the limit is 320");
}

static void more_bins_are_taken_where_there_is_room_for_them(void **state)
{
    static uint8_t message[16 + 2 * LIMIT_ANSWER_BINS];
    static struct frame_bin more[LIMIT_ANSWER_BINS - LIMIT_BINS];
    const uint8_t begin[] = {
        0x93, 2, 0xa1, 'm', 0xdc, LIMIT_ANSWER_BINS >> 8, LIMIT_ANSWER_BINS & 0xff};
    struct frame_scanner s;
    struct embd__error e = {0};
    static uint8_t head[sizeof message];
    size_t at = 0, used;
    (void)state;
    memcpy(message, begin, sizeof begin);
    for (uint32_t i = 0; i < LIMIT_ANSWER_BINS; i++)
        message[sizeof begin + 2 * i] = 0xc4;
    embd__frame_init(&s, head, sizeof head, sizeof message);
    s.more = more;
    while (embd__frame_scan(&s, message + at, sizeof message - at, &used, &e) == FRAME_BIN)
        at += used;
    assert_int_equal(e.status, EMBD_OK);
    assert_int_equal(s.n_bins, LIMIT_ANSWER_BINS);
    for (uint32_t i = 0; i < LIMIT_ANSWER_BINS; i++)
        assert_int_equal(embd__frame_bin(&s, i)->at, sizeof begin + 2 * i + 2);
}

static void a_frame_over_its_limit_stays_in_step_and_is_told(void **state)
{
    static const char two[] = "\x93\2\xa1m\xc4\4abcd"
                              "\x93\2\xa1m\xc0";
    struct frame_scanner s;
    struct embd__error e = {0};
    uint8_t head[16];
    size_t used;
    (void)state;
    embd__frame_init(&s, head, sizeof head, 9);
    assert_int_equal(embd__frame_scan(&s, (const uint8_t *)two, 6, &used, &e), FRAME_BIN);
    assert_true(embd__frame_over(&s));
    assert_int_equal(s.frame_bytes, 10);
    assert_int_equal(embd__frame_scan(&s, NULL, 0, &used, &e), FRAME_DONE);
    embd__frame_reset(&s);
    assert_false(embd__frame_over(&s));
    assert_int_equal(embd__frame_scan(&s, (const uint8_t *)two + 10, 5, &used, &e), FRAME_DONE);
    embd__frame_reset(&s);
    s.frame_limit = 10;
    assert_int_equal(embd__frame_scan(&s, (const uint8_t *)two, 6, &used, &e), FRAME_BIN);
    assert_false(embd__frame_over(&s));
}

/* ---- bombs ---- */

static bool is_push(const char *message, size_t n)
{
    struct received r;
    feed(&r, (const uint8_t *)message, n, 1);
    bool is = embd__frame_is_request(&r.scanner, "push");
    received_fini(&r);
    return is;
}

static void a_request_is_known_by_its_method_before_its_params_have_come(void **state)
{
    (void)state;
    assert_true(is_push("\x94\0\1\xa4push", 8));
    assert_true(is_push("\x94\0\1\xa4push\x92\x80\xc6\0\0\0\2a", 15));
    assert_true(is_push("\xdc\0\4\xcc\0\xce\1\2\3\4\xa4push", 15));
    assert_true(is_push("\xdd\0\0\0\4\0\xcf\0\0\0\0\0\0\0\7\xa4push", 20));
    assert_false(is_push("\x94\0\1\xa4pus", 7));
    assert_false(is_push("\x94\0\1\xa4pull", 8));
    assert_false(is_push("\x94\0\1\xa5pushy", 9));
    assert_false(is_push("\x94\0\1\xa3pus\x90", 8));
    assert_false(is_push("\x94\0\1\xd9\4push", 9)); /* a longer form: as of any method */
    assert_false(is_push("\x93\2\xa4push", 7));
    assert_false(is_push("\x94\1\1\xa4push", 8));
    assert_false(is_push("", 0));
}

static void depth_is_limited(void **state)
{
    uint8_t arrays[64], maps[64];
    (void)state;
    memset(arrays, 0x91, sizeof arrays);
    memset(maps, 0x81, sizeof maps);
    memcpy(arrays, "\x93\2\xa1m", 4);
    memcpy(maps, "\x93\2\xa1m", 4);
    refused(arrays, sizeof arrays, EMBD_TOO_LARGE, "an array is nested 7 deep, the limit is 6");
    refused(maps, sizeof maps, EMBD_TOO_LARGE, "limit is 6"); /* a map as a key nests too */
    uint8_t deepest[] = {0x93, 2, 0xa1, 'm', 0x91, 0x91, 0x91, 0x91, 0x91, 0xc0};
    struct received r;
    assert_int_equal(feed(&r, deepest, sizeof deepest, 0), FRAME_DONE);
    received_fini(&r);
}

static void counts_are_limited_before_anything_is_allocated(void **state)
{
    (void)state;
    refused("\x93\2\xa1m\xdd\xff\xff\xff\xff", 9, EMBD_TOO_LARGE,
            "an array has 4294967295 elements, the limit is 16384");
    refused("\x93\2\xa1m\xdf\xff\xff\xff\xff", 9, EMBD_TOO_LARGE,
            "a map has 8589934590 elements, the limit is 16384");
    refused("\x93\2\xa1m\xdf\x80\0\0\0", 9, EMBD_TOO_LARGE, "a map has 4294967296 elements");
    refused("\x93\2\xa1m\xdc\x40\x01", 7, EMBD_TOO_LARGE, "an array has 16385 elements");
    refused("\x93\2\xa1m\xde\x20\x01", 7, EMBD_TOO_LARGE, "a map has 16386 elements");
}

static void the_header_is_limited(void **state)
{
    (void)state;
    refused("\x93\2\xa1m\xdb\xff\xff\xff\xff", 9, EMBD_TOO_LARGE,
            "the message without its bins has 4294967304 bytes or more, the limit is 4096");
    refused("\x93\2\xa1m\xc9\xff\xff\xff\xff\1", 10, EMBD_TOO_LARGE, "the limit is 4096");
    uint8_t *message = malloc(8192);
    memcpy(message, "\x93\2\xa1m\xda\x0f\xf9", 7); /* 7 + 4089 = 4096 */
    memset(message + 7, 'x', 8185);
    struct received r;
    assert_int_equal(feed(&r, message, 8192, 100), FRAME_DONE);
    assert_int_equal(r.scanner.head_bytes, 4096);
    received_fini(&r);
    message[6] = 0xfa;
    refused(message, 8192, EMBD_TOO_LARGE, "has 4097 bytes or more, the limit is 4096");
    memcpy(message, "\x93\2\xa1m\xdc\x08\0", 7); /* 2048 numbers of 9 bytes */
    for (uint32_t i = 7; i < 8192; i++)
        message[i] = i % 9 == 7 ? 0xcf : 0;
    refused(message, 8192, EMBD_TOO_LARGE, "the limit is 4096");
    free(message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_that_begins_a_value_is_scanned),
        cmocka_unit_test(lengths_inside_the_type_byte_count_bytes_and_elements),
        cmocka_unit_test(lengths_after_the_type_byte_count_bytes_and_elements),
        cmocka_unit_test(the_byte_that_begins_nothing_is_refused),
        cmocka_unit_test(a_message_begins_with_an_array_of_three_or_four),
        cmocka_unit_test(the_message_type_and_the_count_of_elements_agree),
        cmocka_unit_test(a_msgid_of_any_encoding_is_recorded),
        cmocka_unit_test(a_msgid_that_is_none_is_refused),
        cmocka_unit_test(bins_are_cut_out_and_their_places_kept),
        cmocka_unit_test(a_str_among_the_params_of_a_request_is_a_bin),
        cmocka_unit_test(a_message_that_ends_with_a_bin_is_done_without_more_bytes),
        cmocka_unit_test(too_many_bins_are_refused),
        cmocka_unit_test(more_bins_are_taken_where_there_is_room_for_them),
        cmocka_unit_test(a_frame_over_its_limit_stays_in_step_and_is_told),
        cmocka_unit_test(a_request_is_known_by_its_method_before_its_params_have_come),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(counts_are_limited_before_anything_is_allocated),
        cmocka_unit_test(the_header_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
