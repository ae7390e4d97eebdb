/* test_bad_input.c - requests that are wrong. Each is refused with a text that names field, value
 * and limit, and leaves every row, state and step as it was; a right one afterwards succeeds. */
#include "tests/server/rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/route.h"
#include "proto/schema.h"

#define N   4u
#define DIM 3u

/* Three tables with rows in them: plain (sum, hash), slotted (slot, slot_sizes), raw (concat). */
struct world {
    struct rig rig;
    struct image images[3];
    uint64_t keys[N];
    uint32_t offsets[N + 1];
    uint16_t slots[N];
    float weights[N];
    float grads[N * DIM];
};
static const char *const names[3] = {"plain", "slotted", "raw"};
static const uint64_t sizes[2] = {10, 20};

static struct part part_of(struct world *w, const char *table)
{
    bool is_raw = strcmp(table, "raw") == 0, is_slotted = strcmp(table, "slotted") == 0;
    return (struct part){
        .table = embd__table_id(table),
        .n_keys = N,
        .n_rows = N,
        .keys = w->keys,
        .offsets = is_raw ? NULL : w->offsets,
        .slots = is_slotted ? w->slots : NULL,
        .grads = w->grads,
        .grads_bytes = sizeof w->grads,
    };
}

static void reset(struct world *w)
{
    static const uint64_t keys[N] = {1, 12, 3, 25};
    static const uint16_t slots[N] = {0, 1, 0, 1};
    for (uint32_t i = 0; i < N; i++) {
        w->keys[i] = keys[i];
        w->slots[i] = slots[i];
        w->offsets[i] = i;
        w->weights[i] = 0.5f;
    }
    w->offsets[N] = N;
    for (uint32_t i = 0; i < N * DIM; i++)
        w->grads[i] = (float)i;
}

static int setup(void **state)
{
    static struct world w;
    rig_open(&w.rig, &store_host, 0, 1, NULL);
    reset(&w);
    for (int i = 0; i < 3; i++) {
        embd_schema schema;
        embd_schema_init(&schema);
        snprintf(schema.name, sizeof schema.name, "%s", names[i]);
        schema.dim = DIM;
        schema.combiner = i == 2 ? EMBD_COMBINER_CONCAT : EMBD_COMBINER_SUM;
        if (i == 1) {
            schema.slots = 2;
            schema.slot_sizes = sizes;
            schema.partition = EMBD_PARTITION_SLOT;
        }
        embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
        create_table(&w.rig, &schema);
        struct part part = part_of(&w, names[i]);
        push(&w.rig, &part, NULL);
        image_take(&w.rig, names[i], &w.images[i]);
    }
    *state = &w;
    return 0;
}

/* Nothing has changed, and right requests are still taken. */
static int teardown(void **state)
{
    struct world *w = *state;
    float values[N * DIM];
    reset(w);
    for (int i = 0; i < 3; i++) {
        struct part part = part_of(w, names[i]);
        image_check(&w->rig, names[i], &w->images[i]);
        pull(&w->rig, &part, values, NULL);
        push(&w->rig, &part, NULL);
        image_fini(&w->images[i]);
    }
    rig_close(&w->rig);
    return 0;
}

/* Both pull and push are refused so. */
#define BOTH(w, part, ...)                                                                         \
    do {                                                                                           \
        ask_error(ask_parts(&(w)->rig, METHOD_PULL, &(part), 1), __VA_ARGS__, NULL);               \
        ask_error(ask_parts(&(w)->rig, METHOD_PUSH, &(part), 1), __VA_ARGS__, NULL);               \
    } while (0)

static void an_unknown_table_is_named(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "plain");
    part.table = 123456789;
    BOTH(w, part, EMBD_UNKNOWN_TABLE, "part 0", "123456789");
}

static void a_wrong_part_behind_a_right_one_undoes_both(void **state)
{
    struct world *w = *state;
    struct part parts[2] = {part_of(w, "plain"), part_of(w, "raw")};
    parts[1].table = 5;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, parts, 2), EMBD_UNKNOWN_TABLE, "part 1", "5", NULL);
    parts[1] = part_of(w, "plain");
    ask_error(ask_parts(&w->rig, METHOD_PUSH, parts, 2), EMBD_INVALID, "part 1", "'plain'",
              "part 0", NULL);
    w->grads[1] = NAN;
    parts[1] = part_of(w, "raw");
    parts[0].grads = (const float[N * DIM]){0};
    ask_error(ask_parts(&w->rig, METHOD_PUSH, parts, 2), EMBD_NOT_FINITE, "part 1", NULL);
}

