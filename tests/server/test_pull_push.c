/* test_pull_push.c - pulls and pushes of one shard against the model, bit for bit; requests of
 * several parts; a store that answers later. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/batch.h"
#include "tests/server/deferred_store.h"
#include "proto/convert.h"
#include "proto/route.h"

static embd_schema schema_of(const char *name, uint32_t dim, embd_combiner combiner)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = dim;
    schema.combiner = combiner;
    schema.seed = 77;
    return schema;
}

/* ---- against the model ---- */

static void check_pull(struct rig *rig, struct model *model, struct batch *batch, embd_dtype dtype,
                       bool weighted)
{
    static uint8_t values[BATCH_KEYS * 64 * 4], expected[BATCH_KEYS * 64 * 4];
    static float plain[BATCH_KEYS * 64];
    uint8_t statuses[BATCH_KEYS], expected_statuses[BATCH_KEYS];
    struct part part = batch_part(batch, &model->schema, dtype, weighted);
    struct model_batch model_batch = batch_model(batch, &model->schema, weighted);
    bool divides = model->schema.combiner == EMBD_COMBINER_MEAN ||
                   model->schema.combiner == EMBD_COMBINER_SQRTN;
    part.scale = divides;
    uint64_t n = (uint64_t)batch->n_rows * model->schema.dim;
    if (model->schema.create_on == EMBD_CREATE_ON_PULL) {
        model_insert(model, &model_batch, expected_statuses, NULL);
        model_pull(model, &model_batch, false, divides, plain, NULL);
    } else {
        model_pull(model, &model_batch, false, divides, plain, expected_statuses);
    }
    embd__from_f32(expected, dtype, plain, n);
    pull(rig, &part, values, statuses);
    assert_memory_equal(values, expected, n * embd__dtype_bytes(dtype));
    assert_memory_equal(statuses, expected_statuses, batch->n_keys);
}

static void check_push(struct rig *rig, struct model *model, struct batch *batch, embd_dtype dtype,
                       bool weighted, bool divides)
{
    uint8_t statuses[BATCH_KEYS], expected[BATCH_KEYS];
    struct model_counts counts;
    struct model_batch model_batch = batch_model(batch, &model->schema, weighted);
    struct part part = batch_part(batch, &model->schema, dtype, weighted);
    part.scale = divides;
    assert_int_equal(model_push(model, &model_batch, batch->grads, divides, expected, &counts),
                     EMBD_OK);
    struct push_answer answer = push(rig, &part, statuses);
    assert_int_equal(answer.step, model->step);
    assert_int_equal(answer.n_inserted, counts.n_inserted);
    assert_int_equal(answer.n_filtered, counts.n_filtered);
    assert_int_equal(answer.n_full, counts.n_full);
    assert_memory_equal(statuses, expected, batch->n_keys);
}

static void check_schema(const embd_schema *schema)
{
    struct rig rig;
    struct model *model = model_new(schema);
    struct batch *batch = calloc(1, sizeof *batch);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, schema);
    for (int round = 0; round < 8; round++) {
        embd_dtype dtype = (embd_dtype)(round % 3);
        bool is_pooled = schema->combiner != EMBD_COMBINER_CONCAT,
             weighted = is_pooled && round % 2 == 1;
        batch_fill(batch, schema);
        check_pull(&rig, model, batch, dtype, weighted);
        check_push(&rig, model, batch, dtype, weighted, is_pooled && round % 4 > 1);
        check_pull(&rig, model, batch, EMBD_DTYPE_F32, weighted);
    }
    rig_close(&rig);
    free(batch);
    model_free(model);
}

static void every_optimizer_gives_the_models_bits(void **state)
{
    (void)state;
    for (int kind = EMBD_OPTIMIZER_SGD; kind <= EMBD_OPTIMIZER_FTRL; kind++) {
        embd_schema schema = schema_of("items", 8, EMBD_COMBINER_SUM);
        embd_optimizer_init(&schema.optimizer, (embd_optimizer_kind)kind, 0.05f);
        schema.optimizer.scaler = kind % 2 ? 3.0f : 1.0f;
        check_schema(&schema);
    }
}

