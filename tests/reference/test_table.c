/* test_table.c - one shard's table beside the reference's: what a row is, who gets one, what it
 * starts with, what happens when the table is full, and where the reference has faults. Argument:
 * the store's name. */
#include "tests/unit/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/store.h"

static const struct store_ops *ops;

struct bench {
    struct table_schema schema;
    struct store *store;
};

struct waiting {
    struct store_done done; /* first */
    int status, calls;
};

static void on_done(struct store_done *done, int status)
{
    struct waiting *w = (struct waiting *)done;
    w->status = status;
    w->calls++;
}

static embd_schema base(void)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "t");
    s.dim = 2;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 1.0f);
    return s;
}

/* The store keeps a pointer to the schema. */
static struct bench *open_table(const embd_schema *schema)
{
    struct bench *t = calloc(1, sizeof *t);
    struct embd__error e = {0};
    assert_int_equal(embd__schema_check(schema, &e), EMBD_OK);
    assert_int_equal(embd__schema_copy(&t->schema, schema, &e), EMBD_OK);
    assert_int_equal(ops->open(&t->schema, &t->store, &e), EMBD_OK);
    return t;
}

static void close_table(struct bench *t)
{
    ops->close(t->store);
    embd__schema_fini(&t->schema);
    free(t);
}

static int await(struct bench *t, const struct waiting *w)
{
    while (!w->calls)
        ops->collect(t->store);
    return w->status;
}

/* One key a row; slots may be NULL. */
static int push(struct bench *t, uint32_t n, const uint64_t *keys, const uint16_t *slots,
                const float *grads, uint8_t *statuses)
{
    struct waiting w = {.done.fn = on_done};
    struct store_change p = {.in = {.n_keys = n, .n_rows = n, .keys = keys, .slots = slots},
                             .grads = grads,
                             .statuses = statuses};
    ops->apply(t->store, &p, &w.done);
    return await(t, &w);
}

static void pull(struct bench *t, uint32_t n, const uint64_t *keys, const uint16_t *slots,
                 float *values, uint8_t *statuses)
{
    struct waiting w = {.done.fn = on_done};
    struct store_pull p = {.in = {.n_keys = n, .n_rows = n, .keys = keys, .slots = slots},
                           .count = n,
                           .values = values,
                           .statuses = statuses};
    ops->pull(t->store, &p, &w.done);
    assert_int_equal(await(t, &w), EMBD_OK);
}

static struct store_stats stats(const struct bench *t)
{
    struct store_stats s;
    ops->stats(t->store, &s);
    return s;
}

/* ---- what a table is ---- */

static void keys_slots_and_values_belong_together(void **state)
{
    static const uint64_t keys[4] = {9, UINT64_MAX, 9, 0};
    static const uint16_t slots[4] = {0, 1, 2, 2};
    static const float grads[8] = {-1, -2, -3, -4, -5, -6, -7, -8};
    uint64_t found_keys[8], cursor = 0;
    uint16_t found_slots[8];
    float rows[16], states[1];
    struct embd__error e = {0};
    embd_schema s = base();
    (void)state;
    s.partition = EMBD_PARTITION_SLOT;
    s.slots = 3;
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    struct bench *t = open_table(&s);
    assert_int_equal(push(t, 4, keys, slots, grads, NULL), EMBD_OK);
    struct store_scan scan = {
        .keys = found_keys, .slots = found_slots, .rows = rows, .states = states};
    assert_int_equal(ops->scan(t->store, &cursor, 8, &scan, &e), EMBD_OK);
    assert_int_equal(scan.n_rows, 4);
    for (uint32_t i = 0, seen = 0; i < 4; i++) {
        for (uint32_t k = 0; k < 4; k++)
            if (found_keys[i] == keys[k] && found_slots[i] == slots[k]) {
                assert_true(rows[2 * i] == -grads[2 * k] && rows[2 * i + 1] == -grads[2 * k + 1]);
                seen |= 1u << k;
            }
        assert_true(i < 3 || seen == 15);
    }
    close_table(t);
}

