/* test_columns.c - parts as columns: what is read is what was written, and each thing that a peer
 * may say falsely is refused by name. A false message is a sound one with one number changed. */
#include "tests/unit/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/received.h"

static const uint64_t keys[4] = {5, 6, 7, 8};
static const uint32_t offsets[4] = {0, 1, 1, 4};
static const uint16_t slots[3] = {0, 1, 2};
static const float weights[4] = {1, 2, 3, 4};
static const float grads[6] = {1, 2, 3, 4, 5, 6};

/* Every kind of array and every length of padding among them; part 1 has nothing. */
static const struct part sound[] = {
    {.table = 7,
     .n_keys = 4,
     .n_rows = 3,
     .want_status = true,
     .scale = true,
     .lr = 0.5f,
     .keys = keys,
     .offsets = offsets,
     .slots = slots,
     .weights = weights,
     .grads = grads,
     .grads_bytes = 24},
    {.table = 8, .keys = keys, .grads = grads},
    {.table = 9,
     .dtype = EMBD_DTYPE_BF16,
     .n_keys = 3,
     .n_rows = 3,
     .keys = keys,
     .slots = slots,
     .grads = grads,
     .grads_bytes = 6},
};
#define N_SOUND 3u

/* ---- on its way ---- */

static struct part out[LIMIT_PARTS];

struct sent {
    uint8_t *bytes;
    size_t n;
};

static struct sent send_list(const struct part *parts, uint32_t n, enum parts_kind kind)
{
    static const enum method methods[] = {METHOD_PULL, METHOD_PUSH, METHOD_ERASE};
    const struct part_list list = {parts, sizeof *parts, n};
    struct sent sent;
    struct msg m;
    embd__msg_init(&m);
    embd__msg_request(&m, 1, methods[kind]);
    embd__columns_write(&m, &list, kind, NULL);
    assert_int_equal(embd__msg_end(&m), EMBD_OK);
    sent.bytes = flatten(&m, &sent.n);
    embd__msg_fini(&m);
    return sent;
}