static void every_combiner_partition_and_dtype_gives_the_models_bits(void **state)
{
    (void)state;
    for (int combiner = EMBD_COMBINER_CONCAT; combiner <= EMBD_COMBINER_SQRTN; combiner++)
        for (int partition = EMBD_PARTITION_HASH; partition <= EMBD_PARTITION_SLOT; partition++)
            for (int dtype = EMBD_DTYPE_F32; dtype <= EMBD_DTYPE_BF16; dtype++) {
                embd_schema schema = schema_of("items", 5, (embd_combiner)combiner);
                schema.partition = (embd_partition)partition;
                schema.dtype = (embd_dtype)dtype;
                schema.slots = 4;
                embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
                check_schema(&schema);
            }
}

static void rows_are_created_when_the_schema_says(void **state)
{
    (void)state;
    embd_schema schema = schema_of("items", 4, EMBD_COMBINER_SUM);
    schema.create_on = EMBD_CREATE_ON_PULL;
    check_schema(&schema);
    schema.admit_after = 3;
    check_schema(&schema);
    schema.create_on = EMBD_CREATE_ON_PUSH;
    check_schema(&schema);
    schema.on_full = EMBD_ON_FULL_ERROR;
    schema.capacity = 100;
    check_schema(&schema);
}

/* ---- several parts ---- */

#define N_ROOM 12u

static void create_bound(struct rig *rig, const char *name, embd_on_full on_full,
                         embd_create_on create_on)
{
    embd_schema schema = schema_of(name, 2, EMBD_COMBINER_CONCAT);
    schema.on_full = on_full;
    schema.capacity = N_ROOM;
    schema.create_on = create_on;
    create_table(rig, &schema);
}

static struct part room_part(const char *table, const uint64_t *keys, uint32_t n,
                             const float *grads)
{
    return (struct part){.table = embd__table_id(table),
                         .n_keys = n,
                         .n_rows = n,
                         .keys = keys,
                         .grads = grads,
                         .grads_bytes = n * 2 * sizeof *grads};
}

static void a_push_that_would_overfill_a_later_table_changes_no_table(void **state)
{
    (void)state;
    struct rig rig;
    struct image a, b;
    const uint64_t keys[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 1, 2, 3};
    const float grads[32] = {1, 2, 3};
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_bound(&rig, "a", EMBD_ON_FULL_ERROR, EMBD_CREATE_ON_PUSH);
    create_bound(&rig, "b", EMBD_ON_FULL_ERROR, EMBD_CREATE_ON_PUSH);
    struct part parts[2] = {room_part("a", keys, 8, grads), room_part("b", keys, 8, grads)};
    push(&rig, &parts[1], NULL);
    image_take(&rig, "a", &a);
    image_take(&rig, "b", &b);
    parts[1] = room_part("b", keys, 13, grads);
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_FULL, "part 1", "table b", "5 keys",
              "12", NULL);
    image_check(&rig, "a", &a);
    image_check(&rig, "b", &b);
    parts[1] = room_part("b", keys + 1, 15, grads); /* 1 to 13 again, 13 distinct: no room */
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_FULL, "part 1", NULL);
    image_check(&rig, "a", &a);
    parts[1] = room_part("b", keys, 12, grads); /* just fits */
    struct exchange *x = ask_parts(&rig, METHOD_PUSH, parts, 2);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(figure(&rig, "a", "rows"), 8);
    assert_int_equal(figure(&rig, "b", "rows"), 12);
    parts[1].n_keys = parts[1].n_rows = 12; /* full, and all keys have rows */
    x = ask_parts(&rig, METHOD_PUSH, parts, 2);
    ask_ok(x);
    ask_free(x);
    parts[0] = room_part("b", keys, 13, grads); /* alone: refused by the store */
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 1), EMBD_FULL, "b", NULL);
    parts[0].want_status = true;
    uint8_t statuses[13];
    assert_int_equal(push(&rig, parts, statuses).n_full, 1);
    assert_int_equal(statuses[12], EMBD_KEY_FULL);
    image_fini(&a);
    image_fini(&b);
    rig_close(&rig);
}

