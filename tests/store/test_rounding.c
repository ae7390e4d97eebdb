/* test_rounding.c - steps that are smaller than half a unit of a row's dtype: to nearest they are
 * lost; by chance they add up in the mean, in other ways for another seed; with master values they
 * are the steps of f32. Argument: the store's
 * name; then how many keys and steps, and for store nccl how bytes move. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/pair.h"

enum { KEYS_MAX = 1000, DIM = 16 };

static const char *store_name = "host";
static uint32_t n_keys = KEYS_MAX, n_steps = 1000;

static void open_table(struct pair *pair, embd_dtype dtype, embd_rounding rounding, uint64_t seed)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "small-steps");
    s.dim = DIM;
    s.dtype = dtype;
    s.rounding = rounding;
    s.seed = seed;
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT, .a = 1.0f};
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 1.0f);
    pair_open(pair, store_name, &s, 1);
    pair->has_one_lr = true;
    pair->gradient = 2e-4f;
}

static uint64_t key_of(uint32_t i)
{
    return i * 0x9E3779B97F4A7C15u;
}

/* All keys take all steps; a reload between them changes nothing. */
static void take_steps(struct pair *pair)
{
    uint64_t keys[KEYS_MAX];
    struct batch batch;
    for (uint32_t i = 0; i < n_keys; i++)
        keys[i] = key_of(i);
    batch_of(&batch, keys, n_keys);
    for (uint32_t i = 0; i < n_steps; i++) {
        pair_push(pair, &batch, EMBD_DTYPE_F32, false);
        if (i == n_steps / 2)
            pair_reload(pair);
    }
    batch_free(&batch);
    pair_compare(pair);
}

/* Of the columns from `first` on. */
static double mean_of(const struct model *model, uint32_t first)
{
    double sum = 0;
    for (uint64_t i = 0; i < model->n_keys; i++)
        for (uint32_t c = first; c < DIM; c++)
            sum += model->keys[i]->w[c];
    return sum / (double)(model->n_keys * (DIM - first));
}

static void small_steps_add_up_in_the_mean(void **state)
{
    (void)state;
    for (int dtype = EMBD_DTYPE_F16; dtype <= EMBD_DTYPE_BF16; dtype++) {
        struct pair pair;
        open_table(&pair, (embd_dtype)dtype, EMBD_ROUNDING_STOCHASTIC, 3);
        take_steps(&pair);
        double expected = 1 - 2e-4 * n_steps, found = mean_of(pair.model, 0);
        if (fabs(found - expected) > 0.001)
            fail_msg("dtype %d: the mean is %.6f, expected %.6f", dtype, found, expected);
        pair_close(&pair);
    }
}

static void to_nearest_small_steps_are_lost(void **state)
{
    struct pair pair;
    (void)state;
    for (int dtype = EMBD_DTYPE_F16; dtype <= EMBD_DTYPE_BF16; dtype++) {
        open_table(&pair, (embd_dtype)dtype, EMBD_ROUNDING_NEAREST, 3);
        n_steps /= 10;
        take_steps(&pair);
        n_steps *= 10;
        assert_true(mean_of(pair.model, 0) == 1.0);
        pair_close(&pair);
    }
}

/* ---- rows with a scale ---- */

/* A row's first column stays where it is, so that the scale is a power of two, and 1.0 a code. The
 * other columns step. `unit`: the distance of the codes below 1.0. */
static const struct coded {
    embd_dtype dtype;
    float first;
    double unit;
} coded[] = {{EMBD_DTYPE_I8, 127.0f / 64, 1.0 / 64}, {EMBD_DTYPE_E4M3, 448.0f / 256, 1.0 / 16}};

