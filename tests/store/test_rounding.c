/* test_rounding.c - steps that are smaller than half a unit of a row's dtype: to nearest they are
 * lost; by chance they add up in the mean, in other ways for another seed. Argument: the store's
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

/* All keys take all steps; a reload between them changes nothing. */
static void take_steps(struct pair *pair)
{
    uint64_t keys[KEYS_MAX];
    struct batch batch;
    for (uint32_t i = 0; i < n_keys; i++)
        keys[i] = i * 0x9E3779B97F4A7C15u;
    batch_of(&batch, keys, n_keys);
    for (uint32_t i = 0; i < n_steps; i++) {
        pair_push(pair, &batch, EMBD_DTYPE_F32, false);
        if (i == n_steps / 2)
            pair_reload(pair);
    }
    batch_free(&batch);
    pair_compare(pair);
}

static double mean_of(const struct model *model)
{
    double sum = 0;
    for (uint64_t i = 0; i < model->n_keys; i++)
        for (uint32_t c = 0; c < DIM; c++)
            sum += model->keys[i]->w[c];
    return sum / (double)(model->n_keys * DIM);
}

static void small_steps_add_up_in_the_mean(void **state)
{
    (void)state;
    for (int dtype = EMBD_DTYPE_F16; dtype <= EMBD_DTYPE_BF16; dtype++) {
        struct pair pair;
        open_table(&pair, (embd_dtype)dtype, EMBD_ROUNDING_STOCHASTIC, 3);
        take_steps(&pair);
        double expected = 1 - 2e-4 * n_steps, found = mean_of(pair.model);
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
        assert_true(mean_of(pair.model) == 1.0);
        pair_close(&pair);
    }
}

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
        cmocka_unit_test(chances_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
