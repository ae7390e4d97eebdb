/* test_ahead.c - pushes whose gradients arrive slowly: whatever happens between the first byte
 * and the last, the table is what the model says of pushes made at their last byte. */
#include "tests/server/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/batch.h"
#include "proto/route.h"

#define DIM 64u
/* Less than the gradients of a batch, and more than what makes a shard look ahead (prefetch.c). */
#define GRADS_BYTES (BATCH_ROWS * DIM * 4)

static embd_schema table_schema(void)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = DIM;
    schema.combiner = EMBD_COMBINER_SUM;
    schema.seed = 5;
    schema.optimizer.kind = EMBD_OPTIMIZER_ADAGRAD;
    return schema;
}

/* A shard with one table, and the model of that. */
struct beside {
    struct rig rig;
    embd_schema schema;
    struct model *model;
};

static void beside_open(struct beside *b)
{
    b->schema = table_schema();
    b->model = model_new(&b->schema);
    rig_open(&b->rig, &store_host, 0, 1, NULL);
    create_table(&b->rig, &b->schema);
}

static void beside_close(struct beside *b)
{
    rig_close(&b->rig);
    model_free(b->model);
}

/* A push on its way, with what it carries. */
struct late_push {
    struct batch batch;
    struct exchange *x;
};

static struct late_push *begin(struct beside *b, uint64_t random, uint32_t arrived, uint32_t chunk)
{
    struct late_push *late = calloc(1, sizeof *late);
    assert_non_null(late);
    late->batch.random = random;
    batch_fill(&late->batch, &b->schema);
    struct part part = batch_part(&late->batch, &b->schema, EMBD_DTYPE_F32, false);
    late->x = ask_parts(&b->rig, METHOD_PUSH, &part, 1);
    ask_arrive(late->x, arrived, chunk);
    return late;
}

static void end(struct late_push *late, struct beside *b)
{
    uint8_t statuses[BATCH_KEYS];
    struct model_counts counts;
    struct push_answer answer;
    struct model_batch batch = batch_model(&late->batch, &b->schema, false);
    assert_int_equal(model_push(b->model, &batch, late->batch.grads, false, statuses, &counts),
                     EMBD_OK);
    ask_arrive_all(late->x);
    ask_read(late->x);
    bool again;
    assert_int_equal(embd__push_answer_read(&late->x->reader, &answer, 1, &again), 1);
    assert_int_equal(answer.step, b->model->step);
    assert_int_equal(answer.n_inserted, counts.n_inserted);
    ask_free(late->x);
    free(late);
}

static void check_table(struct beside *b)
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
    struct part part = {.table = embd__table_id("t"),
                        .n_keys = 1000,
                        .n_rows = 1000,
                        .want_status = true,
                        .keys = keys,
                        .offsets = offsets};
    struct model_batch batch = {.n_keys = 1000, .n_rows = 1000, .keys = keys, .offsets = offsets};
    pull(&b->rig, &part, values, statuses);
    model_pull(b->model, &batch, false, false, expected, expected_statuses);
    assert_memory_equal(statuses, expected_statuses, sizeof statuses);
    assert_memory_equal(values, expected, sizeof values);
}

static void pushes_that_overlap_in_time_give_the_models_bits(void **state)
{
    (void)state;
    struct beside b;
    struct late_push *on_their_way[3] = {NULL};
    uint64_t random = 12345;
    beside_open(&b);
    for (uint32_t round = 0; round < 60; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct late_push **late = &on_their_way[(random >> 33) % 3];
        if (*late != NULL) {
            end(*late, &b);
            *late = NULL;
            check_table(&b);
        } else {
            uint32_t arrived = (uint32_t)(random >> 40) % GRADS_BYTES;
            *late = begin(&b, random, arrived, 1 + (uint32_t)(random >> 50));
        }
    }
    for (int i = 0; i < 3; i++)
        if (on_their_way[i] != NULL)
            end(on_their_way[i], &b);
    check_table(&b);
    beside_close(&b);
}

static void a_push_that_never_ends_leaves_nothing_behind(void **state)
{
    (void)state;
    struct beside b;
    beside_open(&b);
    for (uint64_t i = 1; i < 6; i++) {
        struct late_push *gone = begin(&b, i, 1000, 100);
        ask_free(gone->x);
        free(gone);
        check_table(&b);
        end(begin(&b, 70 + i, 50000, 4096), &b);
        check_table(&b);
    }
    beside_close(&b);
}

static void a_table_dropped_and_made_anew_meanwhile_takes_the_push(void **state)
{
    (void)state;
    struct beside b;
    beside_open(&b);
    struct late_push *late = begin(&b, 9, 50000, 5000);
    struct exchange *drop = ask(&b.rig, &b.rig.data, METHOD_TABLE_DROP);
    embd__msg_map(&drop->out, 1);
    embd__msg_field_str(&drop->out, "name", "t");
    ask_ok(drop);
    ask_free(drop);
    create_table(&b.rig, &b.schema);
    struct late_push *other = begin(&b, 10, 40000, 4000);
    end(late, &b);
    end(other, &b);
    check_table(&b);
    beside_close(&b);
}

/* A value that is no number is found wherever it stands, before, at and behind what was looked at.
 */
static void no_number_is_found_wherever_it_arrives(void **state)
{
    (void)state;
    struct beside b;
    beside_open(&b);
    for (uint32_t at = 0; at < GRADS_BYTES / 4; at += 1021) {
        struct batch *batch = calloc(1, sizeof *batch);
        batch->random = at + 1;
        batch_fill(batch, &b.schema);
        batch->grads[at] = NAN;
        struct part part = batch_part(batch, &b.schema, EMBD_DTYPE_F32, false);
        struct exchange *x = ask_parts(&b.rig, METHOD_PUSH, &part, 1);
        ask_arrive(x, 30001, 777);
        ask_arrive_all(x);
        char column[32];
        snprintf(column, sizeof column, "row %u", at / DIM);
        ask_error(x, EMBD_NOT_FINITE, column, NULL);
        check_table(&b);
        free(batch);
    }
    beside_close(&b);
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