/* Every slot's keys fit when the capacity is the largest sum of slot sizes of a shard; one less is
 * one row short. */
static void capacity_is_the_sum_of_the_slot_sizes(void **state)
{
    static const uint64_t sizes[4] = {5, 2, 8, 3}; /* on two shards: {5, 8} and {2, 3} */
    uint64_t keys[13];
    uint16_t slots[13];
    float grads[26] = {0};
    uint8_t statuses[13];
    (void)state;
    for (uint32_t i = 0; i < 13; i++) {
        slots[i] = i < 5 ? 0 : 2;
        keys[i] = i < 5 ? i : 7 + i - 5; /* as stored: 5 + 2 keys are before slot 2 */
    }
    for (uint64_t capacity = 12; capacity <= 13; capacity++) {
        uint32_t full = 0;
        embd_schema s = base();
        s.partition = EMBD_PARTITION_SLOT;
        s.slots = 4;
        s.slot_sizes = sizes;
        s.on_full = EMBD_ON_FULL_ERROR;
        s.capacity = capacity;
        struct bench *t = open_table(&s);
        assert_int_equal(push(t, 13, keys, slots, grads, statuses), EMBD_OK);
        for (uint32_t i = 0; i < 13; i++)
            full += statuses[i] == EMBD_KEY_FULL;
        assert_int_equal(full, 13 - capacity);
        close_table(t);
    }
}

/* State has the table's size, used or not: capacity times the floats of a row and of its state. */
static void state_is_as_large_as_the_table(void **state)
{
    static const uint64_t key = 1;
    static const float grad[2] = {1, 1};
    (void)state;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_FTRL; kind++) {
        embd_schema s = base();
        embd_optimizer_init(&s.optimizer, (embd_optimizer_kind)kind, 0.1f);
        s.capacity = 1000;
        struct bench *t = open_table(&s);
        assert_int_equal(push(t, 1, &key, NULL, grad, NULL), EMBD_OK);
        struct store_stats now = stats(t);
        uint64_t floats = s.dim + embd__schema_state_floats(&s);
        assert_int_equal(now.rows, 1);
        assert_true(now.capacity >= 1000);
        assert_true(now.row_bytes >= now.capacity * floats * 4);
        close_table(t);
    }
}

/* ---- first values ---- */

static void slots_have_bounds_of_their_own_in_any_order_of_arrival(void **state)
{
    enum { N = 2000 };
    static const uint64_t sizes[2] = {4, N};
    static const float zero[2] = {0};
    float largest[2] = {0};
    embd_schema s = base();
    (void)state;
    s.slots = 2;
    s.slot_sizes = sizes;
    s.initializer.kind = EMBD_INITIALIZER_UNIFORM_SLOT;
    s.seed = 3;
    struct bench *t = open_table(&s);
    for (uint64_t i = 0; i < N;
         i++) { /* keys of the small slot arrive among the others, from the last one on */
        uint64_t key = i % 500 == 250 ? i / 500 : 4 + (N - 1 - i);
        assert_int_equal(push(t, 1, &key, NULL, zero, NULL), EMBD_OK);
    }
    for (uint64_t key = 0; key < 4 + N; key++) {
        float row[2];
        pull(t, 1, &key, NULL, row, NULL);
        for (int c = 0; c < 2; c++)
            largest[key >= 4] = fmaxf(largest[key >= 4], fabsf(row[c]));
    }
    assert_true(largest[0] <= 0.5f && largest[0] > 0.1f);
    assert_true(largest[1] <= sqrtf(1.0f / N) && largest[1] > 0.95f * sqrtf(1.0f / N));
    close_table(t);
}

static void without_sizes_rows_start_within_a_twentieth(void **state)
{
    float largest = 0, sum = 0;
    embd_schema s = base();
    (void)state;
    struct bench *t = open_table(&s);
    for (uint64_t key = 0; key < 5000; key++) {
        float row[2];
        pull(t, 1, &key, NULL, row, NULL);
        for (int c = 0; c < 2; c++, sum += row[c - 1])
            largest = fmaxf(largest, fabsf(row[c]));
    }
    assert_true(largest <= 0.05f && largest > 0.0499f);
    assert_true(fabsf(sum / 10000) < 0.001f);
    close_table(t);
}

