/* test_group.c - what goes from which device to which, in the examples of the papers that the flows
 * are taken from, and what happens when a device is lost. Rows are one column wide, so that a value
 * says where it comes from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/nccl/group.h"
#include "tests/store/pair.h"
#include "tests/cuda/stand_in_device.h"
#include "tests/nccl/stand_in_wire.h"

static struct group *group_of(const struct pair *pair)
{
    return (struct group *)(void *)pair->store;
}

static embd_schema one_column(embd_partition partition, uint32_t slots)
{
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "one");
    s.dim = 1;
    s.slots = slots;
    s.partition = partition;
    s.combiner = EMBD_COMBINER_SUM;
    s.initializer.kind = EMBD_INITIALIZER_CONSTANT;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 1.0f);
    return s;
}

/* The value of row i is values[i]. */
static void load(struct pair *pair, const uint64_t *keys, const uint16_t *slots,
                 const float *values, uint32_t n)
{
    struct embd__error e = {0};
    struct row_block block = {.n_rows = n, .keys = keys, .slots = slots, .rows = values};
    assert_int_equal(pair->ops->load(pair->store, &block, &e), EMBD_OK);
}

static void pull(struct pair *pair, const uint64_t *keys, const uint16_t *slots, float *values,
                 uint32_t n)
{
    struct outcome outcome;
    struct store_pull p = {.in = {n, n, keys, NULL, slots, NULL}, .count = n, .values = values};
    outcome_init(&outcome);
    pair->ops->pull(pair->store, &p, &outcome.done);
    while (outcome.calls == 0)
        pair->ops->collect(pair->store);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.status, EMBD_OK);
}

/* ---- what the wire carries ---- */

static struct watched {
    uint32_t n_exchanges;
    uint8_t sent[16][WIRE_MAX][128], got[16][WIRE_MAX][128];
    uint64_t sent_bytes[16][WIRE_MAX], got_bytes[16][WIRE_MAX];
} watched;

static void watch(uint32_t device, const uint8_t *sent, uint64_t sent_bytes, const uint8_t *got,
                  uint64_t got_bytes)
{
    watched.n_exchanges += device == 0;
    uint32_t i = watched.n_exchanges - 1;
    assert_true(i < 16 && sent_bytes <= 128 && got_bytes <= 128);
    memcpy(watched.sent[i][device], sent, sent_bytes);
    memcpy(watched.got[i][device], got, got_bytes);
    watched.sent_bytes[i][device] = sent_bytes;
    watched.got_bytes[i][device] = got_bytes;
}

static void watch_from_here(void)
{
    memset(&watched, 0, sizeof watched);
    stand_in_watch = watch;
}

static void assert_floats(const uint8_t *got, uint64_t bytes, const float *expected, uint32_t n)
{
    assert_int_equal(bytes, n * sizeof *expected);
    assert_memory_equal(got, expected, n * sizeof *expected);
}

static void assert_keys(const uint8_t *got, uint64_t bytes, const uint64_t *expected, uint32_t n)
{
    assert_int_equal(bytes, n * sizeof *expected);
    assert_memory_equal(got, expected, n * sizeof *expected);
}

/* What an owner had of the last call, its own and others'. */
static void assert_owner(const struct pair *pair, uint32_t device, enum lane lane,
                         const void *expected, uint64_t bytes)
{
    assert_memory_equal(group_of(pair)->spare->members[device].lanes[lane].owner, expected, bytes);
}

/* S0.12, S0.13: two samples of four slots on two devices. Owner 0, of slots 0 and 2, has 1 3 for
 * itself and sends 5 7, owner 1 sends 2 4 and has 6 8; so home 0 has 1 3 2 4, home 1 has 5 7 6 8.
 * S0.14, S0.16: in the answer slots rise. */
