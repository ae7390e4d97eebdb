/* test_placed.c - a journal says which map of keys its shard has: the record's bytes, and a base, a
 * start and a journal that does not say it. */
#include <string.h>

#include "proto/placement_wire.h"
#include "server/journal/compaction.h"
#include "server/journal/operation.h"
#include "server/service/moving.h"
#include "server/service/state.h"
#include "tests/server/rig.h"
#include "tests/server/journaled.h"

#define DECISION UINT64_C(0x0123456789abcdef)

static void make_map(struct placement *out, uint64_t version)
{
    struct embd__error e = {.status = EMBD_OK};
    embd__placement_begin(out, version, 2, 2, &e);
    embd__placement_add(out, 0, 256, &e);
    embd__placement_add(out, 1, 768, &e);
    assert_int_equal(embd__placement_end(out, &e), EMBD_OK);
}

/* tests/unit/golden/table_replace_record.hex */
static const uint8_t golden[] =
    "\x93\x02\xad"
    "table_replace\xdc\x00\x01\x86\xa2id\x00\xa5phase\xa6placed\xa8"
    "decision\xcf\x01\x23\x45\x67\x89\xab\xcd\xef\xa6shards\x02\xa9placement\x83\xa7version\x02\xa4"
    "base\x02\xa4runs\x94\x00\xcd\x01\x00\x01\xcd\x03\x00\xa6moving\xc3";

static void the_record_has_these_bytes(void **state)
{
    struct msg m;
    struct placement map;
    struct frame_scanner frame;
    struct op op = {.engine = NULL};
    struct engine engine = {.n_recorded = 0};
    struct embd__error e = {.status = EMBD_OK};
    (void)state;
    make_map(&map, 2);
    embd__msg_init(&m);
    op_begin(&op, &engine, OP_PREPARE);
    op.as.replace = (struct op_replace){
        .decision = DECISION, .step = REPLACE_PLACED, .place = &map, .is_moving = true};
    assert_int_equal(operation_write(&m, &op, &frame, &e), EMBD_OK);
    assert_int_equal(frame.head_bytes, sizeof golden - 1);
    assert_memory_equal(frame.head, golden, sizeof golden - 1);
    assert_false(operation_shares(&frame));
    struct operation_map moved;
    assert_false(operation_moves(&frame, &moved));
    op.as.replace = (struct op_replace){.id = 7, .decision = DECISION, .place = &map};
    assert_int_equal(operation_write(&m, &op, &frame, &e), EMBD_OK);
    assert_true(operation_moves(&frame, &moved));
    assert_int_equal(moved.version, 2);
    assert_int_equal(moved.decision, DECISION);
    op_fini(&op);
    embd__msg_fini(&m);
}

/* Shard 1 of 2, with the even map where nothing says another one. */
static void start(struct rig *rig, const char *dir)
{
    rig_open(rig, &store_host, 1, 2, dir);
}

static void replace(struct rig *rig, enum replace_step step, const struct placement *map)
{
    struct shard *shard = rig->shard;
    struct op op = {.engine = NULL};
    struct embd__error e = {.status = EMBD_OK};
    op_begin(&op, &shard->engine, step == REPLACE_DONE ? OP_REPLACE : OP_PREPARE);
    op.as.replace = (struct op_replace){
        .id = step == REPLACE_DONE ? 7 : 0, .decision = DECISION, .step = step, .place = map};
    assert_int_equal(engine_admit(&op), EMBD_OK);
    assert_int_equal(commit_submit(&shard->commit, &op, NULL, &e), EMBD_OK);
    op_fini(&op);
}

static void compact(struct rig *rig)
{
    struct embd__error e = {.status = EMBD_OK};
    assert_int_equal(compaction_make_now(&rig->shard->commit, &e), EMBD_OK);
}

static void a_base_says_the_map_and_whether_rows_of_others_are_there(void **state)
{
    struct rig rig;
    struct placement map;
    char dir[64];
    (void)state;
    make_map(&map, 2);
    scratch_new(dir);
    start(&rig, dir);
    replace(&rig, REPLACE_DONE, &map);
    assert_true(rig.shard->engine.placed.is_foreign);
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            rig.shard->engine.placed.is_foreign = false;
        compact(&rig);
        rig_close(&rig);
        start(&rig, dir);
        const struct engine_placed *placed = &rig.shard->engine.placed;
        assert_true(placed->is_set && embd__placement_is_same(&placed->map, &map));
        assert_int_equal(placed->decision, DECISION);
        assert_int_equal(moving_version(rig.shard), 2);
        assert_int_equal(rig.shard->moving.has_foreign, i < 2);
    }
    rig_close(&rig);
    scratch_remove(dir);
}

static void a_base_of_a_shard_that_never_moved_keys_says_nothing(void **state)
{
    struct rig rig;
    struct placement even;
    char dir[64];
    (void)state;
    embd__placement_even(&even, 1, 2);
    scratch_new(dir);
    start(&rig, dir);
    replace(&rig, REPLACE_PLACED, &even);
    assert_true(rig.shard->engine.placed.is_set);
    compact(&rig);
    rig_close(&rig);
    start(&rig, dir);
    assert_false(rig.shard->engine.placed.is_set);
    rig_close(&rig);
    scratch_remove(dir);
}

static void a_start_says_what_no_record_does_once(void **state)
{
    struct rig rig;
    struct placement map;
    char dir[64];
    (void)state;
    make_map(&map, 3);
    scratch_new(dir);
    start(&rig, dir);
    rig.shard->config.placement = &map; /* of a directory of an earlier version */
    uint64_t before = journal_position(rig.shard->commit.journal);
    moving_record(rig.shard);
    moving_record(rig.shard);
    assert_int_equal(journal_position(rig.shard->commit.journal), before + 1);
    assert_int_equal(rig.shard->commit.ended.position, before + 1);
    rig_close(&rig);
    start(&rig, dir);
    assert_int_equal(moving_version(rig.shard), 3);
    assert_false(rig.shard->moving.has_foreign);
    rig_close(&rig);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_record_has_these_bytes),
        cmocka_unit_test(a_base_says_the_map_and_whether_rows_of_others_are_there),
        cmocka_unit_test(a_base_of_a_shard_that_never_moved_keys_says_nothing),
        cmocka_unit_test(a_start_says_what_no_record_does_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