/* ---- keys and rows ---- */

static void every_key_is_legal_and_found_again(void **state)
{
    static const uint64_t keys[5] = {0, UINT64_MAX, UINT32_MAX, 1ull << 63, UINT64_MAX - 1};
    static const float grads[10] = {-1, -1, -2, -2, -3, -3, -4, -4, -5, -5};
    float values[10];
    uint8_t statuses[5];
    embd_schema s = base();
    (void)state;
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    struct bench *t = open_table(&s);
    assert_int_equal(push(t, 5, keys, NULL, grads, statuses), EMBD_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(statuses[i], EMBD_KEY_INSERTED);
    pull(t, 5, keys, NULL, values, statuses);
    for (int i = 0; i < 10; i++)
        assert_true(values[i] == -grads[i]);
    for (int i = 0; i < 5; i++)
        assert_int_equal(statuses[i], EMBD_KEY_HIT);
    assert_int_equal(stats(t).rows, 5);
    close_table(t);
}

/* Half as many keys again as there are rows: the rest is told key by key, and rows that are there
 * stay as they are. */
static void over_full_is_told_for_each_key(void **state)
{
    enum { ROWS = 1000, KEYS = 1500 };
    static uint64_t keys[KEYS];
    static float grads[2 * KEYS], values[2 * KEYS];
    static uint8_t statuses[KEYS];
    uint32_t inserted = 0, full = 0;
    embd_schema s = base();
    (void)state;
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    s.capacity = ROWS;
    s.on_full = EMBD_ON_FULL_ERROR;
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = 7 * i;
        grads[2 * i] = grads[2 * i + 1] = -(float)(i + 1);
    }
    struct bench *t = open_table(&s);
    assert_int_equal(push(t, KEYS, keys, NULL, grads, NULL), EMBD_FULL);
    assert_int_equal(stats(t).rows, 0);
    assert_int_equal(push(t, KEYS, keys, NULL, grads, statuses), EMBD_OK);
    for (uint32_t i = 0; i < KEYS; i++) {
        inserted += statuses[i] == EMBD_KEY_INSERTED;
        full += statuses[i] == EMBD_KEY_FULL;
    }
    assert_int_equal(inserted, ROWS);
    assert_int_equal(full, KEYS - ROWS);
    assert_int_equal(stats(t).rows, ROWS);
    pull(t, KEYS, keys, NULL, values, NULL);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(values[2 * i] == (statuses[i] == EMBD_KEY_INSERTED ? (float)(i + 1) : 0.0f));
    close_table(t);
}

/* Three gradients of one key are one step with their sum; those of others stay apart. */
static void a_row_takes_one_step_with_the_sum_of_its_gradients(void **state)
{
    static const uint64_t keys[5] = {8, 3, 8, 8, 5};
    static const float grads[10] = {1, 1, 10, 10, 2, 2, 4, 4, 20, 20};
    float values[6];
    embd_schema s = base();
    (void)state;
    /* From 9, and not from 0, where a first step is 1 whatever its gradient. */
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAGRAD, 1.0f);
    s.optimizer.initial_accumulator = 9.0f;
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    struct bench *t = open_table(&s);
    assert_int_equal(push(t, 5, keys, NULL, grads, NULL), EMBD_OK);
    pull(t, 3, (const uint64_t[]){8, 3, 5}, NULL, values, NULL);
    assert_true(values[0] == -(7.0f / (sqrtf(9.0f + 49.0f) + s.optimizer.eps)));
    assert_true(values[2] == -(10.0f / (sqrtf(9.0f + 100.0f) + s.optimizer.eps)));
    assert_true(values[4] == -(20.0f / (sqrtf(9.0f + 400.0f) + s.optimizer.eps)));
    assert_int_equal(stats(t).steps, 1);
    close_table(t);
}

/* ---- faults of the reference's optimizers ---- */