static void S0_12_S0_13_S0_14_S0_16_two_samples_of_four_slots(void **state)
{
    (void)state;
    static const uint64_t keys[] = {0, 0, 0, 0, 1, 1, 1, 1};
    static const uint16_t slots[] = {0, 1, 2, 3, 0, 1, 2, 3};
    static const float values[] = {1, 2, 3, 4, 5, 6, 7, 8};
    embd_schema schema = one_column(EMBD_PARTITION_SLOT, 4);
    struct pair pair;
    float got[8];
    pair_open(&pair, "nccl2", &schema, 1);
    load(&pair, keys, slots, values, 8);
    watch_from_here();
    pull(&pair, keys, slots, got, 8);
    stand_in_watch = NULL;
    uint32_t last = watched.n_exchanges - 1;
    assert_floats(watched.sent[last][0], watched.sent_bytes[last][0], (float[]){5, 7}, 2);
    assert_floats(watched.sent[last][1], watched.sent_bytes[last][1], (float[]){2, 4}, 2);
    assert_floats(watched.got[last][0], watched.got_bytes[last][0], (float[]){2, 4}, 2);
    assert_floats(watched.got[last][1], watched.got_bytes[last][1], (float[]){5, 7}, 2);
    assert_memory_equal(got, values, sizeof values);
    pair_close(&pair);
}

/* S0.14, S0.15, S0.16 for every number of slots, devices and samples a device; slots that do not
 * divide by the devices, and devices without a slot. */
static void S0_2_S0_14_S0_15_S0_16_slots_rise_on_any_number_of_devices(void **state)
{
    (void)state;
    static const char *const names[] = {"nccl1", "peer2", "nccl3", "peer4", "nccl8"};
    static const uint32_t devices[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < 5; i++)
        for (uint32_t n_slots = 1; n_slots <= 8; n_slots++)
            for (uint32_t b = 1; b <= 3; b++) {
                uint32_t n = n_slots * b * devices[i];
                embd_schema schema = one_column(EMBD_PARTITION_SLOT, n_slots);
                struct pair pair;
                uint64_t keys[192];
                uint16_t slots[192];
                float values[192], got[192];
                for (uint32_t r = 0; r < n; r++) {
                    keys[r] = r / n_slots;
                    slots[r] = (uint16_t)(r % n_slots);
                    values[r] = (float)r;
                }
                pair_open(&pair, names[i], &schema, 1);
                load(&pair, keys, slots, values, n);
                pull(&pair, keys, slots, got, n);
                assert_memory_equal(got, values, n * sizeof *values);
                pair_close(&pair);
            }
}

/* S0.1: ten slots on three devices. S4.1, S1.2: a modulo table's key is on device key % n. */
static void S0_1_S1_2_S4_1_slots_and_keys_go_round_the_devices(void **state)
{
    (void)state;
    uint64_t keys[30];
    uint16_t slots[30];
    float values[30] = {0};
    for (uint32_t i = 0; i < 30; i++) {
        keys[i] = i;
        slots[i] = (uint16_t)(i % 10);
    }
    for (int by_slot = 0; by_slot < 2; by_slot++) {
        embd_schema schema =
            one_column(by_slot ? EMBD_PARTITION_SLOT : EMBD_PARTITION_MODULO, by_slot ? 10 : 1);
        struct pair pair;
        pair_open(&pair, "nccl3", &schema, 1);
        load(&pair, keys, by_slot ? slots : NULL, values, 30);
        for (uint32_t d = 0; d < 3; d++) {
            const struct store *table = group_of(&pair)->tables[d];
            assert_int_equal(table->n_rows, by_slot ? (d == 0 ? 12 : 9) : 10);
            for (uint64_t r = 0; r < table->n_rows; r++)
                assert_int_equal((by_slot ? table->view.row_slots[r] : table->view.row_keys[r]) % 3,
                                 d);
        }
        pair_close(&pair);
    }
}

/* S1.1 - S1.9: device 0 asks for 0 1 3 5, of which three are on device 1; gradients go the answers'
 * way back, and equal keys are not merged before they are there. */