static void offsets_that_do_not_fit_are_named(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "plain");
    w->offsets[0] = 1;
    BOTH(w, part, EMBD_INVALID, "part 0", "offsets[0]", "1", "0");
    reset(w);
    w->offsets[2] = 0;
    BOTH(w, part, EMBD_INVALID, "part 0", "offsets[2]", "offsets[1]");
    reset(w);
    w->offsets[N] = 3;
    BOTH(w, part, EMBD_INVALID, "part 0", "offsets[4]", "3", "4");
    reset(w);
    part = part_of(w, "raw");
    part.offsets = w->offsets;
    BOTH(w, part, EMBD_INVALID, "part 0", "offsets", "'raw'", "concat");
}

static void slots_that_do_not_fit_are_named(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "slotted");
    w->slots[2] = 2;
    BOTH(w, part, EMBD_INVALID, "part 0", "slots[2]", "2", "'slotted'");
    part.slots = NULL;
    BOTH(w, part, EMBD_INVALID, "part 0", "slots", "missing", "'slotted'");
    reset(w);
    part = part_of(w, "plain");
    part.slots = w->slots;
    BOTH(w, part, EMBD_INVALID, "part 0", "slots", "given", "hash");
}

static void keys_beyond_slot_sizes_are_named(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "slotted");
    w->keys[3] = 30;
    BOTH(w, part, EMBD_INVALID, "part 0", "keys[3]", "30", "10");
    w->keys[3] = 25;
    w->keys[2] = 10; /* slot 1's first key, in slot 0 */
    BOTH(w, part, EMBD_INVALID, "part 0", "keys[2]", "10");
}

static void weights_that_are_no_numbers_are_named(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "plain");
    part.weights = w->weights;
    w->weights[2] = INFINITY;
    BOTH(w, part, EMBD_INVALID, "part 0", "weights[2]", "inf");
    part = part_of(w, "raw");
    part.weights = w->weights;
    BOTH(w, part, EMBD_INVALID, "part 0", "weights", "offsets");
}

static void gradients_of_a_wrong_length_are_named(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "plain");
    part.grads_bytes -= 4;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_MALFORMED, "part 0", "grads", "44",
              "48", "4 rows of 3 f32", NULL);
    part = part_of(w, "plain");
    part.dtype = EMBD_DTYPE_F16;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_MALFORMED, "part 0", "grads", "48",
              "24", "f16", NULL);
}

static void gradients_that_are_no_numbers_name_the_first_key(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "plain");
    w->grads[2 * DIM + 1] = NAN;
    w->grads[3 * DIM] = INFINITY;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_NOT_FINITE, "part 0", "key 3",
              "row 2", "column 1", "nan", NULL);
    part.dtype = EMBD_DTYPE_BF16;
    uint16_t halves[N * DIM] = {0};
    halves[5] = 0xff80;
    part.grads = halves;
    part.grads_bytes = sizeof halves;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_NOT_FINITE, "key 12", "row 1",
              "column 2", "-inf", NULL);
    part.dtype = EMBD_DTYPE_F16;
    halves[5] = 0x7c01;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_NOT_FINITE, "key 12", "row 1",
              "column 2", "nan", NULL);
    w->offsets[1] = w->offsets[2] = w->offsets[3] = 0;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_NOT_FINITE, "row 1", "no key", NULL);
}

/* At every place of several blocks of the vector loop, and at none. */
static void one_bad_gradient_among_many_is_found(void **state)
{
    struct world *w = *state;
    static uint64_t keys[700];
    static float grads[700 * DIM];
    struct part part = part_of(w, "raw");
    part.n_keys = part.n_rows = 700;
    part.keys = keys;
    part.grads = grads;
    part.grads_bytes = sizeof grads;
    for (uint32_t i = 0; i < 700; i++)
        keys[i] = i;
    for (uint32_t at = 0; at < 700 * DIM; at += 37) {
        char row[32], column[32];
        snprintf(row, sizeof row, "row %u,", at / DIM);
        snprintf(column, sizeof column, "column %u ", at % DIM);
        grads[at] = -INFINITY;
        ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_NOT_FINITE, row, column, NULL);
        grads[at] = 0x1.fffffep127f; /* the largest there is */
    }
}

