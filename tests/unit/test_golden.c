/* test_golden.c - one message of each kind against its bytes in golden/, and those bytes cut and
 * damaged. */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/golden_messages.h"

#ifndef STRIDE /* under sanitizers not every value of a byte: fuzz_frame takes the same */
#define STRIDE 1
#endif

static size_t load(uint32_t i, uint8_t bytes[GOLDEN_BYTES])
{
    size_t n = read_golden(goldens[i].name, bytes, GOLDEN_BYTES);
    if (n == SIZE_MAX)
        fail_msg("golden/%s.hex cannot be read", goldens[i].name);
    return n;
}

static void each_built_message_has_the_golden_bytes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_goldens; i++) {
        uint8_t expected[GOLDEN_BYTES];
        struct msg m;
        size_t n = load(i, expected), n_built;
        embd__msg_init(&m);
        goldens[i].build(&m);
        assert_int_equal(m.status, EMBD_OK);
        uint8_t *built = flatten(&m, &n_built);
        size_t same = 0;
        while (same < n && same < n_built && built[same] == expected[same])
            same++;
        if (same < n || same < n_built)
            fail_msg("%s: built %zu bytes, expected %zu, they part at byte %zu", goldens[i].name,
                     n_built, n, same);
        free(built);
        embd__msg_fini(&m);
    }
}

static void each_golden_message_reads_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_goldens; i++) {
        uint8_t bytes[GOLDEN_BYTES];
        size_t n = load(i, bytes);
        for (size_t piece = 0; piece < 12; piece++) {
            struct received r;
            struct reader reader;
            received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
            assert_int_equal(received_feed(&r, bytes, n, piece), FRAME_DONE);
            assert_int_equal(r.used, n);
            assert_int_equal(received_read(&r, &reader), EMBD_OK);
            goldens[i].check(&reader);
            if (r.error.status != EMBD_OK)
                fail_msg("%s: %s", goldens[i].name, r.error.text);
            received_fini(&r);
        }
    }
}

static void a_truncated_message_is_never_complete(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_goldens; i++) {
        uint8_t bytes[GOLDEN_BYTES];
        size_t n = load(i, bytes);
        for (size_t cut = 0; cut < n; cut++) {
            struct received r;
            received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
            assert_int_equal(received_feed(&r, bytes, cut, 0), FRAME_MORE);
            received_fini(&r);
        }
    }
}

/* Scans and reads bytes that may be anything. Whatever comes of it, an error has a sentence. */
static void survive(uint32_t i, const uint8_t *bytes, size_t n)
{
    struct received r;
    struct reader reader;
    received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    int event = received_feed(&r, bytes, n, 0);
    if (event == FRAME_DONE && received_read(&r, &reader) == EMBD_OK)
        goldens[i].read(&reader);
    assert_int_equal(r.error.text[0] == '\0', r.error.status == EMBD_OK);
    received_fini(&r);
}

static void a_damaged_message_is_read_or_refused_but_never_harms(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_goldens; i++) {
        uint8_t bytes[GOLDEN_BYTES];
        size_t n = load(i, bytes);
        for (size_t at = 0; at < n; at++)
            for (uint32_t value = (uint32_t)at % STRIDE; value < 256; value += STRIDE) {
                uint8_t was = bytes[at];
                bytes[at] = (uint8_t)value;
                survive(i, bytes, n);
                bytes[at] = was;
            }
    }
}

/* A head that lost its end after the scan, as no scanner would give it. */
static void a_head_that_is_not_whole_is_refused_by_the_reader(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_goldens; i++) {
        uint8_t bytes[GOLDEN_BYTES];
        size_t n = load(i, bytes);
        struct received r;
        struct reader reader;
        received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
        assert_int_equal(received_feed(&r, bytes, n, 0), FRAME_DONE);
        for (uint32_t head_bytes = r.scanner.head_bytes; head_bytes-- > 0;) {
            r.scanner.head_bytes = head_bytes;
            memset(&r.error, 0, sizeof r.error);
            int expected = r.scanner.type == 1 ? EMBD_PROTOCOL : EMBD_MALFORMED;
            assert_int_equal(received_read(&r, &reader), expected);
            assert_non_null(strstr(r.error.text, "is damaged"));
        }
        received_fini(&r);
    }
}

/* ---- the document ---- */

static char *read_document(void)
{
    FILE *file = fopen(PROTOCOL_MD, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    assert_true(n > 0);
    return text;
}

/* PROTOCOL.md shows an example as "```hex NAME", its bytes, "```". */
static uint32_t check_example(const char *start, const char *end)
{
    char name[64];
    uint8_t shown[GOLDEN_BYTES], expected[GOLDEN_BYTES];
    assert_int_equal(sscanf(start, "```hex %63s", name), 1);
    const char *bytes = strchr(start, '\n');
    size_t n_shown = read_hex(bytes, (size_t)(end - bytes), shown, sizeof shown);
    size_t n = read_golden(name, expected, sizeof expected);
    if (n == SIZE_MAX || n_shown != n || memcmp(shown, expected, n) != 0)
        fail_msg("the example %s in PROTOCOL.md is not golden/%s.hex", name, name);
    return 1;
}

static void the_examples_of_the_document_are_the_golden_bytes(void **state)
{
    (void)state;
    char *text = read_document();
    uint32_t n_examples = 0;
    for (const char *at = strstr(text, "```hex "); at != NULL; at = strstr(at + 1, "```hex ")) {
        const char *end = strstr(at + 3, "\n```");
        assert_non_null(end);
        n_examples += check_example(at, end);
    }
    assert_true(n_examples >= 8);
    free(text);
}

static void the_document_names_every_method_and_every_error(void **state)
{
    (void)state;
    char *text = read_document(), row[64];
    for (int i = 0; i < METHOD_COUNT; i++) {
        snprintf(row, sizeof row, "| `%s` |", embd__method_name((enum method)i));
        if (strstr(text, row) == NULL)
            fail_msg("PROTOCOL.md has no row for the method %s", embd__method_name((enum method)i));
    }
#define CHECK_STATUS(name, number, words)                                                          \
    if (strstr(text, "| " #number " | `" #name "` | " words) == NULL)                              \
        fail_msg("PROTOCOL.md has no row for the error %d", number);
    EMBD_STATUS_LIST(CHECK_STATUS)
#undef CHECK_STATUS
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_built_message_has_the_golden_bytes),
        cmocka_unit_test(each_golden_message_reads_back),
        cmocka_unit_test(a_truncated_message_is_never_complete),
        cmocka_unit_test(a_damaged_message_is_read_or_refused_but_never_harms),
        cmocka_unit_test(a_head_that_is_not_whole_is_refused_by_the_reader),
        cmocka_unit_test(the_examples_of_the_document_are_the_golden_bytes),
        cmocka_unit_test(the_document_names_every_method_and_every_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