static void S1_1_S1_3_S1_4_S1_7_S1_8_S1_9_keys_are_dispatched(void **state)
{
    (void)state;
    static const uint64_t keys[] = {0, 1, 3, 5, 2, 5, 6, 7};
    static const uint64_t table[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const float rows[] = {0.0f, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f};
    static const float expected[] = {0.0f, 0.1f, 0.3f, 0.5f, 0.2f, 0.5f, 0.6f, 0.7f};
    static const float grads[] = {0, 1, 3, 5, 2, 5, 6, 7};
    embd_schema schema = one_column(EMBD_PARTITION_MODULO, 1);
    struct outcome outcome;
    struct pair pair;
    float got[8];
    pair_open(&pair, "nccl2", &schema, 1);
    load(&pair, table, NULL, rows, 8);
    watch_from_here();
    pull(&pair, keys, NULL, got, 8);
    assert_memory_equal(got, expected, sizeof expected);
    assert_keys(watched.sent[0][0], watched.sent_bytes[0][0], (uint64_t[]){1, 3, 5}, 3);
    assert_keys(watched.got[0][0], watched.got_bytes[0][0], (uint64_t[]){2, 6}, 2);
    assert_keys(watched.got[0][1], watched.got_bytes[0][1], (uint64_t[]){1, 3, 5}, 3);
    assert_owner(&pair, 0, LANE_KEYS, (uint64_t[]){0, 2, 6}, 3 * sizeof(uint64_t));
    assert_owner(&pair, 1, LANE_KEYS, (uint64_t[]){1, 3, 5, 5, 7}, 5 * sizeof(uint64_t));
    watch_from_here();
    struct store_change push = {.in = {8, 8, keys, NULL, NULL, NULL}, .grads = grads};
    outcome_init(&outcome);
    pair.ops->apply(pair.store, &push, &outcome.done);
    while (outcome.calls == 0)
        pair.ops->collect(pair.store);
    assert_int_equal(outcome.status, EMBD_OK);
    stand_in_watch = NULL;
    assert_floats(watched.got[1][1], watched.got_bytes[1][1], (float[]){1, 3, 5}, 3);
    assert_owner(&pair, 1, LANE_GRADS, (float[]){1, 3, 5, 5, 7}, 5 * sizeof(float));
    pull(&pair, keys, NULL, got, 8);
    assert_true(got[3] == 0.5f - 10.0f);
    pair_close(&pair);
}

static void pull_rows(struct pair *pair, const uint64_t *keys, const uint32_t *offsets,
                      uint32_t n_rows, float *values)
{
    struct outcome outcome;
    struct store_pull p = {.in = {offsets[n_rows], n_rows, keys, offsets, NULL, NULL},
                           .scale = true,
                           .count = n_rows,
                           .values = values};
    outcome_init(&outcome);
    pair->ops->pull(pair->store, &p, &outcome.done);
    while (outcome.calls == 0)
        pair->ops->collect(pair->store);
    assert_int_equal(outcome.status, EMBD_OK);
}

/* S4.1, S4.2: each device keeps its keys, in their order, with offsets of their own for all rows.
 * S4.12: it sends every other one b*S*D values. S4.13: offsets 0 4 7 9 10 and 0 5 7 10 11 make 0 9
 * 14 19 21, by whose differences rows are divided, here by those of the batch at home. S4.14: that
 * is so on every device. */
static void S4_1_S4_2_S4_12_S4_13_S4_14_partial_sums_and_their_offsets(void **state)
{
    (void)state;
    static const uint32_t even[] = {4, 3, 2, 1}, odd[] = {5, 2, 3, 1},
                          offsets[] = {0, 9, 14, 19, 21},
                          of_owner[2][5] = {{0, 4, 7, 9, 10}, {0, 5, 7, 10, 11}};
    static const uint64_t table[] = {0, 1};
    uint64_t keys[21];
    float got[4];
    embd_schema schema = one_column(EMBD_PARTITION_MODULO, 2);
    struct pair pair;
    schema.combiner = EMBD_COMBINER_MEAN;
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t i = 0; i < even[r] + odd[r]; i++)
            keys[offsets[r] + i] = i < odd[r];
    store_gpus.partial_sums = true;
    pair_open(&pair, "nccl2", &schema, 1);
    store_gpus.partial_sums = false;
    load(&pair, table, NULL, (const float[]){1.0f, 100.0f}, 2);
    watch_from_here();
    pull_rows(&pair, keys, offsets, 4, got);
    stand_in_watch = NULL;
    for (uint32_t d = 0; d < 2; d++)
        assert_memory_equal(group_of(&pair)->spare->members[d].offsets, of_owner[d],
                            sizeof of_owner[d]);
    assert_keys(watched.got[0][0], watched.got_bytes[0][0], (uint64_t[3]){0}, 3);
    assert_owner(&pair, 0, LANE_KEYS, (uint64_t[10]){0}, 10 * sizeof(uint64_t));
    uint32_t last = watched.n_exchanges - 1;
    assert_floats(watched.sent[last][0], watched.sent_bytes[last][0], (float[]){2, 1}, 2);
    assert_floats(watched.sent[last][1], watched.sent_bytes[last][1], (float[]){500, 200}, 2);
    for (uint32_t r = 0; r < 4; r++)
        assert_true(got[r] == (float)(even[r] + 100 * odd[r]) / (float)(even[r] + odd[r]));
    pair_close(&pair);
}