/* What the reader says of it; `out` points to `r` then. */
static int receive(struct received *r, const struct sent *sent, uint32_t capacity,
                   enum parts_kind kind)
{
    struct reader reader;
    struct push_extra extra;
    received_init(r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    assert_int_equal(received_feed(r, sent->bytes, sent->n, 0), FRAME_DONE);
    int status = received_read(r, &reader);
    if (status != EMBD_OK)
        return status;
    return kind == PARTS_PUSH ? embd__push_read(&reader, out, capacity, &extra)
                              : embd__parts_read(&reader, out, capacity, kind);
}

static void refused(struct sent sent, enum parts_kind kind, int status, const char *text)
{
    struct received r;
    assert_int_equal(receive(&r, &sent, LIMIT_PARTS, kind), status);
    assert_string_equal(r.error.text, text);
    received_fini(&r);
    free(sent.bytes);
}

/* A push of the sound parts whose record `part` has `bytes` at offset `at`. */
static struct sent with(uint32_t part, size_t at, const void *bytes, size_t n)
{
    struct sent sent = send_list(sound, N_SOUND, PARTS_PUSH);
    static const uint8_t begin[] = {0xc4, 24 * N_SOUND, 7, 0, 0, 0};
    uint8_t *records = memmem(sent.bytes, sent.n, begin, sizeof begin);
    assert_non_null(records);
    memcpy(records + 2 + 24 * part + at, bytes, n);
    return sent;
}

static void refused_u32(uint32_t part, size_t at, uint32_t value, int status, const char *text)
{
    refused(with(part, at, &value, 4), PARTS_PUSH, status, text);
}

static void refused_u16(uint32_t part, size_t at, uint16_t value, int status, const char *text)
{
    refused(with(part, at, &value, 2), PARTS_PUSH, status, text);
}

/* ---- what is sent ---- */

static void check_array(const void *got, const void *sent, size_t bytes)
{
    assert_int_equal(got != NULL, sent != NULL);
    assert_int_equal((uintptr_t)got % 8, 0);
    if (bytes > 0 && sent != NULL)
        assert_memory_equal(got, sent, bytes);
}

static void check_part(const struct part *got, const struct part *sent)
{
    assert_int_equal(got->table, sent->table);
    assert_int_equal(got->dtype, sent->dtype);
    assert_int_equal(got->n_keys, sent->n_keys);
    assert_int_equal(got->n_rows, sent->n_rows);
    assert_int_equal(got->want_status, sent->want_status);
    assert_int_equal(got->zero_missing, sent->zero_missing);
    assert_int_equal(got->scale, sent->scale);
    assert_true(got->lr == sent->lr);
    assert_int_equal(got->grads_bytes, sent->grads_bytes);
    check_array(got->keys, sent->keys, 8 * sent->n_keys);
    check_array(got->offsets, sent->offsets, 4 * (sent->n_rows + 1));
    check_array(got->slots, sent->slots, 2 * sent->n_rows);
    check_array(got->weights, sent->weights, 4 * sent->n_keys);
    check_array(got->scores, sent->scores, 4 * sent->n_keys);
    check_array(got->grads, sent->grads, sent->grads_bytes);
}

static void what_is_read_is_what_was_written(void **state)
{
    (void)state;
    for (enum parts_kind kind = PARTS_PULL; kind <= PARTS_ERASE; kind++) {
        struct part parts[N_SOUND];
        memcpy(parts, sound, sizeof sound);
        for (uint32_t i = 0; i < N_SOUND && kind != PARTS_PUSH; i++) {
            parts[i].grads = NULL;
            parts[i].grads_bytes = 0;
            parts[i].lr = 0;
            parts[i].zero_missing = kind == PARTS_PULL;
            if (kind == PARTS_ERASE) {
                parts[i].offsets = NULL;
                parts[i].weights = NULL;
                parts[i].scale = false;
                parts[i].dtype = EMBD_DTYPE_F32;
                parts[i].n_rows = parts[i].n_keys = i;
            }
        }
        struct sent sent = send_list(parts, N_SOUND, kind);
        struct received r;
        assert_int_equal(receive(&r, &sent, LIMIT_PARTS, kind), N_SOUND);
        for (uint32_t i = 0; i < N_SOUND; i++)
            check_part(&out[i], &parts[i]);
        received_fini(&r);
        free(sent.bytes);
    }
}

/* Their bin is there only if a part has some, and before the gradients. */
static void scores_are_read_as_they_were_written(void **state)
{
    static const float scores[4] = {0.5f, -INFINITY, -3.0f, 1e30f};
    struct part parts[N_SOUND];
    struct received r;
    (void)state;
    for (uint32_t i = 0; i < N_SOUND; i++) {
        memcpy(parts, sound, sizeof sound);
        parts[i].scores = parts[0].scores = scores;
        struct sent sent = send_list(parts, N_SOUND, PARTS_PUSH);
        assert_int_equal(receive(&r, &sent, LIMIT_PARTS, PARTS_PUSH), N_SOUND);
        for (uint32_t p = 0; p < N_SOUND; p++)
            check_part(&out[p], &parts[p]);
        received_fini(&r);
        free(sent.bytes);
    }
}

static void parts_are_counted(void **state)
{
    static struct part parts[LIMIT_PARTS + 1];
    struct received r;
    (void)state;
    for (uint32_t i = 0; i <= LIMIT_PARTS; i++)
        parts[i] = (struct part){.table = i + 1, .n_keys = 1, .n_rows = 1, .keys = &keys[i % 4]};
    struct sent sent = send_list(parts, LIMIT_PARTS, PARTS_PULL);
    assert_int_equal(receive(&r, &sent, LIMIT_PARTS, PARTS_PULL), LIMIT_PARTS);
    for (uint32_t i = 0; i < LIMIT_PARTS; i++)
        check_part(&out[i], &parts[i]);
    received_fini(&r);
    refused(send_list(parts, LIMIT_PARTS + 1, PARTS_PULL), PARTS_PULL, EMBD_INVALID,
            "the message field 'columns' is 4097, the limit is 4096");
    refused(send_list(parts, 0, PARTS_PULL), PARTS_PULL, EMBD_INVALID,
            "the message field 'columns' is 0, below the minimum of 1");
    assert_int_equal(receive(&r, &sent, 1, PARTS_PULL), EMBD_INVALID);
    received_fini(&r);
    free(sent.bytes);
}

/* ---- what is false ---- */

static void counts_are_within_their_limits_and_their_bins(void **state)
{
    (void)state;
    refused_u32(0, 4, LIMIT_KEYS + 1, EMBD_TOO_LARGE,
                "part 0 field 'keys' is 4194305, the limit is 4194304");
    refused_u32(0, 8, UINT32_MAX, EMBD_TOO_LARGE,
                "part 0 field 'rows' is 4294967295, the limit is 4194304");
    refused_u32(0, 4, 8, EMBD_MALFORMED,
                "part 0 keys: 64 bytes, the bin of all parts' has 56 left of 56");
    refused_u32(0, 8, 4, EMBD_MALFORMED,
                "part 0 offsets: 20 bytes, the bin of all parts' has 16 left of 16");
    refused_u32(2, 20, 10, EMBD_MALFORMED,
                "part 2 grads: 10 bytes, the bin of all parts' has 8 left of 32");
    refused_u32(2, 20, UINT32_MAX, EMBD_MALFORMED,
                "part 2 grads: 4294967295 bytes, the bin of all parts' has 8 left of 32");
    refused_u32(2, 20, 0, EMBD_MALFORMED,
                "the bin of all parts' grads has 32 bytes, the parts have 24");
    refused_u32(2, 4, 2, EMBD_INVALID,
                "part 2 field 'rows' is 3, expected 2, as many as keys: it has no offsets");
}

static void flags_and_values_are_known(void **state)
{
    (void)state;
    refused_u16(1, 12, 128, EMBD_INVALID, "part 1 flags: 0x80 has unknown bits 0x80");
    refused_u16(1, 12, 64, EMBD_MALFORMED, "the bin of grads is missing");
    refused_u16(1, 12, 16, EMBD_INVALID, "part 1 flags: 0x10 has unknown bits 0x10");
    refused_u16(1, 12, 4, EMBD_INVALID, "part 1 has weights, which needs 'rows' and offsets");
    refused_u16(1, 12, 32, EMBD_INVALID, "part 1 has 'scale', which needs 'rows' and offsets");
    refused_u16(1, 14, 5, EMBD_INVALID, "part 1 field 'dtype' is 5, which is not known");
    refused_u32(1, 0, 0, EMBD_INVALID, "part 1 field 'table' is 0, expected 1 or more");
    static const float wrong[] = {-1.0f, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        struct sent sent = with(1, 16, &wrong[i], 4);
        struct received r;
        assert_int_equal(receive(&r, &sent, LIMIT_PARTS, PARTS_PUSH), EMBD_INVALID);
        assert_non_null(strstr(r.error.text, "part 1 field 'lr' is "));
        received_fini(&r);
        free(sent.bytes);
    }
}

static void each_method_has_its_own_values(void **state)
{
    struct part pull = {.table = 1, .n_keys = 1, .n_rows = 1, .keys = keys, .lr = 0.5f};
    struct part erase = {.table = 1, .n_keys = 1, .n_rows = 1, .keys = keys, .zero_missing = true};
    (void)state;
    refused(send_list(&pull, 1, PARTS_PULL), PARTS_PULL, EMBD_INVALID,
            "part 0 field 'lr' is 0.5, expected 0 or, in a push, a finite number above 0");
    pull.lr = 0;
    pull.grads_bytes = 4;
    refused(send_list(&pull, 1, PARTS_PULL), PARTS_PULL, EMBD_INVALID,
            "part 0 has 4 bytes of gradients, only a push may");
    refused(send_list(&erase, 1, PARTS_ERASE), PARTS_ERASE, EMBD_INVALID,
            "part 0 flags: 0x10 has unknown bits 0x10");
    erase.zero_missing = false;
    erase.dtype = EMBD_DTYPE_F16;
    refused(send_list(&erase, 1, PARTS_ERASE), PARTS_ERASE, EMBD_INVALID,
            "part 0 field 'dtype' is 1, which is not known");
    pull.grads_bytes = 0;
    pull.scores = weights;
    refused(send_list(&pull, 1, PARTS_PULL), PARTS_PULL, EMBD_INVALID,
            "part 0 flags: 0x40 has unknown bits 0x40");
}

static void arrays_are_checked_as_those_of_maps(void **state)
{
    static const uint32_t falls[4] = {0, 3, 2, 4};
    static const float infinite[4] = {1, INFINITY, 3, 4};
    struct part parts[2] = {sound[0], sound[0]};
    (void)state;
    parts[1].offsets = falls;
    refused(send_list(parts, 2, PARTS_PUSH), PARTS_PUSH, EMBD_INVALID,
            "part 1 offsets[2] is 2, below offsets[1] which is 3");
    parts[1].offsets = offsets;
    parts[1].weights = infinite;
    refused(send_list(parts, 2, PARTS_PUSH), PARTS_PUSH, EMBD_INVALID,
            "part 1 weights[1] is inf, expected a finite number");
    parts[1].weights = weights;
    parts[1].scores = infinite;
    refused(send_list(parts, 2, PARTS_PUSH), PARTS_PUSH, EMBD_INVALID,
            "part 1 scores[1] is inf, expected a finite number, or -inf: the key gets no score");
}

/* A message of bins of these lengths. */
static struct sent send_bins(uint32_t n_parts, const uint32_t *bytes, uint32_t n, bool has_parts)
{
    static uint8_t zeros[64];
    struct sent sent;
    struct msg m;
    embd__msg_init(&m);
    embd__msg_request(&m, 1, METHOD_PULL);
    embd__msg_map(&m, has_parts ? 2 : 1);
    embd__msg_field_uint(&m, "columns", n_parts);
    if (has_parts) {
        embd__msg_str(&m, "parts");
        embd__msg_array(&m, 0);
    }
    for (uint32_t i = 0; i < n; i++)
        embd__msg_bin(&m, zeros, bytes[i]);
    assert_int_equal(embd__msg_end(&m), EMBD_OK);
    sent.bytes = flatten(&m, &sent.n);
    embd__msg_fini(&m);
    return sent;
}

static void bins_are_those_that_are_expected(void **state)
{
    static const uint32_t few[] = {24, 0, 0, 0}, many[] = {24, 0, 0, 0, 0, 0}, odd[] = {24, 12},
                          one[] = {23}, right[] = {24, 0, 0, 0, 0};
    (void)state;
    refused(send_bins(1, one, 1, false), PARTS_PULL, EMBD_MALFORMED,
            "the bin of the records of parts has 23 bytes, expected 24");
    refused(send_bins(1000000, right, 5, false), PARTS_PULL, EMBD_INVALID,
            "the message field 'columns' is 1000000, the limit is 4096");
    refused(send_bins(1, odd, 2, false), PARTS_PULL, EMBD_MALFORMED,
            "the bin of keys has 12 bytes, expected a multiple of 8");
    refused(send_bins(1, few, 4, false), PARTS_PULL, EMBD_MALFORMED,
            "the bin of weights is missing");
    refused(send_bins(1, right, 5, false), PARTS_PULL, EMBD_INVALID,
            "part 0 field 'table' is 0, expected 1 or more");
    refused(send_bins(1, right, 5, true), PARTS_PULL, EMBD_INVALID,
            "the message has the unknown field 'parts'");
    refused(send_bins(1, many, 6, false), PARTS_PULL, EMBD_INVALID,
            "part 0 field 'table' is 0, expected 1 or more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_what_was_written),
        cmocka_unit_test(scores_are_read_as_they_were_written),
        cmocka_unit_test(parts_are_counted),
        cmocka_unit_test(counts_are_within_their_limits_and_their_bins),
        cmocka_unit_test(flags_and_values_are_known),
        cmocka_unit_test(each_method_has_its_own_values),
        cmocka_unit_test(arrays_are_checked_as_those_of_maps),
        cmocka_unit_test(bins_are_those_that_are_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
