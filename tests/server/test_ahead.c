/* test_ahead.c - pushes whose gradients arrive slowly: whatever happens between the first byte and the
 * last, the table is what the model says of pushes made at their last byte. */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "route.h"

#define DIM 64u
/* Less than the gradients of a batch, and more than what makes a shard look ahead (ahead.c). */
#define GRADS_BYTES (BATCH_ROWS * DIM * 4)

static embd_schema schema_of(uint32_t capacity)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = DIM;
    schema.combiner = EMBD_SUM;
    schema.seed = 5;
    schema.optimizer.kind = EMBD_ADAGRAD;
    schema.capacity = capacity;
    return schema;
}

/* A push on its way, with what it carries. */
struct late_push {
    struct batch batch;
    struct exchange *x;
};

static struct late_push *begin(struct rig *rig, const embd_schema *schema, uint64_t random,
                               uint32_t arrived, uint32_t chunk)
{
    struct late_push *late = calloc(1, sizeof *late);
    assert_non_null(late);
    late->batch.random = random;
    batch_fill(&late->batch, schema);
    struct part part = batch_part(&late->batch, schema, EMBD_F32, false);
    late->x = ask_parts(rig, METHOD_PUSH, &part, 1);
    ask_arrive(late->x, arrived, chunk);
    return late;
}

static void end(struct late_push *late, struct model *model)
{
    uint8_t statuses[BATCH_KEYS];
    struct model_counts counts;
    struct push_answer answer;
    struct model_batch batch = batch_model(&late->batch, &model->schema, false);
    assert_int_equal(model_push(model, &batch, late->batch.grads, false, statuses, &counts), EMBD_OK);
    ask_arrive_all(late->x);
    ask_read(late->x);
    bool again;
    assert_int_equal(embd__push_answer_read(&late->x->reader, &answer, 1, &again), 1);
    assert_int_equal(answer.step, model->step);
    assert_int_equal(answer.n_inserted, counts.n_inserted);
    ask_free(late->x);
    free(late);
}

static void check_table(struct rig *rig, struct model *model)
{
    static float values[1000 * DIM], expected[1000 * DIM];
    uint64_t keys[1000];
    uint32_t offsets[1001];
    uint8_t statuses[1000], expected_statuses[1000];
    for (uint32_t k = 0; k < 1000; k++) {
        keys[k] = k;
        offsets[k] = k;
    }
    offsets[1000] = 1000;
    struct part part = {.table = embd__table_id("t"), .n_keys = 1000, .n_rows = 1000, .want_status = true,
                        .keys = keys, .offsets = offsets};
    struct model_batch batch = {.n_keys = 1000, .n_rows = 1000, .keys = keys, .offsets = offsets};
    pull(rig, &part, values, statuses);
    model_pull(model, &batch, false, false, expected, expected_statuses);
    assert_memory_equal(statuses, expected_statuses, sizeof statuses);
    assert_memory_equal(values, expected, sizeof values);
}

static void pushes_that_overlap_in_time_give_the_models_bits(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema schema = schema_of(0);
    struct model *model = model_new(&schema);
    struct late_push *on_their_way[3] = {NULL};
    uint64_t random = 12345;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    for (uint32_t round = 0; round < 60; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct late_push **late = &on_their_way[(random >> 33) % 3];
        if (*late != NULL) {
            end(*late, model);
            *late = NULL;
            check_table(&rig, model);
        } else {
            uint32_t arrived = (uint32_t)(random >> 40) % GRADS_BYTES;
            *late = begin(&rig, &schema, random, arrived, 1 + (uint32_t)(random >> 50));
        }
    }
    for (int i = 0; i < 3; i++)
        if (on_their_way[i] != NULL)
            end(on_their_way[i], model);
    check_table(&rig, model);
    rig_close(&rig);
    model_free(model);
}

static void a_push_that_never_ends_leaves_nothing_behind(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema schema = schema_of(0);
    struct model *model = model_new(&schema);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    for (uint64_t i = 1; i < 6; i++) {
        struct late_push *gone = begin(&rig, &schema, i, 1000, 100);
        ask_free(gone->x);
        free(gone);
        check_table(&rig, model);
        end(begin(&rig, &schema, 70 + i, 50000, 4096), model);
        check_table(&rig, model);
    }
    rig_close(&rig);
    model_free(model);
}

static void a_table_dropped_and_made_anew_meanwhile_takes_the_push(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema schema = schema_of(0);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    struct late_push *late = begin(&rig, &schema, 9, 50000, 5000);
    struct exchange *drop = ask(&rig, &rig.data, METHOD_TABLE_DROP);
    embd__msg_map(&drop->out, 1);
    embd__msg_field_str(&drop->out, "name", "t");
    ask_ok(drop);
    ask_free(drop);
    create_table(&rig, &schema);
    struct model *model = model_new(&schema);
    struct late_push *other = begin(&rig, &schema, 10, 40000, 4000);
    end(late, model);
    end(other, model);
    check_table(&rig, model);
    rig_close(&rig);
    model_free(model);
}

/* A value that is no number is found wherever it stands, before, at and behind what was looked at. */
static void no_number_is_found_wherever_it_arrives(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema schema = schema_of(0);
    struct model *model = model_new(&schema);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    for (uint32_t at = 0; at < GRADS_BYTES / 4; at += 1021) {
        struct batch *batch = calloc(1, sizeof *batch);
        batch->random = at + 1;
        batch_fill(batch, &schema);
        batch->grads[at] = NAN;
        struct part part = batch_part(batch, &schema, EMBD_F32, false);
        struct exchange *x = ask_parts(&rig, METHOD_PUSH, &part, 1);
        ask_arrive(x, 30001, 777);
        ask_arrive_all(x);
        char column[32];
        snprintf(column, sizeof column, "row %u", at / DIM);
        ask_error(x, EMBD_NOT_FINITE, column, NULL);
        check_table(&rig, model);
        free(batch);
    }
    rig_close(&rig);
    model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_that_overlap_in_time_give_the_models_bits),
        cmocka_unit_test(a_push_that_never_ends_leaves_nothing_behind),
        cmocka_unit_test(a_table_dropped_and_made_anew_meanwhile_takes_the_push),
        cmocka_unit_test(no_number_is_found_wherever_it_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