/* S4.12: key by key 1e8 + 1 - 1e8 is 0; by parts of two devices 1e8 - 1e8, then + 1. */
static void S4_12_order_of_a_sum_is_asked_for(void **state)
{
    (void)state;
    static const uint64_t keys[] = {0, 1, 2};
    static const uint32_t offsets[] = {0, 3};
    for (int is_partial = 0; is_partial < 2; is_partial++) {
        embd_schema schema = one_column(EMBD_PARTITION_MODULO, 1);
        struct pair pair;
        float got[1];
        store_gpus.partial_sums = is_partial;
        pair_open(&pair, is_partial ? "peer2" : "nccl2", &schema, 1);
        load(&pair, keys, NULL, (const float[]){1e8f, 1.0f, -1e8f}, 3);
        pull_rows(&pair, keys, offsets, 1, got);
        assert_true(got[0] == (is_partial ? 1.0f : 0.0f));
        pair_close(&pair);
    }
    store_gpus.partial_sums = false;
}

/* S4.15, S4.16: rows of many keys send their gradients to every device once; a row of few sends one
 * for each key. */
static void S4_15_S4_16_gradients_are_gathered(void **state)
{
    (void)state;
    static const uint64_t keys[] = {0, 1, 3, 2, 2, 3};
    static const uint32_t offsets[] = {0, 3, 6};
    embd_schema schema = one_column(EMBD_PARTITION_MODULO, 1);
    struct outcome outcome;
    struct pair pair;
    float got[4];
    schema.initializer.a = 0;
    pair_open(&pair, "nccl2", &schema, 1);
    watch_from_here();
    struct store_change push = {.in = {6, 2, keys, offsets, NULL, NULL},
                                .grads = (const float[]){1, 10}};
    outcome_init(&outcome);
    pair.ops->apply(pair.store, &push, &outcome.done);
    while (outcome.calls == 0)
        pair.ops->collect(pair.store);
    assert_int_equal(outcome.status, EMBD_OK);
    stand_in_watch = NULL;
    uint32_t last = watched.n_exchanges - 1;
    for (uint32_t d = 0; d < 2; d++) {
        assert_floats(watched.got[last][d], watched.got_bytes[last][d], &(float){d ? 1 : 10}, 1);
        assert_owner(&pair, d, LANE_GRADS, (float[]){1, 10}, 2 * sizeof(float));
    }
    pull(&pair, (const uint64_t[]){0, 1, 2, 3}, NULL, got, 4);
    assert_floats((uint8_t *)got, sizeof got, (float[]){-1, -1, -20, -11}, 4);
    pair_close(&pair);
}

/* A device gets only what is its: nothing is sent where there is nothing to send. */
static void test_no_empty_messages(void **state)
{
    (void)state;
    static const uint64_t keys[] = {0, 4, 8, 12};
    static const float rows[] = {1, 2, 3, 4};
    embd_schema schema = one_column(EMBD_PARTITION_MODULO, 1);
    struct pair pair;
    float got[1];
    pair_open(&pair, "nccl4", &schema, 1);
    load(&pair, keys, NULL, rows, 4);
    stand_in_messages = 0;
    pull(&pair, keys + 1, NULL, got, 1); /* device 0 asks, and has it */
    assert_int_equal(stand_in_messages, 0);
    assert_true(got[0] == 2);
    pair_close(&pair);
}

/* ---- failures ---- */

enum { N = 3000 };

/* N rows, and a batch of N other keys. */
static void open_with_rows(struct pair *pair, struct batch *others, embd_on_full on_full)
{
    embd_schema schema = one_column(EMBD_PARTITION_HASH, 1);
    static uint64_t keys[2][N];
    struct batch batch;
    schema.on_full = on_full;
    schema.capacity = on_full == EMBD_ON_FULL_GROW ? 0 : N + N / 2;
    pair_open(pair, "nccl3", &schema, 3);
    for (uint64_t i = 0; i < N; i++) {
        keys[0][i] = i;
        keys[1][i] = i + 1000000;
    }
    batch_of(&batch, keys[0], N);
    batch_of(others, keys[1], N);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
}

