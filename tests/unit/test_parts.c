/* test_parts.c - parts of pulls and pushes that a server must not believe. Each case changes one
 * thing about a sound part, on its way through builder, scanner and reader. */
#include "tests/unit/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/received.h"

static const uint64_t keys[4] = {1, 2, 3, 4};

/* Sends the part; returns what the reader says. */
static int deliver(const struct part *part, uint32_t n, bool is_push, struct embd__error *e)
{
    static struct part out[LIMIT_PARTS];
    struct msg m;
    struct received r;
    struct reader reader;
    size_t bytes;
    embd__msg_init(&m);
    embd__msg_request(&m, 1, is_push ? METHOD_PUSH : METHOD_PULL);
    embd__parts_write(&m, part, n, is_push ? PARTS_PUSH : PARTS_PULL);
    assert_int_equal(embd__msg_end(&m), EMBD_OK);
    uint8_t *flat = flatten(&m, &bytes);
    received_init(&r, LIMIT_ANSWER_HEADER_BYTES, LIMIT_FRAME_BYTES);
    assert_int_equal(received_feed(&r, flat, bytes, 0), FRAME_DONE);
    int status = received_read(&r, &reader);
    if (status == EMBD_OK)
        status = embd__parts_read(&reader, out, LIMIT_PARTS, is_push ? PARTS_PUSH : PARTS_PULL);
    *e = r.error;
    received_fini(&r);
    free(flat);
    embd__msg_fini(&m);
    return status;
}

static void refused(const struct part *part, bool is_push, int status, const char *text)
{
    struct embd__error e;
    assert_int_equal(deliver(part, 1, is_push, &e), status);
    assert_string_equal(e.text, text);
}

static struct part sound(const uint32_t *offsets)
{
    return (struct part){.table = 7, .n_keys = 4, .n_rows = 3, .keys = keys, .offsets = offsets};
}

static void offsets_start_at_zero(void **state)
{
    static const uint32_t offsets[4] = {1, 2, 3, 4};
    struct part p = sound(offsets);
    (void)state;
    refused(&p, false, EMBD_INVALID, "part 0 offsets[0] is 1, expected 0");
}

static void offsets_never_fall(void **state)
{
    static const uint32_t offsets[4] = {0, 3, 2, 4};
    struct part p = sound(offsets);
    (void)state;
    refused(&p, false, EMBD_INVALID, "part 0 offsets[2] is 2, below offsets[1] which is 3");
    refused(&p, true, EMBD_INVALID, "part 0 offsets[2] is 2, below offsets[1] which is 3");
}

static void offsets_end_at_the_number_of_keys(void **state)
{
    static const uint32_t low[4] = {0, 1, 2, 3}, high[4] = {0, 1, 2, 5};
    struct part p = sound(low);
    (void)state;
    refused(&p, false, EMBD_INVALID, "part 0 offsets[3] is 3, expected the number of keys, 4");
    p.offsets = high;
    refused(&p, false, EMBD_INVALID, "part 0 offsets[3] is 5, expected the number of keys, 4");
}

/* Any single wrong offset among many is found and named. */
static void one_bad_offset_among_many_is_named(void **state)
{
    enum { N = 1000 };
    static uint32_t offsets[N + 1];
    static uint64_t many[N];
    struct part p = {.table = 7, .n_keys = N, .n_rows = N, .keys = many, .offsets = offsets};
    struct embd__error e;
    char expected[32];
    (void)state;
    for (uint32_t bad = 1; bad < N; bad++) {
        for (uint32_t i = 0; i <= N; i++)
            offsets[i] = i;
        offsets[bad] = N + 1;
        assert_int_equal(deliver(&p, 1, false, &e), EMBD_INVALID);
        snprintf(expected, sizeof expected, "part 0 offsets[%u] is", bad + 1);
        assert_memory_equal(e.text, expected, strlen(expected));
    }
}

static void weights_are_finite(void **state)
{
    static const uint32_t offsets[4] = {0, 1, 2, 4};
    float weights[4] = {1, 2, INFINITY, 3};
    struct part p = sound(offsets);
    (void)state;
    p.weights = weights;
    refused(&p, false, EMBD_INVALID, "part 0 weights[2] is inf, expected a finite number");
    weights[2] = -3e38f;
    weights[3] = NAN;
    struct embd__error e;
    assert_int_equal(deliver(&p, 1, true, &e), EMBD_INVALID);
    assert_non_null(strstr(e.text, "part 0 weights[3] is"));
    weights[3] = 0;
    assert_int_equal(deliver(&p, 1, false, &e), 1);
}