static void step_once(embd_schema *s, const float grads[2], float values[2])
{
    static const uint64_t key = 1;
    struct bench *t = open_table(s);
    assert_int_equal(push(t, 1, &key, NULL, grads, NULL), EMBD_OK);
    pull(t, 1, &key, NULL, values, NULL);
    close_table(t);
}

static void momentum_of_factor_0_is_sgd(void **state)
{
    static const float grads[2] = {0.5f, -2};
    float sgd[2], values[2];
    embd_schema s = base();
    (void)state;
    step_once(&s, grads, sgd);
    for (int kind = EMBD_OPTIMIZER_MOMENTUM; kind <= EMBD_OPTIMIZER_NESTEROV; kind++) {
        embd_optimizer_init(&s.optimizer, (embd_optimizer_kind)kind, 1.0f);
        s.optimizer.momentum = 0;
        step_once(&s, grads, values);
        assert_memory_equal(values, sgd, sizeof sgd);
    }
}

static void adagrad_begins_with_its_initial_value(void **state)
{
    static const float grads[2] = {3, 4};
    float values[2];
    embd_schema s = base();
    (void)state;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_ADAGRAD, 1.0f);
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    s.optimizer.initial_accumulator = 0.1f;
    step_once(&s, grads, values);
    for (int c = 0; c < 2; c++)
        assert_true(values[c] ==
                    -(grads[c] / (sqrtf(0.1f + grads[c] * grads[c]) + s.optimizer.eps)));
}

/* n = g*g, z = g - sqrt(n+e)-sqrt(e) over lr times w, w = (sign(z) l1 - z) / (sqrt(n+e)/lr + l2 +
 * beta/lr), or 0. */
static void ftrl_steps(void **state)
{
    static const float grads[2] = {3, 0.25f};
    float values[2];
    embd_schema s = base();
    (void)state;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_FTRL, 0.5f);
    s.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    s.optimizer.l1 = 0.5f;
    s.optimizer.l2 = 0.25f;
    s.optimizer.beta = 1;
    step_once(&s, grads, values);
    double root = sqrt(9.0 + (double)s.optimizer.eps);
    assert_true(fabs((double)values[0] - (0.5 - 3) / (root / 0.5 + 0.25 + 2)) < 1e-6);
    assert_true(values[1] == 0);
}

int main(int argc, char **argv)
{
#define TEST(text, fn)                                                                             \
    {                                                                                              \
        text, fn, NULL, NULL, NULL                                                                 \
    }
    const struct CMUnitTest tests[] = {
        TEST("S0.3 keys, slots and values belong together", keys_slots_and_values_belong_together),
        TEST("S0.4 a capacity of the slot sizes' sum holds every key",
             capacity_is_the_sum_of_the_slot_sizes),
        TEST("S0.5 S4.17 state is as large as the table, used or not",
             state_is_as_large_as_the_table),
        TEST("S0.7 slots have bounds of their own, in any order of arrival (the reference: of "
             "another slot)",
             slots_have_bounds_of_their_own_in_any_order_of_arrival),
        TEST("S0.7 without slot sizes rows start in -0.05 .. 0.05",
             without_sizes_rows_start_within_a_twentieth),
        TEST("S4.5 every key is legal, inserted once and found again",
             every_key_is_legal_and_found_again),
        TEST("2a S4.5 over-full is told for each key (the reference writes past its values)",
             over_full_is_told_for_each_key),
        TEST("S4.16 a row takes one step with the sum of its gradients",
             a_row_takes_one_step_with_the_sum_of_its_gradients),
        TEST("2d momentum and nesterov of factor 0 are sgd (the reference: NaN)",
             momentum_of_factor_0_is_sgd),
        TEST("2d adagrad begins with its initial value (the reference: a byte)",
             adagrad_begins_with_its_initial_value),
        TEST("2d ftrl steps (the reference throws)", ftrl_steps),
    };
    struct embd__error e = {0};
    ops = argc == 2 ? store_find(argv[1], &e) : NULL;
    return ops ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
