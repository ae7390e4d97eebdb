/* test_fm.c - the arithmetic of the example, which needs no server. */
int example_main(int argc, char **argv);
#define main example_main
#include "client/examples/fm.c"
#undef main

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void auc_counts_pairs_and_ties_by_half(void **state)
{
    (void)state;
    struct scored samples[200];
    uint64_t random = 3;
    for (int i = 0; i < 200; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        samples[i] = (struct scored){(float)((random >> 33) % 17), (float)(random >> 63)};
    }
    double wins = 0, pairs = 0;
    for (int i = 0; i < 200; i++)
        for (int j = 0; j < 200; j++)
            if (samples[i].label > samples[j].label) {
                pairs++;
                wins += samples[i].score > samples[j].score    ? 1
                        : samples[i].score == samples[j].score ? 0.5
                                                               : 0;
            }
    assert_true(auc_of(samples, 200) == wins / pairs);
    assert_true(auc_of(samples, 0) == 0.5);
    struct scored broken[] = {{NAN, 1}, {NAN, 0}};
    assert_true(auc_of(broken, 2) >= 0);
}

static double loss_at(const float *linear, const float *factors, float label)
{
    return loss_of(logit_of(linear, factors), label);
}

static void the_gradient_is_the_slope_of_the_loss(void **state)
{
    enum { N = SLOTS + SLOTS * DIM };
    (void)state;
    const float step = 1e-2f;
    float values[N], gradient[N];
    for (int i = 0; i < N; i++)
        values[i] = (float)((i * 37) % 19 - 9) * 0.02f;
    for (int label = 0; label < 2; label++) {
        memcpy(gradient, values, sizeof gradient);
        make_gradient(gradient, gradient + SLOTS, logit_of(values, values + SLOTS), (float)label);
        for (int i = 0; i < N; i++) {
            float kept = values[i];
            values[i] = kept + step;
            double up = loss_at(values, values + SLOTS, (float)label);
            values[i] = kept - step;
            double down = loss_at(values, values + SLOTS, (float)label);
            values[i] = kept;
            assert_true(fabs((up - down) / (2 * (double)step) - (double)gradient[i]) < 1e-3);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auc_counts_pairs_and_ties_by_half),
        cmocka_unit_test(the_gradient_is_the_slope_of_the_loss),
    };
    return cmocka_run_group_tests_name("fm", tests, NULL, NULL);
}