static void a_table_may_admit_what_is_no_number(void **state)
{
    struct world *w = *state;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "any");
    schema.dim = DIM;
    schema.admit_nonfinite = true;
    create_table(&w->rig, &schema);
    w->grads[0] = NAN;
    struct part part = part_of(w, "plain");
    part.table = embd__table_id("any");
    float values[N * DIM];
    push(&w->rig, &part, NULL);
    pull(&w->rig, &part, values, NULL);
    assert_true(isnan(values[0]) && !isnan(values[1]));
}

static void an_answer_beyond_the_frame_limit_is_refused(void **state)
{
    struct world *w = *state;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "wide");
    schema.dim = EMBD_DIM_MAX;
    create_table(&w->rig, &schema);
    static uint32_t offsets[4097];
    struct part part = {.table = embd__table_id("wide"), .n_rows = 4096, .offsets = offsets};
    ask_error(ask_parts(&w->rig, METHOD_PULL, &part, 1), EMBD_TOO_LARGE, "67108", "67108864",
              NULL); /* head */
    part.n_rows = 4095;
    struct exchange *x = ask_parts(&w->rig, METHOD_PULL, &part, 1);
    ask_ok(x);
    ask_free(x);
}

/* 4 Mi rows of 4096 columns do not fit 32 bits, and are no reason to allocate. */
static void rows_times_dim_does_not_overflow(void **state)
{
    struct world *w = *state;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "wide");
    schema.dim = EMBD_DIM_MAX;
    create_table(&w->rig, &schema);
    static uint32_t offsets[LIMIT_ROWS + 1];
    struct part part = {.table = embd__table_id("wide"),
                        .n_rows = LIMIT_ROWS,
                        .offsets = offsets,
                        .grads = offsets,
                        .grads_bytes = 64};
    ask_error(ask_parts(&w->rig, METHOD_PULL, &part, 1), EMBD_TOO_LARGE, "68719476736", "67108864",
              NULL);
    ask_error(ask_parts(&w->rig, METHOD_PUSH, &part, 1), EMBD_MALFORMED, "grads", "64",
              "68719476736", NULL);
}

static void counts_beyond_the_limits_are_named(void **state)
{
    struct world *w = *state;
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_PULL);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "parts");
    embd__msg_array(&x->out, 1);
    embd__msg_map(&x->out, 2);
    embd__msg_field_uint(&x->out, "table", 1);
    embd__msg_field_uint(&x->out, "keys", LIMIT_KEYS + 1);
    embd__msg_bin(&x->out, w->keys, 8);
    ask_error(x, EMBD_TOO_LARGE, "part 0", "keys", "4194305", "4194304", NULL);

    x = ask(&w->rig, &w->rig.data, METHOD_PULL);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "parts");
    embd__msg_array(&x->out, LIMIT_PART_MAPS + 1);
    for (uint32_t i = 0; i <= LIMIT_PART_MAPS; i++)
        embd__msg_map(&x->out, 0);
    ask_error(x, EMBD_TOO_LARGE, "parts", "65", "64", NULL);
}

/* A pull of as many parts as there may be, of one table. */
static struct exchange *ask_many(struct world *w)
{
    static struct part parts[LIMIT_PARTS];
    const struct part_list list = {parts, sizeof *parts, LIMIT_PARTS};
    for (uint32_t i = 0; i < LIMIT_PARTS; i++)
        parts[i] = (struct part){
            .table = embd__table_id("raw"), .n_keys = 1, .n_rows = 1, .keys = w->keys};
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_PULL);
    embd__columns_write(&x->out, &list, PARTS_PULL, NULL);
    return x;
}

static void memory_for_many_parts_is_bounded_and_given_back(void **state)
{
    enum { MOST = 256 };
    struct world *w = *state;
    struct exchange *unsent[MOST];
    for (int round = 0; round < 2; round++) {
        uint32_t n = 0;
        for (bool is_full = false; !is_full; n += !is_full) {
            assert_true(n < MOST);
            unsent[n] = ask_many(w);
            ask_send(unsent[n]);
            is_full = unsent[n]->answer_bytes < LIMIT_PARTS;
        }
        assert_true(n >= 20);
        const char *const fragments[] = {"4096 parts", "the limit is 268435456", "try again", NULL};
        ask_read(unsent[n]);
        check_error(unsent[n], EMBD_BUSY, fragments);
        for (uint32_t i = 0; i <= n; i++)
            ask_free(unsent[i]);
    }
}

