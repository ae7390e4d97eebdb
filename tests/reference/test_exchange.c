/* test_exchange.c - forward and backward through real shards: lookups, pooling over slots, means
 * over shards, gradients on their way back, as the reference's systems describe them and with their
 * examples. Rows are given whole values, so that every result is exact whatever the order of the
 * sums.
 *
 * usage: test_exchange ADDRESS N_SHARDS */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embd/embd.h"
#include "embd/admin.h"

static const char *address;
static uint32_t n_shards;
static embd_client *client;
static embd_table *table;

static void check(int status)
{
    if (status != EMBD_OK)
        print_error("%s: %s\n", embd_status_text(status), embd_error_text());
    assert_int_equal(status, EMBD_OK);
}

static int connect_all(void **state)
{
    const char *why = embd_error_text();
    (void)state;
    int status = embd_connect(address, NULL, &client);
    if (status != EMBD_OK)
        print_error("%s\n", why);
    return status;
}

static int disconnect_all(void **state)
{
    (void)state;
    embd_close(client);
    return 0;
}

/* Rows that begin at 0 and become minus their gradient. */
static embd_schema zeros(embd_partition partition, uint32_t slots, embd_combiner combiner)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "t");
    s.dim = 1;
    s.slots = slots;
    s.partition = partition;
    s.combiner = combiner;
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 1.0f);
    return s;
}

/* Tests that fail leave their table behind. */
static int clean(void **state)
{
    (void)state;
    (void)embd_table_drop(client, "t");
    return 0;
}

static void make(const embd_schema *schema)
{
    check(embd_table_create(client, schema));
    check(embd_table_open(client, schema->name, &table));
}

static void drop(void)
{
    check(embd_table_drop(client, "t"));
}

/* Gives the row of (slot, key) this value, in all columns. */
static void set_row(uint32_t slot, uint64_t key, float value)
{
    const embd_schema *s = embd_table_schema(table);
    uint64_t offsets[65] = {0};
    float gradient[64];
    for (uint32_t i = 0; i < s->slots; i++)
        offsets[i + 1] = offsets[i] + (i == slot);
    for (uint32_t c = 0; c < s->dim; c++)
        gradient[c] = -value;
    embd_part part = EMBD_PART(.table = table, .n_rows = s->slots, .offsets = offsets, .n_keys = 1,
                               .keys = &key, .values = gradient, .raw = true);
    check(embd_push(client, &part, 1, NULL));
}

/* A pull of CSR rows, or of the raw rows of their keys, with each plan gives `expected` [n_rows];
 * columns are all the same. */
static void pulls_as(bool raw, uint64_t n_rows, const uint64_t *offsets, const uint64_t *keys,
                     const float *expected)
{
    uint32_t dim = embd_table_schema(table)->dim;
    float *values = malloc(n_rows * dim * sizeof *values);
    embd_part part =
        EMBD_PART(.table = table, .n_rows = n_rows, .offsets = offsets, .n_keys = offsets[n_rows],
                  .keys = keys, .values = values, .raw = raw);
    for (int plan = EMBD_PLAN_AUTO; plan <= EMBD_PLAN_ROWS; plan++) {
        embd_call_options options = EMBD_CALL_OPTIONS(.plan = (embd_plan)plan);
        memset(values, 0x55, n_rows * dim * sizeof *values);
        check(embd_pull(client, &part, 1, &options));
        for (uint64_t i = 0; i < n_rows * dim; i++)
            if (values[i] != expected[i / dim])
                fail_msg("row %llu is %g, expected %g", (unsigned long long)(i / dim),
                         (double)values[i], (double)expected[i / dim]);
    }
    free(values);
}

static void pulls(uint64_t n_rows, const uint64_t *offsets, const uint64_t *keys,
                  const float *expected)
{
    pulls_as(false, n_rows, offsets, keys, expected);
}

static void one_key_a_row(uint64_t n, const uint64_t *keys, const float *expected)
{
    uint64_t offsets[65];
    for (uint64_t i = 0; i <= n; i++)
        offsets[i] = i;
    pulls(n, offsets, keys, expected);
    pulls_as(true, n, offsets, keys, expected);
}

static uint64_t figure_sum;

static int add_figure(void *arg, const char *of, const char *name, uint64_t value)
{
    if (of && !strcmp(of, "t") && !strcmp(name, arg))
        figure_sum += value;
    return 0;
}

