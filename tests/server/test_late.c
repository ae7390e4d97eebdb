/* test_late.c - a push of very many keys is applied in slices: here of 16 keys, and the test makes
 * each. Other tables are served between them; who reads or changes its table waits, and finds what
 * a push that is not divided leaves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/journaled.h"

#include "proto/route.h"
#include "server/engine/row_memory.h"
#include "server/service/state.h"
#include "server/store/slice.h"

enum { KEYS = 600, DIM = 4 };

static struct journaled late_open(embd_durability durability, uint64_t slice)
{
    struct journaled j = {.dir = ""};
    embd_schema a = kept_schema("a", durability), b = kept_schema("b", durability);
    store_slice = slice;
    journaled_new(&j);
    create_table(&j.rig, &a);
    create_table(&j.rig, &b);
    push_two(&j.rig, "a", 0.5f);
    push_two(&j.rig, "b", 0.5f);
    return j;
}

static void late_close(struct journaled *j)
{
    journaled_end(j);
    store_slice = 256u << 10;
}

/* Keys that have rows, new ones, and some several times. */
static struct exchange *send_many(struct journaled *j)
{
    static uint64_t keys[KEYS];
    static float grads[DIM * KEYS];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i * 7 % 500;
    for (uint32_t i = 0; i < DIM * KEYS; i++)
        grads[i] = (float)(i % 11) - 5;
    const struct part part = part_of("a", keys, KEYS, grads);
    struct exchange *x = ask(&j->rig, &j->rig.data, METHOD_PUSH);
    embd__parts_write(&x->out, &part, 1, PARTS_PUSH);
    ask_send(x);
    return x;
}

static struct exchange *send_one(struct journaled *j, struct shard_session *session,
                                 enum method method, const char *name)
{
    static const uint64_t key = 2;
    static const float grads[DIM] = {1, 2, 3, 4};
    const struct part part = part_of(name, &key, 1, method == METHOD_PUSH ? grads : NULL);
    struct exchange *x = ask(&j->rig, session, method);
    embd__parts_write(&x->out, &part, 1, method == METHOD_PUSH ? PARTS_PUSH : PARTS_PULL);
    ask_send(x);
    return x;
}

static void end_ok(struct exchange *x)
{
    ask_wait(x);
    ask_ok(x);
    ask_free(x);
}

static struct image image_at_once(embd_durability durability)
{
    struct image image;
    struct journaled j = late_open(durability, UINT64_MAX);
    struct exchange *x = send_many(&j);
    end_ok(x);
    image_take(&j.rig, "a", &image);
    late_close(&j);
    return image;
}

/* Sends it, and has its record written: it is begun. */
static struct exchange *begin_many(struct journaled *j)
{
    struct exchange *x = send_many(j);
    while (j->rig.shard->engine.tables.n_late == 0)
        shard_collect(j->rig.shard);
    assert_false(x->is_answered);
    return x;
}

static void others_are_served_between_slices(void **state)
{
    (void)state;
    struct image whole = image_at_once(EMBD_DURABILITY_SNAPSHOT);
    struct journaled j = late_open(EMBD_DURABILITY_SNAPSHOT, 16);
    struct shard_session second = j.rig.data, third = second, fourth = second;
    struct exchange *x = begin_many(&j);
    struct exchange *pull = send_one(&j, &second, METHOD_PULL, "a"),
                    *push = send_one(&j, &third, METHOD_PUSH, "a");
    uint32_t n = 0;
    for (; !x->is_answered; n++) {
        assert_false(pull->is_answered || push->is_answered);
        struct exchange *y = send_one(&j, &fourth, METHOD_PULL, "b"),
                        *z = send_one(&j, &fourth, METHOD_PUSH, "b");
        assert_true(y->is_answered && z->is_answered);
        end_ok(y);
        end_ok(z);
        shard_collect(j.rig.shard);
    }
    assert_true(n > KEYS / 16);
    end_ok(x);
    ask_wait(pull);
    assert_true(push->is_answered); /* at once behind it */
    end_ok(pull);
    end_ok(push);
    assert_int_equal(figure(&j.rig, "a", "rows"), whole.rows);
    image_fini(&whole);
    late_close(&j);
}

