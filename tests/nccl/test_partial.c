/* test_partial.c - gpu_sums: partial. Pooled pulls of hash and modulo tables are compared with a
 * model that adds the rows of each device in CSR order, then these sums in the order of the
 * devices; with rows of several keys, whose gradients go to each device once. Arguments: the
 * store's name, and the way of store nccl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/nccl/group.h"
#include "tests/store/pair.h"

static const char *store_name = "nccl";

struct test_case {
    embd_combiner combiner;
    embd_dtype dtype, wire;
    embd_partition partition;
    bool weights;
    uint32_t number;
};

static uint32_t part_of(const struct model *model, uint64_t key)
{
    if (model->schema.partition == EMBD_PARTITION_MODULO)
        return (uint32_t)(key % model->n_parts);
    return owner_of(EMBD_PARTITION_HASH, model->n_parts, key, 0);
}

static embd_schema schema_of(const struct test_case *c)
{
    static const uint32_t dims[] = {1, 3, 4, 16, 33, 64};
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "case");
    s.dim = dims[c->number % (sizeof dims / sizeof dims[0])];
    s.slots = 1 + c->number % 3;
    s.partition = c->partition;
    s.combiner = c->combiner;
    s.dtype = c->dtype;
    s.seed = c->number;
    s.admit_after = c->number % 3;
    embd_optimizer_init(&s.optimizer, c->number % 2 ? EMBD_OPTIMIZER_ADAM : EMBD_OPTIMIZER_ADAGRAD,
                        0.05f);
    if (s.dtype != EMBD_DTYPE_F32)
        s.rounding = (embd_rounding)(c->number / 2 % 3);
    return s;
}

static void open_pair(struct pair *pair, const embd_schema *schema, uint64_t seed)
{
    store_gpus.partial_sums = true;
    pair_open(pair, store_name, schema, seed);
    if (schema->partition != EMBD_PARTITION_SLOT) { /* whose rows have their keys on one device */
        pair->model->n_parts = ((const struct group *)(const void *)pair->store)->n;
        pair->model->part_of = part_of;
    }
}

static void one_call(struct pair *pair, const struct test_case *c, uint32_t row_max)
{
    struct dice *dice = &pair->dice;
    struct batch batch;
    embd_dtype wire = dice_below(dice, 2) ? c->wire : EMBD_DTYPE_F32;
    bool is_raw = dice_below(dice, 8) == 0;
    batch_draw(pair, &batch, dice_below(dice, 30), row_max, is_raw, c->weights);
    if (dice_below(dice, 2))
        pair_pull(pair, &batch, wire, dice_below(dice, 4) == 0, dice_below(dice, 2));
    else
        pair_push(pair, &batch, wire, dice_below(dice, 2));
    batch_free(&batch);
}

/* Few keys a row, so that parts are empty; then many. */
static void run_case(const struct test_case *c)
{
    static uint64_t keys[50];
    embd_schema schema = schema_of(c);
    struct pair pair;
    open_pair(&pair, &schema, c->number);
    for (uint64_t i = 0; i < 50; i++)
        keys[i] = i < 40 ? i : UINT64_MAX - i * i;
    pair.pool = keys;
    pair.n_pool = 50;
    for (int i = 0; i < 8; i++)
        one_call(&pair, c, i < 4 ? 4 : 25);
    pair_compare(&pair);
    pair_close(&pair);
}

/* Every store takes other cases of the table. */
static void test_partial_sums_are_added_in_the_order_of_the_devices(void **state)
{
    (void)state;
    enum { EVERY = 5 };
    uint32_t number = 0, mine = (uint32_t)store_name[strlen(store_name) - 1] % EVERY;
    for (int combiner = EMBD_COMBINER_SUM; combiner <= EMBD_COMBINER_SQRTN; combiner++)
        for (int dtype = EMBD_DTYPE_F32; dtype <= EMBD_DTYPE_BF16; dtype++)
            for (int wire = EMBD_DTYPE_F32; wire <= EMBD_DTYPE_BF16; wire++)
                for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT;
                     partition++)
                    for (int weights = 0; weights < 2; weights++) {
                        struct test_case c = {
                            (embd_combiner)combiner,   (embd_dtype)dtype, (embd_dtype)wire,
                            (embd_partition)partition, weights,           number++};
                        if (number % EVERY == mine)
                            run_case(&c);
                    }
}

/* Rows that differ from those of one device in their last bits, and are the same each time. */
static void test_equal_for_equal_devices(void **state)
{
    (void)state;
    enum { N = 64, PER_ROW = 40, DIM = 16 };
    static uint64_t keys[N * PER_ROW];
    static uint32_t offsets[N + 1];
    static float values[2][N * DIM];
    struct test_case c = {
        .combiner = EMBD_COMBINER_MEAN, .partition = EMBD_PARTITION_MODULO, .number = 3};
    embd_schema schema = schema_of(&c);
    struct pair pair;
    for (uint32_t i = 0; i < N * PER_ROW; i++)
        keys[i] = i * 2654435761u % 1000;
    for (uint32_t r = 0; r <= N; r++)
        offsets[r] = r * PER_ROW;
    for (int i = 0; i < 2; i++) {
        struct store_pull pull = {.in = {N * PER_ROW, N, keys, offsets, NULL, NULL},
                                  .scale = true,
                                  .count = N,
                                  .values = values[i]};
        struct outcome outcome;
        outcome_init(&outcome);
        open_pair(&pair, &schema, 1);
        pair.ops->pull(pair.store, &pull, &outcome.done);
        while (outcome.calls == 0)
            pair.ops->collect(pair.store);
        assert_int_equal(outcome.status, EMBD_OK);
        pair_close(&pair);
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        store_name = argv[1];
    if (argc > 2)
        pair_set_way(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_sums_are_added_in_the_order_of_the_devices),
        cmocka_unit_test(test_equal_for_equal_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