/* A later table that cannot hold the part's keys, though all others went, refuses before the first
 * evicts; one that can makes room. */
static void a_push_that_a_later_evicting_table_cannot_hold_changes_no_table(void **state)
{
    (void)state;
    struct rig rig;
    struct image a, b;
    const uint64_t keys[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const float grads[32] = {1, 2, 3};
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_bound(&rig, "a", EMBD_ON_FULL_EVICT_LRU, EMBD_CREATE_ON_PUSH);
    create_bound(&rig, "b", EMBD_ON_FULL_EVICT_LFU, EMBD_CREATE_ON_PUSH);
    struct part parts[2] = {room_part("a", keys, 12, grads), room_part("b", keys, 8, grads)};
    push(&rig, &parts[0], NULL);
    push(&rig, &parts[1], NULL);
    image_take(&rig, "a", &a);
    image_take(&rig, "b", &b);
    parts[0] = room_part("a", keys + 12, 4, grads);
    parts[1] = room_part("b", keys, 13, grads); /* 8 of them have rows */
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_FULL, "part 1", "table b", "5 keys",
              "4 rows", "12", NULL);
    image_check(&rig, "a", &a);
    image_check(&rig, "b", &b);
    parts[1] = room_part("b", keys + 4, 12, grads);
    struct exchange *x = ask_parts(&rig, METHOD_PUSH, parts, 2);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(figure(&rig, "a", "evicted"), 4);
    assert_int_equal(figure(&rig, "b", "evicted"), 4);
    assert_int_equal(figure(&rig, NULL, "keys_evicted"), 8);
    assert_int_equal(figure(&rig, "a", "rows"), 12);
    assert_int_equal(figure(&rig, "b", "rows"), 12);
    image_fini(&a);
    image_fini(&b);
    rig_close(&rig);
}

static void a_creating_pull_without_room_creates_nothing(void **state)
{
    (void)state;
    struct rig rig;
    const uint64_t keys[14] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_bound(&rig, "a", EMBD_ON_FULL_ERROR, EMBD_CREATE_ON_PULL);
    struct part parts[2] = {room_part("a", keys, 7, NULL), room_part("a", keys + 7, 7, NULL)};
    ask_error(ask_parts(&rig, METHOD_PULL, parts, 2), EMBD_FULL, "part 0", "table a", "14 keys",
              "12", NULL);
    assert_int_equal(figure(&rig, "a", "rows"), 0);
    parts[0] = room_part("a", keys, 14, NULL);
    ask_error(ask_parts(&rig, METHOD_PULL, parts, 1), EMBD_FULL, "a", NULL);
    assert_int_equal(figure(&rig, "a", "rows"), 0);
    rig_close(&rig);
}

static void no_parts_and_empty_parts_are_answered(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema schema = schema_of("items", 4, EMBD_COMBINER_SUM);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    struct exchange *x = ask_parts(&rig, METHOD_PULL, NULL, 0);
    ask_ok(x);
    ask_free(x);
    const uint32_t offsets[4] = {0, 0, 0, 0};
    const float grads[12] = {0};
    float values[12] = {1, 2, 3};
    struct part part = {.table = embd__table_id("items"),
                        .n_rows = 3,
                        .offsets = offsets,
                        .grads = grads,
                        .grads_bytes = sizeof grads};
    pull(&rig, &part, values, NULL);
    assert_memory_equal(values, grads, sizeof values);
    assert_int_equal(push(&rig, &part, NULL).step, 1);
    part = (struct part){.table = embd__table_id("items"), .want_status = true};
    pull(&rig, &part, values, (uint8_t *)values);
    assert_int_equal(push(&rig, &part, (uint8_t *)values).step, 2);
    rig_close(&rig);
}

/* ---- a store that answers later ---- */