/* The push that was begun is made whole. */
static void a_pusher_may_leave(void **state)
{
    (void)state;
    struct image whole = image_at_once(EMBD_DURABILITY_SNAPSHOT);
    for (uint32_t n_before = 0; n_before < 60; n_before += 7) {
        struct journaled j = late_open(EMBD_DURABILITY_SNAPSHOT, 16);
        struct exchange *x = begin_many(&j);
        for (uint32_t n = 0; n < n_before && !x->is_answered; n++)
            shard_collect(j.rig.shard);
        ask_free(x);
        assert_int_equal(j.rig.shard->engine.tables.n_late, 0);
        image_check(&j.rig, "a", &whole);
        while (shard_collect(j.rig.shard))
            ;
        end_ok(send_one(&j, &j.rig.data, METHOD_PUSH, "a"));
        late_close(&j);
    }
    image_fini(&whole);
}

/* A numbered push of more keys than the table has room for. */
static struct exchange *send_too_many(struct journaled *j, struct shard_session *session)
{
    static uint64_t keys[KEYS];
    static float grads[DIM * KEYS];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    const struct part part = part_of("small", keys, KEYS, grads);
    const struct push_extra extra = {.number = {7, 9, 1, 3}};
    struct exchange *x = ask(&j->rig, session, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_send(x);
    return x;
}

static struct journaled small_open(embd_durability durability, uint64_t slice)
{
    struct journaled j = late_open(durability, slice);
    embd_schema small = kept_schema("small", durability);
    small.capacity = 100;
    small.on_full = EMBD_ON_FULL_ERROR;
    create_table(&j.rig, &small);
    open_stream(&j.rig, &(struct push_number){.high = 7, .low = 9, .stream = 3},
                durability != EMBD_DURABILITY_SNAPSHOT);
    return j;
}

/* It is not said to be applied when it is sent again. */
static void a_push_that_is_refused_after_its_pusher_left_keeps_no_number(void **state)
{
    (void)state;
    for (int journaled = 0; journaled < 2; journaled++) {
        struct journaled j =
            small_open(journaled ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT, 16);
        struct shard_session first = j.rig.data;
        struct exchange *x = send_too_many(&j, &first);
        while (j.rig.shard->engine.tables.n_late == 0)
            shard_collect(j.rig.shard);
        ask_free(x);
        x = send_too_many(&j, &j.rig.data);
        ask_wait(x);
        ask_error(x, EMBD_FULL, "small", NULL);
        assert_int_equal(figure(&j.rig, "small", "rows"), 0);
        late_close(&j);
    }
}

static struct exchange *send_numbered(struct journaled *j, struct shard_session *session,
                                      const char *name, uint64_t sequence)
{
    static const uint64_t key = 2;
    static const float grads[DIM] = {1, 2, 3, 4};
    const struct part part = part_of(name, &key, 1, grads);
    const struct push_extra extra = {.number = {7, 9, sequence, 3}};
    struct exchange *x = ask(&j->rig, session, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_send(x);
    return x;
}

/* Also to another table, and where it stands in the journal already: a replay, which divides
 * nothing, finds a gap. */
static void the_next_number_waits_for_a_push_that_may_be_refused(void **state)
{
    (void)state;
    for (int journaled = 0; journaled < 2; journaled++) {
        struct journaled j =
            small_open(journaled ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT, 16);
        struct shard_session other = j.rig.data;
        j.rig.config.data_dir = j.dir; /* j has moved */
        if (journaled)
            rig_wake(&j.rig);
        struct exchange *x = send_too_many(&j, &j.rig.data);
        assert_int_equal(j.rig.shard->engine.tables.n_late, !journaled);
        struct exchange *y = send_numbered(&j, &other, "b", 2);
        ask_wait(x);
        ask_wait(y);
        ask_error(x, EMBD_FULL, "small", NULL);
        ask_error(y, EMBD_GAP, NULL);
        end_ok(send_numbered(&j, &j.rig.data, "small", 1));
        assert_int_equal(figure(&j.rig, "small", "rows"), 1);
        late_close(&j);
    }
}

/* Who opens the stream again is not told of a push that is refused then. */
static void an_opening_waits_for_it_too(void **state)
{
    (void)state;
    struct journaled j = small_open(EMBD_DURABILITY_SNAPSHOT, 16);
    struct shard_session other = j.rig.data;
    struct exchange *x = send_too_many(&j, &j.rig.data),
                    *y = ask(&j.rig, &other, METHOD_STREAM_OPEN);
    const struct stream_opening opening = {.stream = {.high = 7, .low = 9, .stream = 3}};
    uint64_t last;
    bool opened;
    embd__opening_write(&y->out, &opening, false);
    ask_send(y);
    ask_wait(x);
    ask_error(x, EMBD_FULL, "small", NULL);
    ask_ok(y);
    assert_int_equal(embd__opened_read(&y->reader, &last, &opened), EMBD_OK);
    assert_int_equal(last, 0);
    ask_free(y);
    late_close(&j);
}

static uint64_t bytes_after_refusal(uint64_t slice)
{
    struct journaled j = small_open(EMBD_DURABILITY_SNAPSHOT, slice);
    struct exchange *x = send_too_many(&j, &j.rig.data);
    ask_wait(x);
    ask_error(x, EMBD_FULL, "small", NULL);
    uint64_t bytes = figure(&j.rig, "small", "index_bytes");
    late_close(&j);
    return bytes;
}

/* In slices as at once: the index does not grow for keys that get no row. */
static void a_refused_push_takes_no_memory(void **state)
{
    (void)state;
    assert_int_equal(bytes_after_refusal(16), bytes_after_refusal(UINT64_MAX));
}

/* ---- row_memory ---- */

enum { WIDE = 256, WIDE_KEYS = 32, WIDE_ROW = WIDE * 3 * 4 };

static struct row_memory memories[STORE_PLACES];

/* Adam: a row takes WIDE_ROW bytes and a few more. */
static struct journaled wide_open(embd_durability durability)
{
    struct journaled j = {.dir = ""};
    memset(memories, 0, sizeof memories);
    atomic_init(&memories[0].limit, (uint64_t)1 << 40);
    store_slice = 16;
    journaled_new(&j);
    j.rig.config.row_memory = memories;
    rig_wake(&j.rig);
    for (int i = 0; i < 2; i++) {
        embd_schema wide = kept_schema(i == 0 ? "wide" : "other", durability);
        wide.dim = WIDE;
        create_table(&j.rig, &wide);
    }
    open_stream(&j.rig, &(struct push_number){.high = 7, .low = 9, .stream = 3},
                durability != EMBD_DURABILITY_SNAPSHOT);
    return j;
}

static struct exchange *send_wide(struct journaled *j, struct shard_session *session,
                                  const char *name, uint32_t n_keys, uint64_t sequence)
{
    static uint64_t keys[WIDE_KEYS];
    static float grads[WIDE * WIDE_KEYS];
    for (uint32_t i = 0; i < WIDE_KEYS; i++)
        keys[i] = i;
    struct part part = part_of(name, keys, n_keys, grads);
    part.grads_bytes = n_keys * WIDE * sizeof *grads;
    const struct push_extra extra = {.number = {7, 9, sequence, 3}};
    struct exchange *x = ask(&j->rig, session, METHOD_PUSH);
    if (sequence > 0)
        embd__push_write(&x->out, &part, 1, &extra);
    else
        embd__parts_write(&x->out, &part, 1, PARTS_PUSH);
    ask_send(x);
    while (j->rig.shard->engine.n_recorded > 0)
        shard_collect(j->rig.shard);
    return x;
}

static void leave_rows(uint64_t n)
{
    atomic_store(&memories[0].limit, atomic_load(&memories[0].used) + n * (WIDE_ROW + 256));
}

/* Before its first row is made: what others bring meanwhile has to fit beside it. */
static void row_memory_counts_a_push_as_a_whole(void **state)
{
    (void)state;
    for (int journaled = 0; journaled < 2; journaled++) {
        struct journaled j =
            wide_open(journaled ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT);
        struct shard_session second = j.rig.data;
        uint64_t before = atomic_load(&memories[0].used);
        struct exchange *x = send_wide(&j, &j.rig.data, "wide", WIDE_KEYS, 0);
        while (!x->is_answered &&
               atomic_load(&memories[0].used) < before + WIDE_KEYS * (uint64_t)WIDE_ROW)
            shard_collect(j.rig.shard);
        assert_false(x->is_answered);
        assert_int_equal(figure(&j.rig, "wide", "rows"), 0);
        tables_count_all(&j.rig.shard->engine.tables); /* as now and then */
        assert_true(atomic_load(&memories[0].used) >= before + WIDE_KEYS * (uint64_t)WIDE_ROW);
        leave_rows(8);
        struct exchange *y = send_wide(&j, &second, "other", WIDE_KEYS / 2, 0);
        assert_true(y->is_answered);
        ask_error(y, EMBD_FULL, "row_memory", NULL);
        end_ok(x);
        assert_int_equal(figure(&j.rig, "wide", "rows"), WIDE_KEYS);
        end_ok(send_wide(&j, &second, "other", 4, 0));
        assert_true(atomic_load(&memories[0].used) <= atomic_load(&memories[0].limit));
        late_close(&j);
    }
}

/* Where others have taken the room before its keys are counted, it is refused, whole. What is in a
 * journal was accepted. */
static void a_push_is_refused_whose_memory_others_took(void **state)
{
    (void)state;
    for (int journaled = 0; journaled < 2; journaled++) {
        struct journaled j =
            wide_open(journaled ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT);
        struct exchange *x = send_wide(&j, &j.rig.data, "wide", WIDE_KEYS, 1);
        assert_false(x->is_answered);
        leave_rows(8);
        ask_wait(x);
        if (journaled) {
            ask_ok(x);
            ask_free(x);
        } else {
            ask_error(x, EMBD_FULL, "wide", "row_memory", NULL);
        }
        assert_int_equal(figure(&j.rig, "wide", "rows"), journaled ? WIDE_KEYS : 0);
        leave_rows(2 * WIDE_KEYS);
        end_ok(send_wide(&j, &j.rig.data, "wide", WIDE_KEYS, journaled ? 2 : 1));
        late_close(&j);
    }
}

/* A directory as a kill leaves it at any slice has the push, which is in the journal. */
static void a_kill_between_slices_loses_nothing(void **state)
{
    (void)state;
    struct image whole = image_at_once(EMBD_DURABILITY_DURABLE);
    for (uint32_t n_before = 0; n_before < 60; n_before += 20) {
        struct journaled killed = {.dir = ""}, j = late_open(EMBD_DURABILITY_DURABLE, 16);
        char command[160];
        rig_wake(&j.rig);
        struct exchange *x = begin_many(&j);
        for (uint32_t n = 0; n < n_before; n++)
            shard_collect(j.rig.shard);
        scratch_new(killed.dir);
        snprintf(command, sizeof command, "cp -r %s/. %s", j.dir, killed.dir);
        assert_int_equal(system(command), 0);
        end_ok(x);
        image_check(&j.rig, "a", &whole);
        late_close(&j);
        store_slice = 16;
        journaled_start(&killed);
        image_check(&killed.rig, "a", &whole);
        late_close(&killed);
    }
    image_fini(&whole);
}

/* A hold, as for a cut, and a drop begin behind the last slice. */
static void cuts_and_drops_wait(void **state)
{
    (void)state;
    struct journaled j = late_open(EMBD_DURABILITY_SNAPSHOT, 16);
    struct shard_session admin = j.rig.admin;
    struct exchange *x = begin_many(&j), *hold = ask(&j.rig, &j.rig.admin, METHOD_HOLD),
                    *drop = ask(&j.rig, &admin, METHOD_TABLE_DROP);
    embd__msg_map(&hold->out, 0);
    ask_send(hold);
    embd__msg_map(&drop->out, 1);
    embd__msg_field_str(&drop->out, "name", "b");
    ask_send(drop);
    while (!x->is_answered) {
        assert_false(hold->is_answered || drop->is_answered);
        shard_collect(j.rig.shard);
    }
    end_ok(x);
    ask_wait(hold);
    assert_false(drop->is_answered);
    ask_free(hold);
    ask_free(drop);
    late_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_served_between_slices),
        cmocka_unit_test(a_pusher_may_leave),
        cmocka_unit_test(a_push_that_is_refused_after_its_pusher_left_keeps_no_number),
        cmocka_unit_test(the_next_number_waits_for_a_push_that_may_be_refused),
        cmocka_unit_test(an_opening_waits_for_it_too),
        cmocka_unit_test(a_refused_push_takes_no_memory),
        cmocka_unit_test(row_memory_counts_a_push_as_a_whole),
        cmocka_unit_test(a_push_is_refused_whose_memory_others_took),
        cmocka_unit_test(a_kill_between_slices_loses_nothing),
        cmocka_unit_test(cuts_and_drops_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