/* -inf says that a key gets none. */
static void scores_are_finite_or_none(void **state)
{
    static const float bad[] = {INFINITY, NAN};
    float scores[4] = {-INFINITY, -0.0f, 1e-45f, 3e38f};
    struct part p = sound(NULL);
    struct embd__error e;
    (void)state;
    p.n_rows = 4;
    p.scores = scores;
    assert_int_equal(deliver(&p, 1, true, &e), 1);
    refused(&p, false, EMBD_INVALID, "part 0 has the unknown field 'scores'");
    for (int i = 0; i < 2; i++) {
        scores[3] = bad[i];
        assert_int_equal(deliver(&p, 1, true, &e), EMBD_INVALID);
        assert_non_null(strstr(e.text, "part 0 scores[3] is "));
        assert_non_null(strstr(e.text, ", expected a finite number, or -inf"));
    }
}

static void weights_and_scale_need_rows(void **state)
{
    static const float weights[4] = {1, 1, 1, 1};
    struct part p = {.table = 7, .n_keys = 4, .n_rows = 4, .keys = keys, .weights = weights};
    (void)state;
    refused(&p, false, EMBD_INVALID, "part 0 has weights, which need 'rows' and offsets");
    p.weights = NULL;
    p.scale = true;
    refused(&p, false, EMBD_INVALID, "part 0 has 'scale', which needs 'rows' and offsets");
    refused(&p, true, EMBD_INVALID, "part 0 has 'scale', which needs 'rows' and offsets");
}

static void a_push_has_no_use_for_what_only_a_pull_can_ask(void **state)
{
    struct part p = {.table = 7, .n_keys = 4, .n_rows = 4, .keys = keys, .zero_missing = true};
    (void)state;
    refused(&p, true, EMBD_INVALID, "part 0 has the unknown field 'zero'");
}

static void a_table_id_is_needed_and_never_zero(void **state)
{
    struct part p = {.n_keys = 4, .n_rows = 4, .keys = keys};
    (void)state;
    refused(&p, false, EMBD_INVALID, "part 0 field 'table' is 0, below the minimum of 1");
}

static void gradients_are_whole_numbers_of_values(void **state)
{
    struct part p = {
        .table = 7, .n_keys = 1, .n_rows = 1, .keys = keys, .grads = keys, .grads_bytes = 6};
    (void)state;
    refused(&p, true, EMBD_MALFORMED,
            "the bin of part 0 grads has 6 bytes, expected a multiple of 4");
}

/* A map that promises other counts than the bins have. */
static int deliver_counts(uint64_t n_keys, uint64_t n_rows, struct embd__error *e)
{
    static struct part out[1];
    struct msg m;
    struct received r;
    struct reader reader;
    size_t bytes;
    embd__msg_init(&m);
    embd__msg_request(&m, 1, METHOD_PULL);
    embd__msg_map(&m, 1);
    embd__msg_str(&m, "parts");
    embd__msg_array(&m, 1);
    embd__msg_map(&m, 3);
    embd__msg_field_uint(&m, "table", 1);
    embd__msg_field_uint(&m, "keys", n_keys);
    embd__msg_field_uint(&m, "rows", n_rows);
    embd__msg_bin(&m, keys, 8);
    embd__msg_bin(&m, keys, 8);
    embd__msg_end(&m);
    uint8_t *flat = flatten(&m, &bytes);
    received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    assert_int_equal(received_feed(&r, flat, bytes, 0), FRAME_DONE);
    received_read(&r, &reader);
    int status = embd__parts_read(&reader, out, 1, PARTS_PULL);
    *e = r.error;
    received_fini(&r);
    free(flat);
    embd__msg_fini(&m);
    return status;
}

static void counts_are_within_their_limits_and_match_the_bins(void **state)
{
    struct embd__error e;
    (void)state;
    assert_int_equal(deliver_counts(LIMIT_KEYS + 1ull, 1, &e), EMBD_TOO_LARGE);
    assert_string_equal(e.text, "part 0 field 'keys' is 4194305, the limit is 4194304");
    assert_int_equal(deliver_counts(1, LIMIT_ROWS + 1ull, &e), EMBD_TOO_LARGE);
    assert_string_equal(e.text, "part 0 field 'rows' is 4194305, the limit is 4194304");
    assert_int_equal(deliver_counts(1ull << 61, 1, &e), EMBD_TOO_LARGE);
    assert_int_equal(deliver_counts(UINT64_MAX, 1, &e), EMBD_INVALID);
    assert_int_equal(deliver_counts(2, 1, &e), EMBD_MALFORMED);
    assert_string_equal(e.text, "the bin of part 0 keys has 8 bytes, expected 16");
    assert_int_equal(deliver_counts(1, 2, &e), EMBD_MALFORMED);
    assert_string_equal(e.text, "the bin of part 0 offsets has 8 bytes, expected 12");
    assert_int_equal(deliver_counts(1, UINT64_MAX - 1, &e), EMBD_TOO_LARGE);
}