/* A figure of the table, over the shards first .. first + n. */
static uint64_t figure(const char *name, uint32_t first, uint32_t n)
{
    figure_sum = 0;
    for (uint32_t shard = first; shard < first + n; shard++)
        check(embd_stats(client, shard, add_figure, (void *)(uintptr_t)name));
    return figure_sum;
}

/* ---- forward ---- */

/* (slot, key) of sample i is i: its row is 1 + 4 i + slot. Output rows are sample * slots + slot.
 */
static void worked_example(void **state)
{
    static const float expected[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint64_t keys[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    embd_schema schema = zeros(EMBD_PARTITION_SLOT, 4, EMBD_COMBINER_SUM);
    (void)state;
    make(&schema);
    for (uint32_t i = 0; i < 8; i++)
        set_row(i % 4, i / 4, expected[i]);
    one_key_a_row(8, keys, expected);
    drop();
}

/* One-hot, multi-hot and empty slots of different lengths; every partition gives the same. */
static void slots_are_pooled_and_laid_side_by_side(void **state)
{
    static const uint64_t offsets[10] = {0, 1, 4, 4, 6, 7, 9, 12, 13, 15};
    static const uint64_t keys[15] = {7, 1, 2, 3, 4, 4, 9, 8, 1, 5, 6, 7, 2, 3, 9};
    (void)state;
    for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT; partition++) {
        embd_schema schema = zeros((embd_partition)partition, 3, EMBD_COMBINER_SUM);
        float expected[9] = {0};
        schema.dim = 6;
        make(&schema);
        for (uint64_t key = 1; key < 10; key++)
            for (uint32_t slot = 0; slot < (partition == EMBD_PARTITION_SLOT ? 3 : 1); slot++)
                set_row(slot, key,
                        (float)(key + (partition == EMBD_PARTITION_SLOT ? 100 * slot : 0)));
        for (uint32_t r = 0; r < 9; r++)
            for (uint64_t k = offsets[r]; k < offsets[r + 1]; k++)
                expected[r] +=
                    (float)(keys[k] + (partition == EMBD_PARTITION_SLOT ? 100 * (r % 3) : 0));
        pulls(9, offsets, keys, expected);
        drop();
    }
}

static void any_trainer_asks_for_any_key(void **state)
{
    static const uint64_t keys[4] = {0, 1, 3, 5}, mixed[6] = {5, 0, 5, 3, 1, 0};
    static const float rows[4] = {0.0f, 0.1f, 0.3f, 0.5f},
                       of_mixed[6] = {0.5f, 0.0f, 0.5f, 0.3f, 0.1f, 0.0f};
    embd_schema schema = zeros(EMBD_PARTITION_MODULO, 1, EMBD_COMBINER_SUM);
    (void)state;
    make(&schema);
    for (int i = 0; i < 4; i++)
        set_row(0, keys[i], rows[i]);
    one_key_a_row(4, keys, rows);
    one_key_a_row(6, mixed, of_mixed);
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        uint64_t here = 0;
        for (int i = 0; i < 4; i++)
            here += keys[i] % n_shards == shard;
        assert_int_equal(figure("rows", shard, 1), here);
    }
    drop();
}

/* Shard i holds slot i; trainer j asks for its own sample only. */
static void each_trainer_gets_its_own(void **state)
{
    embd_schema schema = zeros(EMBD_PARTITION_SLOT, 3, EMBD_COMBINER_SUM);
    (void)state;
    make(&schema);
    for (uint32_t slot = 0; slot < 3; slot++)
        for (uint64_t j = 0; j < 3; j++)
            set_row(slot, j, (float)(3 * slot + j));
    for (uint64_t j = 0; j < 3; j++) {
        const uint64_t keys[3] = {j, j, j};
        const float expected[3] = {(float)j, (float)(3 + j), (float)(6 + j)};
        one_key_a_row(3, keys, expected);
    }
    drop();
}

/* Nine samples, whatever n is. */
static void samples_need_not_divide_by_shards(void **state)
{
    uint64_t keys[18];
    float expected[18];
    embd_schema schema = zeros(EMBD_PARTITION_HASH, 2, EMBD_COMBINER_MEAN);
    (void)state;
    make(&schema);
    for (uint64_t i = 0; i < 18; i++) {
        keys[i] = i * i;
        expected[i] = (float)i;
        set_row(0, keys[i], expected[i]);
    }
    for (uint64_t samples = 1; samples <= 9; samples++)
        one_key_a_row(2 * samples, keys, expected);
    drop();
}