static void bins_missing_or_left_over_are_named(void **state)
{
    struct world *w = *state;
    struct part part = part_of(w, "plain");
    struct exchange *x = ask_parts(&w->rig, METHOD_PULL, &part, 1);
    embd__msg_bin(&x->out, w->keys, 16);
    ask_error(x, EMBD_MALFORMED, "3 bins", "2", NULL);
    x = ask(&w->rig, &w->rig.data, METHOD_PULL);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "parts");
    embd__msg_array(&x->out, 1);
    embd__msg_map(&x->out, 2);
    embd__msg_field_uint(&x->out, "table", part.table);
    embd__msg_field_uint(&x->out, "keys", 4);
    embd__msg_bin(&x->out, w->keys, 24);
    ask_error(x, EMBD_MALFORMED, "part 0", "keys", "24", "32", NULL);
}

static void an_unknown_dtype_is_named(void **state)
{
    struct world *w = *state;
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_PULL);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "parts");
    embd__msg_array(&x->out, 1);
    embd__msg_map(&x->out, 3);
    embd__msg_field_uint(&x->out, "table", embd__table_id("raw"));
    embd__msg_field_uint(&x->out, "keys", 1);
    embd__msg_field_str(&x->out, "dtype", "f64");
    embd__msg_bin(&x->out, w->keys, 8);
    ask_error(x, EMBD_INVALID, "part 0", "dtype", "f64", "bf16", NULL);
}

/* ---- loads ---- */

static struct exchange *ask_load(struct world *w, const char *table, uint32_t n_rows,
                                 uint32_t n_candidates)
{
    struct exchange *x = ask(&w->rig, &w->rig.admin, METHOD_LOAD);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", table);
    embd__msg_field_uint(&x->out, "rows", n_rows);
    embd__msg_field_uint(&x->out, "candidates", n_candidates);
    return x;
}

static void add_block(struct exchange *x, const embd_schema *schema, const struct row_block *block)
{
    embd__row_block_write(&x->out, schema, block);
}

static void loads_that_do_not_fit_are_named(void **state)
{
    struct world *w = *state;
    embd_schema slotted, plain;
    embd_schema_init(&plain);
    plain.dim = DIM;
    embd_optimizer_init(&plain.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    slotted = plain;
    slotted.partition = EMBD_PARTITION_SLOT;
    uint64_t key = 1;
    uint16_t slot = 9;
    uint32_t count = 1;
    struct row_block block = {
        .n_rows = 1, .keys = &key, .slots = &slot, .rows = w->grads, .states = w->grads};
    struct exchange *x = ask_load(w, "slotted", 1, 0);
    add_block(x, &slotted, &block);
    ask_error(x, EMBD_INVALID, "slots[0]", "9", "2", NULL);
    slot = 1;
    x = ask_load(w, "slotted", 1, 0);
    add_block(x, &slotted, &block);
    ask_error(x, EMBD_INVALID, "keys[0]", "1", "10", NULL);
    x = ask_load(w, "plain", 2, 0);
    add_block(x, &plain, &block);
    ask_error(x, EMBD_MALFORMED, "keys", "8", "16", NULL);
    x = ask_load(w, "nowhere", 1, 0);
    add_block(x, &plain, &block);
    ask_error(x, EMBD_UNKNOWN_TABLE, "nowhere", NULL);
    block =
        (struct row_block){.n_candidates = 1, .candidate_keys = &key, .candidate_counts = &count};
    x = ask_load(w, "plain", 0, 1);
    add_block(x, &plain, &block);
    ask_error(x, EMBD_INVALID, "candidates", "1", "'plain'", NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_unknown_table_is_named),
        TEST(a_wrong_part_behind_a_right_one_undoes_both),
        TEST(offsets_that_do_not_fit_are_named),
        TEST(slots_that_do_not_fit_are_named),
        TEST(keys_beyond_slot_sizes_are_named),
        TEST(weights_that_are_no_numbers_are_named),
        TEST(gradients_of_a_wrong_length_are_named),
        TEST(gradients_that_are_no_numbers_name_the_first_key),
        TEST(one_bad_gradient_among_many_is_found),
        TEST(a_table_may_admit_what_is_no_number),
        TEST(an_answer_beyond_the_frame_limit_is_refused),
        TEST(rows_times_dim_does_not_overflow),
        TEST(counts_beyond_the_limits_are_named),
        TEST(memory_for_many_parts_is_bounded_and_given_back),
        TEST(bins_missing_or_left_over_are_named),
        TEST(an_unknown_dtype_is_named),
        TEST(loads_that_do_not_fit_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