/* Of n parts, each with as many keys as a part may have. */
static int deliver_many_keys(uint32_t n, struct embd__error *e)
{
    static struct part parts[5];
    uint64_t *many = calloc(LIMIT_KEYS, sizeof *many);
    const uint32_t offsets[2] = {0, LIMIT_KEYS};
    struct push_extra extra = {.order = 0};
    struct reader reader;
    struct received r;
    struct msg m;
    size_t bytes;
    for (uint32_t i = 0; i < n; i++)
        parts[i] = (struct part){.table = i + 1,
                                 .n_keys = LIMIT_KEYS,
                                 .n_rows = 1,
                                 .keys = many,
                                 .offsets = offsets,
                                 .grads = many,
                                 .grads_bytes = 8};
    embd__msg_init(&m);
    embd__msg_request(&m, 1, METHOD_PUSH);
    embd__push_write(&m, parts, n, &extra);
    assert_int_equal(embd__msg_end(&m), EMBD_OK);
    uint8_t *flat = flatten(&m, &bytes);
    received_init(&r, LIMIT_HEADER_BYTES, LIMIT_PUSH_BYTES);
    assert_int_equal(received_feed(&r, flat, bytes, 0), FRAME_DONE);
    received_read(&r, &reader);
    int status = embd__push_read(&reader, parts, 5, &extra);
    *e = r.error;
    received_fini(&r);
    free(flat);
    free(many);
    embd__msg_fini(&m);
    return status;
}

static void keys_of_all_parts_of_a_push_are_counted(void **state)
{
    struct embd__error e;
    (void)state;
    assert_int_equal(deliver_many_keys(4, &e), 4);
    assert_int_equal(deliver_many_keys(5, &e), EMBD_TOO_LARGE);
    assert_non_null(strstr(e.text, "20971520 keys for a shard"));
    assert_non_null(strstr(e.text, "is 16777216"));
}

static void parts_are_counted(void **state)
{
    static struct part parts[LIMIT_PART_MAPS + 1];
    struct embd__error e;
    (void)state;
    for (uint32_t i = 0; i <= LIMIT_PART_MAPS; i++)
        parts[i] = (struct part){.table = i + 1, .n_keys = 1, .n_rows = 1, .keys = keys};
    assert_int_equal(deliver(parts, LIMIT_PART_MAPS, false, &e), LIMIT_PART_MAPS);
    assert_int_equal(deliver(parts, LIMIT_PART_MAPS + 1, false, &e), EMBD_TOO_LARGE);
    assert_string_equal(e.text, "the message field 'parts' has 65 elements, the limit is 64");
    assert_int_equal(deliver(parts, 0, false, &e), 0);
}

static void the_second_part_is_named_too(void **state)
{
    static const uint32_t offsets[4] = {0, 3, 2, 4};
    static struct part parts[13];
    struct embd__error e;
    (void)state;
    for (uint32_t i = 0; i < 12; i++)
        parts[i] = (struct part){.table = i + 1, .n_keys = 1, .n_rows = 1, .keys = keys};
    parts[12] = sound(offsets);
    assert_int_equal(deliver(parts, 13, false, &e), EMBD_INVALID);
    assert_string_equal(e.text, "part 12 offsets[2] is 2, below offsets[1] which is 3");
}

static void empty_parts_are_sound(void **state)
{
    static const uint32_t offsets[1] = {0};
    const struct part parts[2] = {
        {.table = 1, .keys = keys},
        {.table = 2, .keys = keys, .offsets = offsets},
    };
    struct embd__error e;
    (void)state;
    assert_int_equal(deliver(parts, 2, false, &e), 2);
    assert_int_equal(deliver(parts, 2, true, &e), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_start_at_zero),
        cmocka_unit_test(offsets_never_fall),
        cmocka_unit_test(offsets_end_at_the_number_of_keys),
        cmocka_unit_test(one_bad_offset_among_many_is_named),
        cmocka_unit_test(weights_are_finite),
        cmocka_unit_test(scores_are_finite_or_none),
        cmocka_unit_test(weights_and_scale_need_rows),
        cmocka_unit_test(a_push_has_no_use_for_what_only_a_pull_can_ask),
        cmocka_unit_test(a_table_id_is_needed_and_never_zero),
        cmocka_unit_test(gradients_are_whole_numbers_of_values),
        cmocka_unit_test(counts_are_within_their_limits_and_match_the_bins),
        cmocka_unit_test(keys_of_all_parts_of_a_push_are_counted),
        cmocka_unit_test(parts_are_counted),
        cmocka_unit_test(the_second_part_is_named_too),
        cmocka_unit_test(empty_parts_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