static void missing_keys_are_zeros_where_asked_for(void **state)
{
    static const uint64_t offsets[3] = {0, 3, 4}, keys[4] = {1, 2, 3, 4};
    embd_schema schema = zeros(EMBD_PARTITION_HASH, 1, EMBD_COMBINER_SUM);
    float values[2];
    uint8_t statuses[4];
    (void)state;
    schema.initializer.a = 100;
    make(&schema);
    set_row(0, 1, 1); /* 100 - (-1) * 1 */
    embd_part part = EMBD_PART(.table = table, .n_rows = 2, .offsets = offsets, .n_keys = 4,
                               .keys = keys, .values = values, .statuses = statuses);
    embd_call_options options = EMBD_CALL_OPTIONS(.zero_missing = true);
    check(embd_pull(client, &part, 1, &options));
    assert_true(values[0] == 101 && values[1] == 0);
    assert_int_equal(statuses[0], EMBD_KEY_HIT);
    for (int i = 1; i < 4; i++)
        assert_int_equal(statuses[i], EMBD_KEY_MISSING);
    check(embd_pull(client, &part, 1, NULL));
    assert_true(values[0] == 301 && values[1] == 100);
    assert_int_equal(figure("rows", 0, n_shards), 1);
    drop();
}

static void rows_appear_on_first_sight(void **state)
{
    static const uint64_t keys[3] = {5, 6, 7};
    (void)state;
    for (int create_on = EMBD_CREATE_ON_PUSH; create_on <= EMBD_CREATE_ON_PULL; create_on++) {
        embd_schema schema = zeros(EMBD_PARTITION_HASH, 1, EMBD_COMBINER_CONCAT);
        float values[3];
        schema.create_on = (embd_create_on)create_on;
        make(&schema);
        assert_int_equal(figure("rows", 0, n_shards), 0);
        embd_part part = EMBD_PART(.table = table, .n_keys = 3, .keys = keys, .values = values);
        check(embd_pull(client, &part, 1, NULL));
        assert_int_equal(figure("rows", 0, n_shards), create_on == EMBD_CREATE_ON_PULL ? 3 : 0);
        check(embd_push(client, &part, 1, NULL));
        assert_int_equal(figure("rows", 0, n_shards), 3);
        drop();
    }
}

/* ---- means ---- */

/* Rows of 9, 5, 5, 2, 1 and 0 keys, spread over all shards; key k's row is k. */
static void means_divide_by_the_keys_of_all_shards(void **state)
{
    static const uint32_t counts[6] = {9, 5, 5, 2, 1, 0};
    uint64_t offsets[7] = {0}, keys[22];
    float expected[6];
    (void)state;
    for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_MODULO; partition++) {
        embd_schema schema = zeros((embd_partition)partition, 1, EMBD_COMBINER_MEAN);
        schema.dim = 3;
        make(&schema);
        for (uint32_t r = 0, at = 0; r < 6; r++) {
            uint64_t first = 10 * r + 4, middle = first + (counts[r] - 1) / 2;
            for (uint32_t i = 0; i < counts[r]; i++) {
                keys[at++] = first + i;
                set_row(0, first + i, (float)(first + i));
            }
            offsets[r + 1] = at;
            expected[r] = counts[r] == 2 ? (float)first + 0.5f : (float)middle;
            if (counts[r] == 0)
                expected[r] = 0;
        }
        pulls(6, offsets, keys, expected);
        drop();
    }
}

static void combiners_are_known_by_name(void **state)
{
    embd_schema schema;
    const char *why = embd_error_text();
    (void)state;
    embd_schema_init(&schema);
    assert_int_equal(embd_schema_set(&schema, "combiner", "sum", NULL), EMBD_OK);
    assert_int_equal(schema.combiner, EMBD_COMBINER_SUM);
    assert_int_equal(embd_schema_set(&schema, "combiner", "mean", NULL), EMBD_OK);
    assert_int_equal(schema.combiner, EMBD_COMBINER_MEAN);
    assert_int_equal(embd_schema_set(&schema, "combiner", "median", NULL), EMBD_INVALID);
    assert_non_null(strstr(why, "median"));
    strcpy(schema.name, "t");
    schema.dim = 1;
    schema.combiner = (embd_combiner)4;
    assert_int_equal(embd_schema_check(&schema), EMBD_INVALID);
    assert_non_null(strstr(why, "combiner"));
}

/* ---- backward ---- */

static void pushes(uint64_t n_rows, const uint64_t *offsets, const uint64_t *keys, float *gradients,
                   embd_plan plan)
{
    embd_part part = EMBD_PART(.table = table, .n_rows = n_rows, .offsets = offsets,
                               .n_keys = offsets[n_rows], .keys = keys, .values = gradients);
    embd_call_options options = EMBD_CALL_OPTIONS(.plan = plan);
    check(embd_push(client, &part, 1, &options));
}

