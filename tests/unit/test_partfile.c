/* test_partfile.c - part files: what is written comes back, and no bit of a file can change unseen.
 */
#include "tests/unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/part_files.h"

static const uint64_t keys[3] = {1, UINT64_MAX, 3}, candidate_keys[1] = {9};
static const uint16_t slots[3] = {0, 1, 2}, candidate_slots[1] = {1};
static const uint16_t rows[3 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const float states[3 * 6] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
static const uint32_t counts[1] = {2};
static const struct row_block block = {
    .n_rows = 3,
    .n_candidates = 1,
    .keys = keys,
    .slots = slots,
    .rows = rows,
    .states = states,
    .candidate_keys = candidate_keys,
    .candidate_slots = candidate_slots,
    .candidate_counts = counts,
};

/* Every array needs padding: dim 3 in f16, adam, slots. */
static embd_schema odd_schema(void)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "odd");
    s.dim = 3;
    s.slots = 3;
    s.dtype = EMBD_DTYPE_F16;
    s.partition = EMBD_PARTITION_SLOT;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAM, 0.1f);
    return s;
}

static void on_block(void *arg, const struct row_block *b)
{
    if (b->n_rows == 0)
        return;
    *(uint32_t *)arg += b->n_rows;
    assert_int_equal(b->n_rows, 3);
    assert_int_equal(b->n_candidates, 1);
    assert_memory_equal(b->keys, keys, sizeof keys);
    assert_memory_equal(b->slots, slots, sizeof slots);
    assert_memory_equal(b->rows, rows, sizeof rows);
    assert_memory_equal(b->states, states, sizeof states);
    assert_memory_equal(b->candidate_keys, candidate_keys, sizeof candidate_keys);
    assert_memory_equal(b->candidate_slots, candidate_slots, sizeof candidate_slots);
    assert_memory_equal(b->candidate_counts, counts, sizeof counts);
}

static void rows_come_back_from_a_part_file(void **state)
{
    embd_schema s = odd_schema();
    struct embd__error e = {0};
    uint32_t n_rows = 0;
    size_t n;
    (void)state;
    uint8_t *file = write_part_file(&s, &block, 5, &n);
    assert_int_equal(n % 8, 0);
    if (read_part_file(file, n, &s, on_block, &n_rows, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    assert_int_equal(n_rows, 3);
    free(file);
}

static void a_table_without_slots_and_state_has_fewer_arrays(void **state)
{
    static const float values[2] = {1, 2};
    const struct row_block small = {.n_rows = 2, .keys = keys, .rows = values};
    embd_schema s;
    size_t n;
    (void)state;
    embd_schema_init(&s);
    s.dim = 1;
    uint8_t *file = write_part_file(&s, &small, 0, &n);
    assert_int_equal(n, 64 + 24 + 2 * 8 + 2 * 4 + 24);
    assert_int_equal(embd__row_bytes(&s), 12);
    assert_int_equal(embd__candidate_bytes(&s), 12);
    free(file);
}

static void every_flipped_bit_of_a_part_file_is_seen(void **state)
{
    embd_schema s = odd_schema();
    size_t n;
    (void)state;
    uint8_t *file = write_part_file(&s, &block, 5, &n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        struct embd__error e = {0};
        uint32_t n_rows = 0;
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (read_part_file(file, n, &s, on_block, &n_rows, &e) != EMBD_CORRUPT)
            fail_msg("bit %zu of byte %zu was flipped unseen", bit % 8, bit / 8);
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(file);
}

static void every_truncation_of_a_part_file_is_seen(void **state)
{
    embd_schema s = odd_schema();
    size_t n;
    (void)state;
    uint8_t *file = write_part_file(&s, &block, 5, &n);
    for (size_t cut = 0; cut < n; cut++) {
        struct embd__error e = {0};
        uint32_t n_rows = 0;
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, file, cut);
        assert_int_equal(read_part_file(copy, cut, &s, on_block, &n_rows, &e), EMBD_CORRUPT);
        free(copy);
    }
    free(file);
}

static void header_refused(const embd_schema *written, const embd_schema *expected, const char *why)
{
    uint8_t header[PARTFILE_HEADER_BYTES];
    struct embd__error e = {0};
    embd__partfile_header(header, written, 5);
    assert_int_equal(embd__partfile_check_header(header, expected, &e), EMBD_CORRUPT);
    assert_string_equal(e.text, why);
}

static void a_part_file_of_another_table_is_refused_by_field(void **state)
{
    const embd_schema s = odd_schema();
    embd_schema other = s;
    (void)state;
    other.dim = 4;
    header_refused(&s, &other, "part file header field 'dim' is 3, expected 4");
    other = s;
    other.dtype = EMBD_DTYPE_F32;
    header_refused(&s, &other, "part file header field 'dtype' is 1, expected 0");
    other = s;
    other.optimizer.kind = EMBD_OPTIMIZER_SGD;
    header_refused(&s, &other, "part file header field 'state_floats' is 6, expected 0");
    other = s;
    other.partition = EMBD_PARTITION_HASH;
    header_refused(&s, &other, "part file header field 'has_slots' is 1, expected 0");
}

static void a_file_of_another_kind_is_refused_at_its_first_bytes(void **state)
{
    const embd_schema s = odd_schema();
    uint8_t header[PARTFILE_HEADER_BYTES] = "PK\3\4";
    struct embd__error e = {0};
    (void)state;
    assert_int_equal(embd__partfile_check_header(header, &s, &e), EMBD_CORRUPT);
    assert_string_equal(e.text, "the file does not begin with EMBDPART: it is not a part file");
}

static void a_block_that_asks_for_too_much_is_refused(void **state)
{
    const embd_schema s = odd_schema();
    uint32_t header[6] = {UINT32_MAX, UINT32_MAX}, n_rows, n_candidates;
    uint64_t bytes, xxh3;
    struct embd__error e = {0};
    (void)state;
    assert_int_equal(embd__partfile_block_header((uint8_t *)header, &s, &n_rows, &n_candidates,
                                                 &bytes, &xxh3, &e),
                     EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "has 0 bytes, expected"));
    memset(&e, 0, sizeof e);
    header[0] = 1 << 20;
    header[1] = 0;
    uint64_t announced = (1ull << 20) * embd__row_bytes(&s);
    memcpy(header + 2, &announced, sizeof announced);
    assert_int_equal(embd__partfile_block_header((uint8_t *)header, &s, &n_rows, &n_candidates,
                                                 &bytes, &xxh3, &e),
                     EMBD_CORRUPT);
    assert_string_equal(e.text, "a block has 41943040 bytes, the limit is 16777216");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_from_a_part_file),
        cmocka_unit_test(a_table_without_slots_and_state_has_fewer_arrays),
        cmocka_unit_test(every_flipped_bit_of_a_part_file_is_seen),
        cmocka_unit_test(every_truncation_of_a_part_file_is_seen),
        cmocka_unit_test(a_part_file_of_another_table_is_refused_by_field),
        cmocka_unit_test(a_file_of_another_kind_is_refused_at_its_first_bytes),
        cmocka_unit_test(a_block_that_asks_for_too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