static int push_others(struct pair *pair, const struct batch *others, struct outcome *outcome)
{
    float *grads = calloc(N, sizeof *grads);
    struct store_change push = {.in = batch_keys(others), .grads = grads};
    outcome_init(outcome);
    pair->ops->apply(pair->store, &push, &outcome->done);
    while (outcome->calls == 0)
        pair->ops->collect(pair->store);
    free(grads);
    return outcome->status;
}

/* Memory runs out at every place in turn: nothing changes, also where rows were about to go. */
static void run_out(embd_on_full on_full, uint32_t least_failures)
{
    struct batch others;
    struct outcome outcome;
    struct pair pair;
    uint32_t n_failed = 0;
    open_with_rows(&pair, &others, on_full);
    for (uint64_t n = 0;; n++) {
        stand_in_calls_left = n;
        int status = push_others(&pair, &others, &outcome);
        stand_in_calls_left = UINT64_MAX;
        if (status == EMBD_OK)
            break;
        assert_int_equal(status, EMBD_NO_MEMORY);
        pair_compare(&pair);
        n_failed++;
    }
    assert_true(n_failed >= least_failures);
    batch_free(&others);
    pair_close(&pair);
    assert_int_equal(stand_in_bytes, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    run_out(EMBD_ON_FULL_GROW, 6);
    run_out(EMBD_ON_FULL_EVICT_LRU, 12);
}

/* Every member has what is reserved, or the table is as before. */
static void test_reserved(void **state)
{
    (void)state;
    struct batch others;
    struct pair pair;
    struct embd__error e = {.status = EMBD_NO_MEMORY};
    uint64_t n = 0, *keys = malloc(200 * N * sizeof *keys);
    for (uint64_t i = 0; i < 200 * N; i++)
        keys[i] = 50000000 + i;
    struct store_change push = {.in = {200 * N, 200 * N, keys, NULL, NULL, NULL}};
    open_with_rows(&pair, &others, EMBD_ON_FULL_GROW);
    for (; e.status == EMBD_NO_MEMORY; n++) {
        e.status = EMBD_OK;
        stand_in_calls_left = n;
        pair.ops->prepare(pair.store, &push, STORE_PREPARE_MEMORY, &e);
        stand_in_calls_left = UINT64_MAX;
        pair_compare(&pair);
    }
    assert_int_equal(e.status, EMBD_OK);
    assert_true(n > 3);
    for (uint32_t d = 0; d < 3; d++)
        assert_true(group_of(&pair)->tables[d]->capacity >= 200 * N);
    batch_free(&others);
    pair_close(&pair);
    free(keys);
    assert_int_equal(stand_in_bytes, 0);
}

/* Devices stop answering at every place of a push that evicts: it ends with an error, in time. */
static void test_stuck_anywhere(void **state)
{
    (void)state;
    uint64_t patience = group_patience_ms;
    int status = EMBD_INTERNAL;
    uint64_t n = 0;
    for (; status != EMBD_OK; n += 3) {
        struct batch others;
        struct outcome outcome;
        struct pair pair;
        open_with_rows(&pair, &others, EMBD_ON_FULL_EVICT_LRU);
        group_patience_ms = 2;
        stand_in_queries_left = n;
        status = push_others(&pair, &others, &outcome);
        stand_in_queries_left = UINT64_MAX;
        group_patience_ms = patience;
        if (status != EMBD_OK) {
            assert_int_equal(status, EMBD_INTERNAL);
            assert_non_null(strstr(outcome.done.error.text, "not done after 2 ms"));
        }
        batch_free(&others);
        pair_close(&pair);
    }
    assert_true(n > 30);
}

/* Several calls are under way when a device does not answer any more, or the wire says that it is
 * lost: all are answered, and so is every later one; nothing waits. */
static void lose(bool is_told, const char *expected)
{
    embd_schema schema = one_column(EMBD_PARTITION_HASH, 1);
    uint64_t keys[64], patience = group_patience_ms;
    float values[64], grads[64] = {0};
    struct outcome outcomes[4];
    struct pair pair;
    struct embd__error e = {0};
    struct scanned scanned;
    uint64_t cursor = 0, start = wire_now_ms();
    for (uint32_t i = 0; i < 64; i++)
        keys[i] = i;
    pair_open(&pair, "nccl2", &schema, 1);
    struct store_change push = {.in = {64, 64, keys, NULL, NULL, NULL}, .grads = grads};
    struct store_pull p = {.in = push.in, .count = 64, .values = values};
    for (int i = 0; i < 4; i++)
        outcome_init(&outcomes[i]);
    stand_in_aborts = 0;
    stand_in_is_stuck = true;
    stand_in_lost = is_told;
    group_patience_ms = is_told ? 60000 : 30;
    pair.ops->apply(pair.store, &push, &outcomes[0].done);
    pair.ops->pull(pair.store, &p, &outcomes[1].done);
    pair.ops->apply(pair.store, &push, &outcomes[2].done);
    while (pair.ops->collect(pair.store))
        assert_true(wire_now_ms() - start < 10000);
    pair.ops->pull(pair.store, &p, &outcomes[3].done);
    while (pair.ops->collect(pair.store))
        ;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].status, EMBD_INTERNAL);
        assert_non_null(strstr(outcomes[i].done.error.text, expected));
    }
    assert_int_equal(stand_in_aborts, 1);
    scanned_init(&scanned, &schema, 10, 0);
    assert_int_equal(pair.ops->scan(pair.store, &cursor, 10, &scanned.out, &e), EMBD_INTERNAL);
    scanned_free(&scanned);
    pair_close(&pair);
    stand_in_is_stuck = stand_in_lost = false;
    group_patience_ms = patience;
}

