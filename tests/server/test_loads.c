/* test_loads.c - loads of one connection that come one behind the other, as a restore sends them:
 * the record of one is written while the one before it is applied. All others that change tables
 * wait, and those that wait stop the loads behind them. */
#include "tests/server/journaled.h"

#include <string.h>

#include "server/engine/row_memory.h"
#include "server/service/state.h"

enum { LOADS = 3, ROWS = 2 };

static const uint64_t keys[LOADS][ROWS] = {{1, 2}, {2, 3}, {4, 5}};

static embd_schema schema_of(void)
{
    return kept_schema("a", EMBD_DURABILITY_BUFFERED);
}

/* Two rows of 4 columns, each of `value`. */
static struct exchange *ask_load(struct rig *rig, struct shard_session *session, int number,
                                 const char *table)
{
    const embd_schema schema = schema_of();
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = (float)(number + 1);
    const struct row_block block = {
        .n_rows = ROWS, .keys = keys[number], .rows = values, .states = values};
    struct exchange *x = ask(rig, session, METHOD_LOAD);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", table);
    embd__msg_field_uint(&x->out, "rows", ROWS);
    embd__msg_field_uint(&x->out, "candidates", 0);
    embd__row_block_write(&x->out, &schema, &block);
    ask_send(x);
    return x;
}

static void begin(struct journaled *j)
{
    const embd_schema schema = schema_of();
    journaled_new(j);
    rig_wake(&j->rig);
    create_table(&j->rig, &schema);
}

static void end_ok(struct exchange *x)
{
    ask_wait(x);
    ask_ok(x);
    ask_free(x);
}

/* The later of two loads counts, also behind a start. */
static void check_rows(struct journaled *j)
{
    static const float expected[] = {1, 2, 2, 3, 3};
    struct image image;
    float rows[4 * 5];
    uint64_t all[] = {1, 2, 3, 4, 5};
    const struct part part = {.table = embd__table_id("a"), .n_keys = 5, .n_rows = 5, .keys = all};
    pull(&j->rig, &part, rows, NULL);
    for (int i = 0; i < 5; i++)
        assert_true(rows[4 * i] == expected[i]);
    assert_int_equal(figure(&j->rig, "a", "rows"), 5);
    image_take(&j->rig, "a", &image);
    journaled_stop(j);
    journaled_start(j);
    image_check(&j->rig, "a", &image);
    image_fini(&image);
}

static void loads_of_a_connection_are_under_way_together(void **state)
{
    (void)state;
    struct journaled j;
    struct exchange *x[LOADS];
    begin(&j);
    for (int i = 0; i < LOADS; i++)
        x[i] = ask_load(&j.rig, &j.rig.admin, i, "a");
    assert_int_equal(j.rig.shard->engine.n_recorded, LOADS);
    for (int i = 0; i < LOADS; i++)
        end_ok(x[i]);
    assert_int_equal(j.rig.shard->engine.n_recorded, 0);
    check_rows(&j);
    journaled_end(&j);
}

static void a_push_waits_for_loads_and_a_load_for_the_push(void **state)
{
    static const float grads[4] = {1, 2, 3, 4};
    (void)state;
    struct journaled j;
    struct exchange *x[LOADS];
    begin(&j);
    const struct part part = part_of("a", keys[0], 1, grads);
    for (int i = 0; i < LOADS - 1; i++)
        x[i] = ask_load(&j.rig, &j.rig.admin, i, "a");
    struct exchange *pushed = ask(&j.rig, &j.rig.data, METHOD_PUSH);
    embd__push_write(&pushed->out, &part, 1, NULL);
    ask_send(pushed);
    assert_int_equal(j.rig.shard->engine.n_recorded, LOADS - 1);
    x[LOADS - 1] = ask_load(&j.rig, &j.rig.admin, LOADS - 1, "a");
    assert_int_equal(j.rig.shard->engine.n_recorded, LOADS - 1);
    while (!x[LOADS - 1]->is_answered) {
        shard_collect(j.rig.shard);
        assert_true(pushed->is_answered || !x[LOADS - 1]->is_answered);
    }
    for (int i = 0; i < LOADS; i++)
        end_ok(x[i]);
    end_ok(pushed);
    journaled_end(&j);
}

static void others_and_wrong_loads_wait_their_turn(void **state)
{
    (void)state;
    struct journaled j;
    struct shard_session other;
    begin(&j);
    other = j.rig.admin;
    struct exchange *first = ask_load(&j.rig, &j.rig.admin, 0, "a");
    struct exchange *wrong = ask_load(&j.rig, &j.rig.admin, 1, "none");
    struct exchange *theirs = ask_load(&j.rig, &other, 2, "a");
    assert_int_equal(j.rig.shard->engine.n_recorded, 1);
    assert_true(wrong->is_answered && !theirs->is_answered);
    ask_error(wrong, EMBD_UNKNOWN_TABLE, "none", NULL);
    end_ok(first);
    end_ok(theirs);
    assert_int_equal(figure(&j.rig, "a", "rows"), 4);
    journaled_end(&j);
}

/* The limit is exact: a load is not admitted before the rows of the one before it are counted. */
static void where_row_memory_may_not_do_for_all_each_is_alone(void **state)
{
    static struct row_memory memory[STORE_PLACES];
    (void)state;
    struct journaled j;
    struct exchange *x[LOADS];
    begin(&j);
    memory[0].limit = 1 << 20;
    j.rig.shard->engine.tables.memory = memory;
    for (int i = 0; i < LOADS; i++)
        x[i] = ask_load(&j.rig, &j.rig.admin, i, "a");
    assert_int_equal(j.rig.shard->engine.n_recorded, 1);
    for (int i = 0; i < LOADS; i++)
        end_ok(x[i]);
    j.rig.shard->engine.tables.memory = NULL;
    journaled_end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_of_a_connection_are_under_way_together),
        cmocka_unit_test(a_push_waits_for_loads_and_a_load_for_the_push),
        cmocka_unit_test(others_and_wrong_loads_wait_their_turn),
        cmocka_unit_test(where_row_memory_may_not_do_for_all_each_is_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
