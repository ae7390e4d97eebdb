/* test_lost.c - one of several GPUs stops: its stream waits for the host, which does not come.
 * Calls of the nccl store are answered with an error in time, later ones at once, and the process
 * lives and ends in order. Needs two GPUs. usage: test_gpu_lost peer|nccl */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "server/store/nccl/group.h"
#include "tests/store/pair.h"

enum { N = 4096, PATIENCE_MS = 500 };

static atomic_bool is_released;

static void wait_for_release(void *arg)
{
    (void)arg;
    while (!atomic_load(&is_released))
        usleep(1000);
}

static void await(struct pair *pair, struct outcome *outcome)
{
    while (outcome->calls == 0)
        pair->ops->collect(pair->store);
}

static void test_stuck_gpu(void **state)
{
    (void)state;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "lost");
    schema.dim = 16;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 1.0f);
    struct pair pair;
    struct outcome outcomes[3];
    static uint64_t keys[N];
    static float values[N][16];
    for (uint64_t i = 0; i < N; i++)
        keys[i] = i;
    pair_open(&pair, "nccl", &schema, 1);
    const struct group *group = (const struct group *)(const void *)pair.store;
    assert_true(group->n > 1);
    struct store_change push = {.in = {N, N, keys, NULL, NULL, NULL}, .grads = values};
    struct store_pull pull = {.in = push.in, .count = N, .values = values};
    for (int i = 0; i < 3; i++)
        outcome_init(&outcomes[i]);
    pair.ops->apply(pair.store, &push, &outcomes[0].done);
    await(&pair, &outcomes[0]);
    assert_int_equal(outcomes[0].status, EMBD_OK);
    for (int i = 0; i < 4;
         i++) { /* so that CUDA has loaded the kernels, for which it waits for the GPU */
        outcome_init(&outcomes[1]);
        pair.ops->pull(pair.store, &pull, &outcomes[1].done);
        await(&pair, &outcomes[1]);
        assert_int_equal(outcomes[1].status, EMBD_OK);
    }
    outcome_init(&outcomes[1]);

    group_patience_ms = PATIENCE_MS;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(group->tables[1]->stream, wait_for_release, NULL),
                     cudaSuccess);
    uint64_t start = wire_now_ms();
    pair.ops->pull(pair.store, &pull, &outcomes[1].done);
    await(&pair, &outcomes[1]);
    assert_int_equal(outcomes[1].status, EMBD_INTERNAL);
    assert_non_null(strstr(outcomes[1].done.error.text, "not done after 500 ms"));
    pair.ops->pull(pair.store, &pull, &outcomes[2].done);
    await(&pair, &outcomes[2]);
    assert_int_equal(outcomes[2].status, EMBD_INTERNAL);
    assert_in_range(wire_now_ms() - start, PATIENCE_MS, 4 * PATIENCE_MS);
    pair_close(&pair);
    atomic_store(&is_released, true);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        pair_set_way(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stuck_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
