/* test_reader.c - what the reader says about messages that are well-formed but wrong: field, value
 * and limit. Cases are built with the builder, which checks none of it. */
#include "tests/unit/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/received.h"

/* ---- a message on its way from a builder to a reader ---- */

struct way {
    struct msg m;
    uint8_t *bytes;
    struct received r;
    struct reader reader;
};

static void begin(struct way *w)
{
    memset(w, 0, sizeof *w);
    embd__msg_init(&w->m);
    embd__msg_request(&w->m, 1, METHOD_PULL);
}

static void arrive(struct way *w)
{
    size_t n;
    assert_int_equal(embd__msg_end(&w->m), EMBD_OK);
    w->bytes = flatten(&w->m, &n);
    received_init(&w->r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    assert_int_equal(received_feed(&w->r, w->bytes, n, 0), FRAME_DONE);
    received_read(&w->r, &w->reader);
}

static void leave(struct way *w)
{
    received_fini(&w->r);
    free(w->bytes);
    embd__msg_fini(&w->m);
}

static void ended_with(struct way *w, int status, const char *text)
{
    assert_string_equal(w->r.error.text, text);
    assert_int_equal(w->r.error.status, status);
    leave(w);
}

/* A request whose map has one field, written by the caller. */
static void begin_field(struct way *w, const char *name)
{
    begin(w);
    embd__msg_map(&w->m, 1);
    embd__msg_str(&w->m, name);
}

static void open_fields(struct way *w, struct fields *f)
{
    arrive(w);
    embd__read_fields(f, &w->reader, "pull");
}

/* ---- fields ---- */

static void numbers_out_of_range_are_refused(void **state)
{
    struct way w;
    struct fields f;
    (void)state;
    begin_field(&w, "n");
    embd__msg_uint(&w.m, 9);
    open_fields(&w, &f);
    assert_int_equal(embd__field_uint(&f, "n", 1, 8, 1), 1);
    ended_with(&w, EMBD_INVALID, "pull field 'n' is 9, the limit is 8");
    begin_field(&w, "n");
    embd__msg_uint(&w.m, 0);
    open_fields(&w, &f);
    assert_int_equal(embd__field_uint(&f, "n", 1, 8, 1), 1);
    ended_with(&w, EMBD_INVALID, "pull field 'n' is 0, below the minimum of 1");
    begin_field(&w, "n");
    embd__msg_f32(&w.m, 1.5f);
    open_fields(&w, &f);
    embd__field_uint(&f, "n", 0, 8, 1);
    ended_with(&w, EMBD_MALFORMED, "pull field 'n' is a float, expected an unsigned integer");
}

static void negative_numbers_are_refused_by_value(void **state)
{
    static const uint8_t message[] = {0x94, 0,    1,    0xa4, 'p', 'u', 'l',
                                      'l',  0x91, 0x81, 0xa1, 'n', 0xff};
    struct received r;
    struct reader reader;
    struct fields f;
    (void)state;
    received_init(&r, 4096, 4096);
    assert_int_equal(received_feed(&r, message, sizeof message, 0), FRAME_DONE);
    assert_int_equal(received_read(&r, &reader), EMBD_OK);
    embd__read_fields(&f, &reader, "pull");
    embd__field_uint(&f, "n", 0, 8, 1);
    assert_string_equal(r.error.text, "pull field 'n' is -1, below the minimum of 0");
    received_fini(&r);
}

static void the_largest_numbers_are_exact(void **state)
{
    struct way w;
    struct fields f;
    (void)state;
    begin_field(&w, "n");
    embd__msg_uint(&w.m, UINT64_MAX);
    open_fields(&w, &f);
    assert_true(embd__field_uint(&f, "n", 0, UINT64_MAX, 0) == UINT64_MAX);
    assert_int_equal(embd__fields_end(&f), EMBD_OK);
    leave(&w);
}

static void absent_fields_take_the_default_unless_required(void **state)
{
    struct way w;
    struct fields f;
    char text[8];
    (void)state;
    begin(&w);
    embd__msg_map(&w.m, 0);
    open_fields(&w, &f);
    assert_int_equal(embd__field_uint(&f, "n", 0, 8, 5), 5);
    assert_true(embd__field_f32(&f, "x", 2.5f) == 2.5f);
    assert_true(embd__field_bool(&f, "b", true));
    embd__field_str(&f, "s", text, sizeof text, "abc");
    assert_string_equal(text, "abc");
    assert_false(embd__field_has(&f, "n"));
    assert_int_equal(embd__field_uint(&f, "m", 3, 8, FIELD_REQUIRED), 3);
    ended_with(&w, EMBD_INVALID, "pull has no field 'm', which is required");
}

static void a_field_nobody_knows_is_named(void **state)
{
    struct way w;
    struct fields f;
    (void)state;
    begin(&w);
    embd__msg_map(&w.m, 2);
    embd__msg_field_uint(&w.m, "n", 1);
    embd__msg_field_uint(&w.m, "color\n", 1);
    open_fields(&w, &f);
    embd__field_uint(&f, "n", 0, 8, 1);
    assert_int_equal(embd__fields_end(&f), EMBD_INVALID);
    ended_with(&w, EMBD_INVALID, "pull has the unknown field 'color?'");
}

static void a_field_that_is_there_twice_is_named(void **state)
{
    struct way w;
    struct fields f;
    (void)state;
    begin(&w);
    embd__msg_map(&w.m, 2);
    embd__msg_field_uint(&w.m, "n", 1);
    embd__msg_field_uint(&w.m, "n", 2);
    open_fields(&w, &f);
    ended_with(&w, EMBD_MALFORMED, "pull has the field 'n' twice");
}

static void field_names_are_strings(void **state)
{
    struct way w;
    struct fields f;
    (void)state;
    begin(&w);
    embd__msg_map(&w.m, 1);
    embd__msg_uint(&w.m, 1);
    embd__msg_uint(&w.m, 2);
    open_fields(&w, &f);
    ended_with(&w, EMBD_MALFORMED, "pull has an unsigned integer as a field name, expected a str");
}

static void a_map_of_too_many_fields_is_refused(void **state)
{
    struct way w;
    struct fields f;
    char name[4] = "aa";
    (void)state;
    begin(&w);
    embd__msg_map(&w.m, 257);
    for (int i = 0; i < 257; i++) {
        name[0] = (char)('a' + i / 16);
        name[1] = (char)('a' + i % 16);
        embd__msg_field_uint(&w.m, name, 1);
    }
    open_fields(&w, &f);
    ended_with(&w, EMBD_TOO_LARGE, "pull has 257 fields, the limit is 256");
}

static void floats_are_rounded_to_f32_and_never_nan(void **state)
{
    struct way w;
    struct fields f;
    (void)state;
    begin(&w);
    embd__msg_map(&w.m, 2);
    embd__msg_field_f32(&w.m, "x", 0.1f);
    embd__msg_field_uint(&w.m, "y", 3);
    open_fields(&w, &f);
    assert_true(embd__field_f32(&f, "x", 0) == 0.1f);
    assert_true(embd__field_f32(&f, "y", 0) == 3.0f);
    leave(&w);
    begin_field(&w, "x");
    embd__msg_f32(&w.m, NAN);
    open_fields(&w, &f);
    assert_true(embd__field_f32(&f, "x", 0) == 0.0f);
    ended_with(&w, EMBD_INVALID, "pull field 'x' is not a number");
    begin_field(&w, "x");
    embd__msg_bool(&w.m, true);
    open_fields(&w, &f);
    embd__field_f32(&f, "x", 0);
    ended_with(&w, EMBD_MALFORMED, "pull field 'x' is a bool, expected a number");
}

static void strings_that_are_too_long_are_refused(void **state)
{
    struct way w;
    struct fields f;
    char text[4];
    (void)state;
    begin_field(&w, "s");
    embd__msg_str(&w.m, "abcd");
    open_fields(&w, &f);
    embd__field_str(&f, "s", text, sizeof text, NULL);
    assert_string_equal(text, "");
    ended_with(&w, EMBD_INVALID, "pull field 's' has 4 bytes, the limit is 3");
}

static void names_of_an_enum_are_listed_when_unknown(void **state)
{
    static const char *const names[] = {"red", "green"};
    struct way w;
    struct fields f;
    (void)state;
    begin_field(&w, "c");
    embd__msg_str(&w.m, "blue");
    open_fields(&w, &f);
    assert_int_equal(embd__field_enum(&f, "c", names, 2, 1), 0);
    ended_with(&w, EMBD_INVALID, "pull field 'c' is 'blue', expected one of red, green");
}

static void lists_and_nested_maps_are_typed_and_bounded(void **state)
{
    struct way w;
    struct fields f, nested;
    const msgpack_object *items;
    (void)state;
    begin_field(&w, "list");
    embd__msg_array(&w.m, 3);
    for (int i = 0; i < 3; i++)
        embd__msg_uint(&w.m, 1);
    open_fields(&w, &f);
    assert_int_equal(embd__field_list(&f, "list", 2, &items), 0);
    ended_with(&w, EMBD_TOO_LARGE, "pull field 'list' has 3 elements, the limit is 2");
    begin_field(&w, "list");
    embd__msg_array(&w.m, 1);
    embd__msg_uint(&w.m, 1);
    open_fields(&w, &f);
    assert_int_equal(embd__field_list(&f, "list", 2, &items), 1);
    embd__list_map(&w.reader, &items[0], &nested, "element 0");
    assert_int_equal(embd__field_uint(&nested, "n", 2, 8, 3), 2);
    ended_with(&w, EMBD_MALFORMED, "element 0 is an unsigned integer, expected a map");
    begin_field(&w, "map");
    embd__msg_array(&w.m, 0);
    open_fields(&w, &f);
    embd__field_map(&f, "map", &nested, "the map");
    ended_with(&w, EMBD_MALFORMED, "the map is an array, expected a map");
}

static void only_the_first_error_is_kept(void **state)
{
    struct embd__error e = {0};
    (void)state;
    assert_int_equal(embd__error_set(&e, EMBD_INVALID, "first %d", 1), EMBD_INVALID);
    assert_int_equal(embd__error_set(&e, EMBD_FULL, "second"), EMBD_INVALID);
    assert_string_equal(e.text, "first 1");
}

/* ---- bins ---- */

static const uint64_t payload[2] = {1, 2};

static void begin_bin(struct way *w, uint64_t bytes)
{
    begin(w);
    embd__msg_map(&w->m, 0);
    embd__msg_bin(&w->m, payload, bytes);
    arrive(w);
}

static void bins_of_the_wrong_length_are_refused(void **state)
{
    struct way w;
    uint64_t bytes;
    (void)state;
    begin_bin(&w, 12);
    assert_null(embd__read_bin(&w.reader, "part 0 keys", 16));
    ended_with(&w, EMBD_MALFORMED, "the bin of part 0 keys has 12 bytes, expected 16");
    begin_bin(&w, 12);
    assert_null(embd__read_bin_any(&w.reader, "grads", 8, 64, &bytes));
    ended_with(&w, EMBD_MALFORMED, "the bin of grads has 12 bytes, expected a multiple of 8");
    begin_bin(&w, 16);
    assert_null(embd__read_bin_any(&w.reader, "grads", 8, 8, &bytes));
    ended_with(&w, EMBD_TOO_LARGE, "the bin of grads has 16 bytes, the limit is 8");
}

static void bins_are_neither_missing_nor_left_over(void **state)
{
    struct way w;
    (void)state;
    begin_bin(&w, 16);
    assert_non_null(embd__read_bin(&w.reader, "keys", 16));
    assert_null(embd__read_bin(&w.reader, "slots", 2));
    ended_with(&w, EMBD_MALFORMED, "the bin of slots is missing");
    begin_bin(&w, 16);
    assert_int_equal(embd__reader_end(&w.reader), EMBD_MALFORMED);
    ended_with(&w, EMBD_MALFORMED, "the message has 1 bins, expected 0");
}

static void an_empty_bin_points_somewhere(void **state)
{
    struct way w;
    (void)state;
    begin_bin(&w, 0);
    const void *data = embd__read_bin(&w.reader, "keys", 0);
    assert_non_null(data);
    assert_int_equal((uintptr_t)data % 8, 0);
    assert_int_equal(embd__reader_end(&w.reader), EMBD_OK);
    leave(&w);
}

static void a_bin_whose_bytes_were_not_kept_is_refused(void **state)
{
    struct way w;
    (void)state;
    begin_bin(&w, 16);
    free(w.r.scanner.bins[0].data);
    w.r.scanner.bins[0].data = NULL;
    assert_null(embd__read_bin(&w.reader, "keys", 16));
    ended_with(&w, EMBD_TOO_LARGE, "the bin of keys has 16 bytes and was not received");
}

/* ---- whole messages ---- */

static void read_raw(struct received *r, struct reader *reader, const char *bytes, size_t n)
{
    received_init(r, 4096, 4096);
    assert_int_equal(received_feed(r, (const uint8_t *)bytes, n, 0), FRAME_DONE);
    received_read(r, reader);
}

static void params_are_a_map_and_bins(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        int status;
        const char *text;
    } cases[] = {
        {"\x94\0\1\xa4ping\xc0", 9, EMBD_MALFORMED, "params is nil, expected an array"},
        {"\x94\0\1\xa4ping\x92\x80\1", 11, EMBD_MALFORMED,
         "params[1] is an unsigned integer, expected a bin"},
        {"\x94\0\1\xa4ping\x91\x81\xa1x\xc4\0", 14, EMBD_MALFORMED,
         "1 bins stand outside the list of bins in params"},
        {"\x94\0\1\7\x91\x80", 6, EMBD_MALFORMED,
         "the method is an unsigned integer, expected a str"},
        {"\x94\1\1\xc0\x80", 5, EMBD_PROTOCOL, "result is a map, expected an array"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct received r;
        struct reader reader;
        read_raw(&r, &reader, cases[i].bytes, cases[i].n);
        assert_string_equal(r.error.text, cases[i].text);
        assert_int_equal(r.error.status, cases[i].status);
        received_fini(&r);
    }
}

static void an_absent_map_reads_as_an_empty_one(void **state)
{
    struct received r;
    struct reader reader;
    struct fields f;
    (void)state;
    read_raw(&r, &reader, "\x94\0\1\xa4ping\x90", 9);
    embd__read_fields(&f, &reader, "ping");
    assert_int_equal(embd__fields_end(&f), EMBD_OK);
    assert_int_equal(embd__reader_end(&reader), EMBD_OK);
    received_fini(&r);
}

static void an_unknown_method_is_no_failure_whatever_its_params(void **state)
{
    struct received r;
    struct reader reader;
    (void)state;
    read_raw(&r, &reader, "\x94\0\1\xa3xyz\x91\x81\1\xc4\0", 13);
    assert_int_equal(r.error.status, EMBD_OK);
    assert_int_equal(reader.method, -1);
    assert_string_equal(reader.method_name, "xyz");
    received_fini(&r);
}

static void foreign_errors_are_read_as_protocol_errors(void **state)
{
    struct received r;
    struct reader reader;
    (void)state;
    read_raw(&r, &reader, "\x94\1\1\xa4oops\xc0", 9);
    assert_int_equal(reader.answer_status, EMBD_PROTOCOL);
    assert_memory_equal(reader.answer_text, "oops", 4);
    received_fini(&r);
    read_raw(&r, &reader, "\x94\1\1\x92\xcd\xff\xff\xa4oops\xc0", 13);
    assert_int_equal(reader.answer_status, EMBD_PROTOCOL);
    assert_memory_equal(reader.answer_text, "oops", 4);
    received_fini(&r);
}

/* ---- the builder ---- */

static void messages_nobody_would_take_are_not_built(void **state)
{
    struct msg m;
    (void)state;
    embd__msg_init(&m);
    embd__msg_request(&m, 1, METHOD_PULL);
    embd__msg_map(&m, 0);
    embd__msg_bin(&m, NULL, (uint64_t)LIMIT_FRAME_BYTES + 1);
    assert_int_equal(embd__msg_end(&m), EMBD_TOO_LARGE);
    embd__msg_request(&m, 1, METHOD_PULL);
    embd__msg_map(&m, 0);
    for (uint32_t i = 0; i <= LIMIT_ANSWER_BINS; i++)
        embd__msg_bin(&m, NULL, 0);
    assert_int_equal(embd__msg_end(&m), EMBD_TOO_LARGE);
    embd__msg_result(&m, 1);
    for (uint32_t i = 0; i < LIMIT_ANSWER_HEADER_BYTES; i++)
        embd__msg_str(&m, "x");
    assert_int_equal(embd__msg_end(&m), EMBD_TOO_LARGE);
    embd__msg_request(&m, 1, METHOD_PULL); /* a new message begins without the old error */
    embd__msg_map(&m, 0);
    assert_int_equal(embd__msg_end(&m), EMBD_OK);
    embd__msg_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(negative_numbers_are_refused_by_value),
        cmocka_unit_test(the_largest_numbers_are_exact),
        cmocka_unit_test(absent_fields_take_the_default_unless_required),
        cmocka_unit_test(a_field_nobody_knows_is_named),
        cmocka_unit_test(a_field_that_is_there_twice_is_named),
        cmocka_unit_test(field_names_are_strings),
        cmocka_unit_test(a_map_of_too_many_fields_is_refused),
        cmocka_unit_test(floats_are_rounded_to_f32_and_never_nan),
        cmocka_unit_test(strings_that_are_too_long_are_refused),
        cmocka_unit_test(names_of_an_enum_are_listed_when_unknown),
        cmocka_unit_test(lists_and_nested_maps_are_typed_and_bounded),
        cmocka_unit_test(only_the_first_error_is_kept),
        cmocka_unit_test(bins_of_the_wrong_length_are_refused),
        cmocka_unit_test(bins_are_neither_missing_nor_left_over),
        cmocka_unit_test(an_empty_bin_points_somewhere),
        cmocka_unit_test(a_bin_whose_bytes_were_not_kept_is_refused),
        cmocka_unit_test(params_are_a_map_and_bins),
        cmocka_unit_test(an_absent_map_reads_as_an_empty_one),
        cmocka_unit_test(an_unknown_method_is_no_failure_whatever_its_params),
        cmocka_unit_test(foreign_errors_are_read_as_protocol_errors),
        cmocka_unit_test(messages_nobody_would_take_are_not_built),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