static void test_device_stuck(void **state)
{
    (void)state;
    lose(false, "not done after 30 ms");
}

static void test_device_lost(void **state)
{
    (void)state;
    lose(true, "told to lose a device");
}

/* Devices that do not answer any more while a cut is read, with no call under way: its end is an
 * error, whether it is read on or given up, in time. */
static void lose_in_a_cut(bool is_read_on)
{
    embd_schema schema = one_column(EMBD_PARTITION_HASH, 1);
    uint64_t keys[64], patience = group_patience_ms, start = wire_now_ms();
    float grads[64] = {0};
    struct outcome pushed, later;
    struct pair pair;
    struct embd__error e = {0};
    struct scanned scanned;
    bool done;
    for (uint32_t i = 0; i < 64; i++)
        keys[i] = i;
    pair_open(&pair, "nccl2", &schema, 1);
    struct store_change push = {.in = {64, 64, keys, NULL, NULL, NULL}, .grads = grads};
    outcome_init(&pushed);
    outcome_init(&later);
    pair.ops->apply(pair.store, &push, &pushed.done);
    while (pair.ops->collect(pair.store))
        ;
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    scanned_init(&scanned, &schema, 3, 0);
    stand_in_is_stuck = true;
    group_patience_ms = 30;
    int status = pair.ops->scan_frozen(pair.store, 3, &scanned.out, &done, &e);
    while (is_read_on && status == EMBD_OK) {
        assert_true(wire_now_ms() - start < 10000 && !done);
        status = pair.ops->scan_frozen(pair.store, 3, &scanned.out, &done, &e);
    }
    assert_int_equal(status, is_read_on ? EMBD_INTERNAL : EMBD_OK);
    pair.ops->thaw(pair.store);
    pair.ops->apply(pair.store, &push, &later.done);
    while (pair.ops->collect(pair.store))
        ;
    assert_int_equal(later.status, EMBD_INTERNAL);
    assert_non_null(
        strstr(later.done.error.text, is_read_on ? "copying rows out" : "ending a cut"));
    scanned_free(&scanned);
    pair_close(&pair);
    stand_in_is_stuck = false;
    group_patience_ms = patience;
}

static void test_device_stuck_in_a_cut(void **state)
{
    (void)state;
    lose_in_a_cut(true);
    lose_in_a_cut(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S0_12_S0_13_S0_14_S0_16_two_samples_of_four_slots),
        cmocka_unit_test(S0_2_S0_14_S0_15_S0_16_slots_rise_on_any_number_of_devices),
        cmocka_unit_test(S0_1_S1_2_S4_1_slots_and_keys_go_round_the_devices),
        cmocka_unit_test(S1_1_S1_3_S1_4_S1_7_S1_8_S1_9_keys_are_dispatched),
        cmocka_unit_test(S4_1_S4_2_S4_12_S4_13_S4_14_partial_sums_and_their_offsets),
        cmocka_unit_test(S4_12_order_of_a_sum_is_asked_for),
        cmocka_unit_test(S4_15_S4_16_gradients_are_gathered),
        cmocka_unit_test(test_no_empty_messages),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_stuck_anywhere),
        cmocka_unit_test(test_device_stuck),
        cmocka_unit_test(test_device_lost),
        cmocka_unit_test(test_device_stuck_in_a_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