static void a_late_store_answers_in_order_and_in_full(void **state)
{
    (void)state;
    struct rig rig;
    const uint64_t keys[4] = {1, 2, 3, 4};
    const float grads[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    deferred_open();
    rig_open(&rig, &store_deferred, 0, 1, NULL);
    create_bound(&rig, "a", EMBD_ON_FULL_ERROR, EMBD_CREATE_ON_PULL);
    struct part part = room_part("a", keys, 4, grads);
    part.want_status = true;
    struct exchange *pulled = ask_parts(&rig, METHOD_PULL, &part, 1);
    struct exchange *pushed = ask_parts(&rig, METHOD_PUSH, &part, 1);
    struct exchange *held = ask(&rig, &rig.admin, METHOD_HOLD),
                    *after = ask_parts(&rig, METHOD_PULL, &part, 1);
    embd__msg_map(&held->out, 0);
    ask_send(pulled);
    ask_send(pushed);
    ask_send(held); /* waits for both */
    assert_false(pulled->is_answered || pushed->is_answered || held->is_answered);
    while (deferred_run())
        ;
    assert_true(pulled->is_answered && pushed->is_answered && held->is_answered);
    ask_send(after);
    assert_false(after->is_answered); /* creates rows: waits for the release */
    struct exchange *release = ask(&rig, &rig.admin, METHOD_RELEASE);
    embd__msg_map(&release->out, 0);
    ask_send(release);
    while (deferred_run())
        ;
    struct part_answer first, second;
    ask_ok(pulled);
    ask_ok(after);
    assert_int_equal(embd__pull_answer_read(&pulled->reader, &first, 1), 1);
    assert_int_equal(embd__pull_answer_read(&after->reader, &second, 1), 1);
    assert_int_equal(first.statuses[0], EMBD_KEY_INSERTED);
    assert_int_equal(second.statuses[0], EMBD_KEY_HIT);
    assert_int_equal(figure(&rig, "a", "steps"), 1);
    struct exchange *all[] = {pulled, pushed, held, after, release};
    for (int i = 0; i < 5; i++)
        ask_free(all[i]);
    rig_close(&rig);
}

/* ---- no memory ---- */

static uint32_t n_pushes_left;

static void push_or_not(struct store *store, struct store_change *push, struct store_done *done)
{
    if (n_pushes_left-- > 0)
        store_host.apply(store, push, done);
    else
        done->fn(done, embd__error_set(&done->error, EMBD_NO_MEMORY, "no memory for rows"));
}

static void memory_running_out_in_a_later_part_is_told(void **state)
{
    (void)state;
    struct rig rig;
    const uint64_t keys[2] = {1, 2};
    const float grads[4] = {0};
    struct store_ops ops = store_host;
    ops.apply = push_or_not;
    rig_open(&rig, &ops, 0, 1, NULL);
    create_bound(&rig, "a", EMBD_ON_FULL_ERROR, EMBD_CREATE_ON_PUSH);
    create_bound(&rig, "b", EMBD_ON_FULL_ERROR, EMBD_CREATE_ON_PUSH);
    struct part parts[2] = {room_part("a", keys, 2, grads), room_part("b", keys, 2, grads)};
    n_pushes_left = 1;
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_NO_MEMORY, "no memory for rows",
              "1 of the 2 parts were applied", NULL);
    assert_int_equal(figure(&rig, "a", "steps"), 1);
    assert_int_equal(figure(&rig, "b", "steps"), 0);
    n_pushes_left = 0;
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_NO_MEMORY, "no memory for rows", NULL);
    assert_int_equal(figure(&rig, "a", "steps"), 1);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_gives_the_models_bits),
        cmocka_unit_test(every_combiner_partition_and_dtype_gives_the_models_bits),
        cmocka_unit_test(rows_are_created_when_the_schema_says),
        cmocka_unit_test(a_push_that_would_overfill_a_later_table_changes_no_table),
        cmocka_unit_test(a_push_that_a_later_evicting_table_cannot_hold_changes_no_table),
        cmocka_unit_test(a_creating_pull_without_room_creates_nothing),
        cmocka_unit_test(no_parts_and_empty_parts_are_answered),
        cmocka_unit_test(a_late_store_answers_in_order_and_in_full),
        cmocka_unit_test(memory_running_out_in_a_later_part_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