/* Rows of 1, 2 and 4 keys: each key of a sum gets the gradient, of a mean the gradient over the
 * count. */
static void gradients_reach_the_keys_of_their_row(void **state)
{
    static const uint64_t offsets[4] = {0, 1, 3, 7}, keys[7] = {1, 2, 3, 4, 5, 6, 7};
    static const float divisors[7] = {1, 2, 2, 4, 4, 4, 4};
    (void)state;
    for (int combiner = EMBD_COMBINER_SUM; combiner <= EMBD_COMBINER_MEAN; combiner++)
        for (int plan = EMBD_PLAN_POOLED; plan <= EMBD_PLAN_ROWS; plan++) {
            embd_schema schema = zeros(EMBD_PARTITION_HASH, 1, (embd_combiner)combiner);
            float gradients[3] = {-1, -2, -4}, expected[7];
            make(&schema);
            pushes(3, offsets, keys, gradients, (embd_plan)plan);
            for (int i = 0; i < 7; i++)
                expected[i] =
                    combiner == EMBD_COMBINER_SUM ? divisors[i] : divisors[i] / divisors[i];
            one_key_a_row(7, keys, expected);
            drop();
        }
}

/* Gradient rows go to the shard of their slot and to the same (slot, key) that was pulled. */
static void gradients_take_the_way_back(void **state)
{
    static const uint64_t keys[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    static const float expected[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t offsets[9];
    float gradients[8];
    embd_schema schema = zeros(EMBD_PARTITION_SLOT, 4, EMBD_COMBINER_SUM);
    (void)state;
    make(&schema);
    for (uint64_t i = 0; i <= 8; i++)
        offsets[i] = i;
    for (int i = 0; i < 8; i++)
        gradients[i] = -expected[i];
    pushes(8, offsets, keys, gradients, EMBD_PLAN_AUTO);
    one_key_a_row(8, keys, expected);
    drop();
}

/* Keys 1,3,5,5,7 with gradients: none is lost, those of key 5 are added, and it takes one step. */
static void duplicate_gradients_are_added(void **state)
{
    static const uint64_t keys[5] = {1, 3, 5, 5, 7};
    static const uint64_t offsets[6] = {0, 1, 2, 3, 4, 5};
    static const float expected[5] = {1, 3, 11, 11, 7};
    (void)state;
    for (int plan = EMBD_PLAN_POOLED; plan <= EMBD_PLAN_ROWS; plan++) {
        float gradients[5] = {-1, -3, -5, -6, -7};
        embd_schema schema = zeros(EMBD_PARTITION_MODULO, 1, EMBD_COMBINER_SUM);
        make(&schema);
        pushes(5, offsets, keys, gradients, (embd_plan)plan);
        one_key_a_row(5, keys, expected);
        drop();
    }
}

/* ---- shards ---- */

static void every_shard_is_known_by_number_and_address(void **state)
{
    (void)state;
    assert_int_equal(embd_shard_count(client), n_shards);
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        uint64_t us;
        assert_non_null(embd_shard_address(client, shard));
        for (uint32_t other = 0; other < shard; other++)
            assert_string_not_equal(embd_shard_address(client, shard),
                                    embd_shard_address(client, other));
        check(embd_ping(client, shard, &us));
    }
    assert_null(embd_shard_address(client, n_shards));
}

static void the_table_is_spread_over_all_shards(void **state)
{
    uint64_t keys[1000];
    static float values[1000];
    uint64_t sum = 0;
    embd_schema schema = zeros(EMBD_PARTITION_HASH, 1, EMBD_COMBINER_CONCAT);
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        keys[i] = i;
    make(&schema);
    embd_part part = EMBD_PART(.table = table, .n_keys = 1000, .keys = keys, .values = values);
    check(embd_push(client, &part, 1, NULL));
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        uint64_t rows = figure("rows", shard, 1);
        assert_in_range(rows, 800 / n_shards, 1200 / n_shards);
        sum += rows;
    }
    assert_int_equal(sum, 1000);
    drop();
}