static void open_coded(struct pair *pair, const struct coded *c, embd_rounding rounding)
{
    uint8_t rows[KEYS_MAX * (4 + DIM)];
    uint64_t keys[KEYS_MAX];
    float value[DIM] = {c->first};
    struct embd__error e = {.status = EMBD_OK};
    open_table(pair, c->dtype, rounding, 3);
    pair->spares_first = true;
    for (uint32_t i = 1; i < DIM; i++)
        value[i] = 1.0f;
    for (uint32_t i = 0; i < n_keys; i++) {
        keys[i] = key_of(i);
        model_set_row(pair->model, keys[i], 0, value, NULL);
        pair_stored(pair, model_find(pair->model, keys[i], 0), rows + i * (4 + DIM));
    }
    const struct row_block block = {.n_rows = n_keys, .keys = keys, .rows = rows};
    if (pair->ops->load(pair->store, &block, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    pair_compare(pair);
    assert_true(mean_of(pair->model, 1) == 1.0);
}

/* A column goes down by one unit in a step with the probability p = 2e-4 / unit, so n steps have a
 * variance of n * p * (1 - p) units squared. Allowed are five standard deviations of the mean of
 * all columns (another seed fails once in 1.7 million), and what p loses as a multiple of 1/65536:
 * up to half of one in each step. 1000 steps of 1000 rows: 0.0024 for i8, 0.0051 for e4m3. */
static double allowed(double unit)
{
    double p = 2e-4 / unit, n = n_steps, n_columns = n_keys * (DIM - 1.0);
    return 5 * unit * sqrt(n * p * (1 - p) / n_columns) + n * unit / 131072;
}

static void small_steps_add_up_in_rows_with_a_scale(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof coded / sizeof coded[0]; i++) {
        struct pair pair;
        open_coded(&pair, &coded[i], EMBD_ROUNDING_STOCHASTIC);
        take_steps(&pair);
        double expected = 1 - 2e-4 * n_steps, found = mean_of(pair.model, 1);
        if (fabs(found - expected) > allowed(coded[i].unit))
            fail_msg("dtype %d: the mean is %.6f, expected %.6f", (int)coded[i].dtype, found,
                     expected);
        for (uint64_t k = 0; k < pair.model->n_keys; k++)
            assert_true(pair.model->keys[k]->w[0] == coded[i].first);
        pair_close(&pair);
    }
}

static void to_nearest_they_are_lost_in_rows_with_a_scale(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof coded / sizeof coded[0]; i++) {
        struct pair pair;
        open_coded(&pair, &coded[i], EMBD_ROUNDING_NEAREST);
        n_steps /= 10;
        take_steps(&pair);
        n_steps *= 10;
        assert_true(mean_of(pair.model, 1) == 1.0);
        pair_close(&pair);
    }
}

/* ---- master values ---- */

static void is_nearest(const struct model *model, const float *w, const float *master)
{
    float rounded[DIM];
    embd_dtype dtype = model->schema.dtype;
    memcpy(rounded, master, sizeof rounded);
    if (model_has_codes(dtype))
        model_round_codes(rounded, DIM, dtype, NULL);
    else
        for (uint32_t c = 0; c < DIM; c++)
            rounded[c] = model_round(rounded[c], dtype);
    assert_memory_equal(w, rounded, sizeof rounded);
}

/* Master values are the rows of a table of f32 that takes the same steps, to the bit. */
static void master_values_train_as_f32_does(void **state)
{
    struct pair exact;
    (void)state;
    n_steps /= 10;
    open_table(&exact, EMBD_DTYPE_F32, EMBD_ROUNDING_NEAREST, 3);
    take_steps(&exact);
    for (size_t i = 1; i < PAIR_DTYPES; i++) {
        struct pair pair;
        open_table(&pair, pair_dtypes[i], EMBD_ROUNDING_MASTER, 3);
        take_steps(&pair);
        for (uint64_t k = 0; k < pair.model->n_keys; k++) {
            const float *master = pair.model->keys[k]->state + pair.model->master_at;
            assert_memory_equal(master, exact.model->keys[k]->w, DIM * sizeof *master);
            is_nearest(pair.model, pair.model->keys[k]->w, master);
        }
        pair_close(&pair);
    }
    n_steps *= 10;
    assert_true(mean_of(exact.model, 0) < 1.0);
    pair_close(&exact);
}

/* ---- chances ---- */

/* Rows, columns and tables of another seed have chances of their own. */
static void chances_differ(void **state)
{
    struct pair a, b;
    uint32_t n_equal = 0, n_columns = 0;
    (void)state;
    open_table(&a, EMBD_DTYPE_BF16, EMBD_ROUNDING_STOCHASTIC, 3);
    open_table(&b, EMBD_DTYPE_BF16, EMBD_ROUNDING_STOCHASTIC, 4);
    n_steps /= 10;
    take_steps(&a);
    take_steps(&b);
    n_steps *= 10;
    for (uint64_t i = 1; i < a.model->n_keys; i++)
        for (uint32_t c = 1; c < DIM; c++) {
            const float *w = a.model->keys[i]->w;
            n_equal += w[c] == b.model->keys[i]->w[c];
            n_equal += w[c] == w[c - 1];
            n_equal += w[c] == a.model->keys[i - 1]->w[c];
            n_columns += 3;
        }
    assert_true(n_equal < n_columns / 2);
    pair_close(&a);
    pair_close(&b);
}

int main(int argc, char **argv)
{
    store_name = argc > 1 ? argv[1] : "host";
    if (argc > 3) {
        n_keys = (uint32_t)atoi(argv[2]);
        n_steps = (uint32_t)atoi(argv[3]);
    }
    if (argc > 4)
        pair_set_way(argv[4]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_steps_add_up_in_the_mean),
        cmocka_unit_test(to_nearest_small_steps_are_lost),
        cmocka_unit_test(small_steps_add_up_in_rows_with_a_scale),
        cmocka_unit_test(to_nearest_they_are_lost_in_rows_with_a_scale),
        cmocka_unit_test(master_values_train_as_f32_does),
        cmocka_unit_test(chances_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