/* 45 dense inputs and one slot of 40 keys with 5 columns, into a layer of 10. */
static void pooling_makes_small_layers(void **state)
{
    uint64_t keys[40], offsets[2] = {0, 40};
    float values[200];
    uint64_t written[2] = {0};
    embd_schema schema = zeros(EMBD_PARTITION_HASH, 1, EMBD_COMBINER_SUM);
    (void)state;
    schema.dim = 5;
    make(&schema);
    for (uint64_t i = 0; i < 40; i++)
        keys[i] = i;
    for (int raw = 0; raw < 2; raw++) {
        embd_part part = EMBD_PART(.table = table, .n_rows = 1, .offsets = offsets, .n_keys = 40,
                                   .keys = keys, .values = values, .raw = raw);
        for (int i = 0; i < 200; i++)
            values[i] = -1;
        check(embd_pull(client, &part, 1, NULL));
        for (int i = 0; i < 200; i++)
            written[raw] += values[i] == 0;
    }
    assert_int_equal(10 * (45 + written[0]), 500);
    assert_int_equal(10 * (45 + written[1]), 2450);
    drop();
}

/* A sample's vector is 3 x art + 2 x sport, and its gradient goes back as 3 and 2 times itself. */
static void weights_pool_and_go_back(void **state)
{
    uint64_t keys[] = {11, 22}, offsets[] = {0, 2};
    float weights[] = {3, 2}, art = 0.5f, sport = -0.125f, pooled, gradient = 0.25f, rows[2];
    embd_schema schema = zeros(EMBD_PARTITION_HASH, 1, EMBD_COMBINER_SUM);
    (void)state;
    make(&schema);
    set_row(0, keys[0], art);
    set_row(0, keys[1], sport);
    embd_part part = EMBD_PART(.table = table, .n_rows = 1, .offsets = offsets, .n_keys = 2,
                               .keys = keys, .weights = weights, .values = &pooled);
    check(embd_pull(client, &part, 1, NULL));
    assert_true(pooled == 3 * art + 2 * sport);
    part.values = &gradient;
    check(embd_push(client, &part, 1, NULL));
    part = (embd_part)EMBD_PART(.table = table, .n_keys = 2, .keys = keys, .values = rows,
                                .raw = true);
    check(embd_pull(client, &part, 1, NULL));
    assert_true(rows[0] == art - 3 * gradient && rows[1] == sport - 2 * gradient);
    drop();
}

#define TEST(text, fn)                                                                             \
    {                                                                                              \
        text, fn, NULL, clean, NULL                                                                \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST("S0.11 S0.13 S0.16 S4.10 two samples of four slots: filter, lookup, exchange, slots "
             "ascending",
             worked_example),
        TEST("S0.17 S0.18 gradients take the way back, to the row that was pulled",
             gradients_take_the_way_back),
        TEST("S0.18 S4.15 a sum's gradient is the row's, a mean's is divided by the keys of all "
             "shards",
             gradients_reach_the_keys_of_their_row),
        TEST("S0.21 samples need not divide by shards", samples_need_not_divide_by_shards),
        TEST("S0.22 each trainer gets its own: 0 3 6, 1 4 7, 2 5 8", each_trainer_gets_its_own),
        TEST("S1.1 S1.4 S1.6 S1.7 S1.8 keys 0 1 3 5 get 0.0 0.1 0.3 0.5 wherever they lie, in the "
             "order "
             "asked for",
             any_trainer_asks_for_any_key),
        TEST("S1.9 gradients of 1 3 5 5 7 all arrive, those of 5 are added",
             duplicate_gradients_are_added),
        TEST("S2.5 every shard of every process is known by number and address",
             every_shard_is_known_by_number_and_address),
        TEST("S2.7 the table is spread over all shards", the_table_is_spread_over_all_shards),
        TEST("S2.8 S4.9 slots are pooled and laid side by side",
             slots_are_pooled_and_laid_side_by_side),
        TEST("S4.6 missing keys are zeros where asked for, and stay missing",
             missing_keys_are_zeros_where_asked_for),
        TEST("S4.7 a table begins empty, rows appear on first sight", rows_appear_on_first_sight),
        TEST("S4.11 sum and mean are known by name, others refused", combiners_are_known_by_name),
        TEST("S4.12 S4.13 S4.14 partial sums add up, means divide by the keys of all shards, in "
             "any process",
             means_divide_by_the_keys_of_all_shards),
        TEST("S4.18 pooling 40 keys of 5 columns: 500 parameters behind it, not 2450",
             pooling_makes_small_layers),
        TEST("S4.19 weights pool 3 x art + 2 x sport, and go back", weights_pool_and_go_back),
    };
    if (argc != 3)
        return 2;
    address = argv[1];
    n_shards = (uint32_t)strtoul(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, connect_all, disconnect_all);
}
