/* test_sweeps.c - a push of no keys steps all rows of a table with update = global. Here a slice
 * steps four rows, and the test makes each slice: what comes between is served, in the order it
 * comes, and every table is what it is where pushes are not divided. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/journaled.h"

#include "proto/route.h"
#include "server/store/slice.h"

#define DIM  4u
#define ROWS 300u
#define FEW  32u /* columns of a slice: four rows, as the least that a row counts as is 8 */

struct sweeps {
    struct journaled j;
    struct shard_session other, third, fourth;
};

static embd_schema global_schema(const char *name, embd_durability durability)
{
    embd_schema schema = kept_schema(name, durability);
    schema.optimizer.update = EMBD_UPDATE_GLOBAL;
    return schema;
}

static void fill(struct rig *rig, const char *name)
{
    static uint64_t keys[ROWS];
    static float grads[DIM * ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < DIM * ROWS; i++)
        grads[i] = (float)(i % 7) - 3;
    const struct part part = part_of(name, keys, ROWS, grads);
    const uint64_t slice = store_slice;
    if (strcmp(name, "plain") == 0) /* such a push would be divided too */
        store_slice = UINT64_MAX;
    push(rig, &part, NULL);
    store_slice = slice;
    while (shard_collect(rig->shard))
        ;
}

static void create(struct rig *rig, const char *name, embd_durability durability, bool is_global)
{
    embd_schema schema =
        is_global ? global_schema(name, durability) : kept_schema(name, durability);
    create_table(rig, &schema);
    fill(rig, name);
}

static void sweeps_open(struct sweeps *s, uint64_t slice, embd_durability durability)
{
    *s = (struct sweeps){.j = {.dir = ""}};
    store_slice = slice;
    journaled_new(&s->j);
    s->other = s->third = s->fourth = s->j.rig.data;
    create(&s->j.rig, "big", durability, true);
    create(&s->j.rig, "more", durability, true);
    create(&s->j.rig, "plain", durability, false);
    s->j.rig.data.spent_ns = 0;
}

static void sweeps_close(struct sweeps *s)
{
    journaled_end(&s->j);
    store_slice = UINT64_MAX;
}

static struct exchange *send_part(struct sweeps *s, struct shard_session *session,
                                  enum method method, const struct part *part)
{
    struct exchange *x = ask(&s->j.rig, session, method);
    embd__parts_write(&x->out, part, 1,
                      method == METHOD_PUSH   ? PARTS_PUSH
                      : method == METHOD_PULL ? PARTS_PULL
                                              : PARTS_ERASE);
    ask_send(x);
    return x;
}

/* Steps all rows. */
static struct exchange *send_empty(struct sweeps *s, struct shard_session *session,
                                   const char *name)
{
    const struct part part = part_of(name, NULL, 0, NULL);
    return send_part(s, session, METHOD_PUSH, &part);
}

static struct exchange *send_one(struct sweeps *s, struct shard_session *session,
                                 enum method method, const char *name)
{
    static const uint64_t key = 200;
    static const float grads[DIM] = {1, 2, 3, 4};
    struct part part = part_of(name, &key, 1, grads);
    if (method != METHOD_PUSH) {
        part.grads = NULL;
        part.grads_bytes = 0;
    }
    return send_part(s, session, method, &part);
}

static void end_ok(struct exchange *x)
{
    ask_wait(x);
    ask_ok(x);
    ask_free(x);
}

static uint64_t step_of(struct exchange *x)
{
    struct push_answer answer;
    bool again;
    ask_wait(x);
    ask_ok(x);
    assert_int_equal(embd__push_answer_read(&x->reader, &answer, 1, &again), 1);
    ask_free(x);
    return answer.step;
}

static uint32_t slices_left(struct sweeps *s)
{
    uint32_t n = 1;
    while (shard_collect(s->j.rig.shard))
        n++;
    return n;
}

/* ---- who is served ---- */

static void others_are_served_between_slices(void **state)
{
    (void)state;
    struct sweeps s;
    sweeps_open(&s, FEW, EMBD_DURABILITY_SNAPSHOT);
    struct exchange *x = send_empty(&s, &s.j.rig.data, "big");
    assert_true(x->is_answered);
    const uint64_t spent_ns = s.j.rig.data.spent_ns;
    assert_true(shard_collect(s.j.rig.shard));
    static const struct {
        enum method method;
        const char *table;
    } served[] = {{METHOD_PULL, "plain"},
                  {METHOD_PUSH, "plain"},
                  {METHOD_PULL, "big"},
                  {METHOD_PUSH, "more"},
                  {METHOD_PULL, "more"}};
    for (uint32_t i = 0; i < sizeof served / sizeof served[0]; i++) {
        struct exchange *y = send_one(&s, &s.other, served[i].method, served[i].table);
        assert_true(y->is_answered);
        end_ok(y);
        assert_true(shard_collect(s.j.rig.shard));
    }
    end_ok(x);
    uint32_t n = slices_left(&s);
    assert_in_range(n, 2 * ROWS / 4 - 10, 2 * ROWS / 4); /* the two tables took turns */
    assert_in_range(spent_ns, (ROWS / 4 - 1) * 1000000, (ROWS / 4 + 1) * 1000000);
    assert_false(shard_collect(s.j.rig.shard));
    sweeps_close(&s);
}

/* The second push of the table, and what changes which tables there are, wait for the end of the
 * first; what waits is served in the order it came, though more pushes come. */
static void what_changes_the_table_waits_in_its_order(void **state)
{
    (void)state;
    struct sweeps s;
    sweeps_open(&s, FEW, EMBD_DURABILITY_SNAPSHOT);
    uint64_t step = step_of(send_empty(&s, &s.j.rig.data, "big"));
    struct exchange *second = send_empty(&s, &s.other, "big"),
                    *erase = send_one(&s, &s.third, METHOD_ERASE, "plain"),
                    *third = send_one(&s, &s.j.rig.data, METHOD_PUSH, "big"),
                    *more = send_empty(&s, &s.fourth, "more");
    uint32_t n = 0;
    assert_false(second->is_answered || erase->is_answered || third->is_answered);
    while (!second->is_answered) {
        assert_true(shard_collect(s.j.rig.shard));
        n++;
    }
    assert_in_range(n, ROWS / 4 - 3, ROWS / 4);
    assert_false(erase->is_answered || third->is_answered || more->is_answered);
    while (!erase->is_answered)
        assert_true(shard_collect(s.j.rig.shard));
    assert_true(third->is_answered && more->is_answered);
    assert_int_equal(step_of(second), step + 1);
    assert_int_equal(step_of(third), step + 2);
    end_ok(erase);
    end_ok(more);
    sweeps_close(&s);
}

/* Reading 4 Mi keys takes milliseconds, and other requests would each wait for it: the parts are
 * not looked at where nothing that the push may wait for has ended. */
static void what_waits_is_not_read_again_for_each_request(void **state)
{
    (void)state;
    struct sweeps s;
    static const uint64_t key = 5;
    static const float grads[DIM] = {1, 2, 3, 4};
    static const uint32_t offsets[2] = {0, 1};
    embd_schema schema = global_schema("sums", EMBD_DURABILITY_SNAPSHOT);
    schema.combiner = EMBD_COMBINER_SUM;
    sweeps_open(&s, FEW, EMBD_DURABILITY_SNAPSHOT);
    create_table(&s.j.rig, &schema);
    fill(&s.j.rig, "sums");
    uint64_t step = step_of(send_empty(&s, &s.j.rig.data, "sums"));
    struct part part = part_of("sums", &key, 1, grads);
    part.offsets = offsets;
    struct exchange *x = send_part(&s, &s.other, METHOD_PUSH, &part);
    uint32_t *received = (void *)x->frame.bins[1].data;
    received[0] = 1; /* who looks now finds an error */
    for (int i = 0; i < 3; i++) {
        end_ok(send_one(&s, &s.third, METHOD_PULL, "plain"));
        assert_true(shard_collect(s.j.rig.shard));
        assert_false(x->is_answered);
    }
    received[0] = 0;
    slices_left(&s);
    assert_int_equal(step_of(x), step + 1);
    sweeps_close(&s);
}

static void a_table_goes_behind_its_last_slice(void **state)
{
    (void)state;
    struct sweeps s;
    sweeps_open(&s, FEW, EMBD_DURABILITY_SNAPSHOT);
    end_ok(send_empty(&s, &s.j.rig.data, "big"));
    struct exchange *drop = ask(&s.j.rig, &s.j.rig.admin, METHOD_TABLE_DROP);
    embd__msg_map(&drop->out, 1);
    embd__msg_field_str(&drop->out, "name", "big");
    ask_send(drop);
    assert_false(drop->is_answered);
    struct exchange *pull = send_one(&s, &s.other, METHOD_PULL, "big");
    assert_true(pull->is_answered);
    end_ok(pull);
    slices_left(&s);
    assert_true(drop->is_answered);
    end_ok(drop);
    end_ok(send_empty(&s, &s.j.rig.data, "more"));
    sweeps_close(&s); /* in the midst of it */
}

/* A connection that leaves stops nothing. */
static void a_pusher_may_leave(void **state)
{
    (void)state;
    struct sweeps s;
    struct image whole;
    sweeps_open(&s, UINT64_MAX, EMBD_DURABILITY_BUFFERED);
    for (int i = 0; i < 2; i++)
        end_ok(send_empty(&s, &s.j.rig.data, "big"));
    image_take(&s.j.rig, "big", &whole);
    sweeps_close(&s);
    sweeps_open(&s, FEW, EMBD_DURABILITY_BUFFERED);
    rig_wake(&s.j.rig);
    struct exchange *x = send_empty(&s, &s.j.rig.data, "big");
    ask_wait(x);
    ask_free(x);
    ask_free(send_empty(&s, &s.other, "big")); /* had not begun, and does not */
    x = send_empty(&s, &s.third, "big");
    end_ok(x);
    image_check(&s.j.rig, "big", &whole);
    image_fini(&whole);
    sweeps_close(&s);
}

/* ---- a journal ---- */

/* A directory as a kill leaves it. */
static void copy_dir(const char *from, char to[64])
{
    char command[160];
    scratch_new(to);
    snprintf(command, sizeof command, "cp -r %s/. %s", from, to);
    assert_int_equal(system(command), 0);
}

/* One push of the table is in the journal at a time, so that those of others are not behind it; a
 * kill at any slice loses nothing of what was acknowledged. */
static void records_of_other_tables_are_applied_between_slices(void **state)
{
    (void)state;
    struct sweeps s;
    struct image whole;
    struct journaled killed = {.dir = ""};
    sweeps_open(&s, UINT64_MAX, EMBD_DURABILITY_DURABLE);
    for (int i = 0; i < 2; i++)
        end_ok(send_empty(&s, &s.j.rig.data, "big"));
    image_take(&s.j.rig, "big", &whole);
    sweeps_close(&s);
    sweeps_open(&s, FEW, EMBD_DURABILITY_DURABLE);
    rig_wake(&s.j.rig);
    slices_left(&s); /* of the records that were replayed */
    end_ok(send_empty(&s, &s.j.rig.data, "big"));
    assert_true(shard_collect(s.j.rig.shard));
    struct exchange *again = send_empty(&s, &s.other, "big"),
                    *third = send_one(&s, &s.j.rig.data, METHOD_PUSH, "big"),
                    *plain = send_one(&s, &s.third, METHOD_PUSH, "plain");
    ask_wait(plain);
    assert_false(again->is_answered || third->is_answered);
    end_ok(plain);
    ask_wait(again);
    assert_false(third->is_answered);
    end_ok(again);
    copy_dir(s.j.dir, killed.dir);
    end_ok(third);
    sweeps_close(&s);
    store_slice = FEW;
    journaled_start(&killed);
    image_check(&killed.rig, "big", &whole);
    journaled_end(&killed);
    image_fini(&whole);
}

/* Nobody knew yet that the table takes long. */
static void pushes_written_together_are_applied_in_turn(void **state)
{
    (void)state;
    struct sweeps s;
    uint32_t n = 0;
    sweeps_open(&s, UINT64_MAX, EMBD_DURABILITY_BUFFERED);
    rig_wake(&s.j.rig);
    store_slice = FEW;
    struct exchange *x = send_empty(&s, &s.j.rig.data, "big"), *y = send_empty(&s, &s.other, "big");
    ask_wait(x);
    for (; !y->is_answered; n++)
        assert_true(shard_collect(s.j.rig.shard));
    assert_true(n > ROWS / 4 - 5);
    end_ok(x);
    end_ok(y);
    sweeps_close(&s);
}

/* Its base is frozen in the midst of a sweep, and while it is written pushes step all rows. */
static void a_base_is_made_between_slices(void **state)
{
    (void)state;
    struct sweeps s;
    struct image before;
    sweeps_open(&s, FEW, EMBD_DURABILITY_BUFFERED);
    s.j.rig.config.journal_limit = 1024;
    rig_wake(&s.j.rig);
    for (int i = 0; i < 100000 && figure(&s.j.rig, NULL, "journal_bases") < 3; i++) {
        struct exchange *x = send_one(&s, &s.j.rig.data, METHOD_PUSH, i % 2 ? "big" : "more");
        end_ok(x);
    }
    assert_true(figure(&s.j.rig, NULL, "journal_bases") >= 3);
    image_take(&s.j.rig, "big", &before);
    journaled_stop(&s.j);
    journaled_start(&s.j);
    image_check(&s.j.rig, "big", &before);
    image_fini(&before);
    sweeps_close(&s);
}

/* ---- rounds, and rows that pulls make ---- */

static struct exchange *send_round(struct sweeps *s, struct shard_session *session, uint32_t worker)
{
    static const uint64_t key = 5;
    static const float grads[DIM] = {1, 2, 3, 4};
    const struct part part = part_of("big", &key, 1, grads);
    struct push_extra extra = {.round = {"job", worker, 2, 0, 1000, 0, 0}};
    struct exchange *x = ask(&s->j.rig, session, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_send(x);
    return x;
}

static void leave(struct sweeps *s, uint32_t worker)
{
    struct exchange *x = ask(&s->j.rig, &s->fourth, METHOD_TICK);
    embd__msg_map(&x->out, 6);
    embd__msg_field_str(&x->out, "job", "job");
    embd__msg_field_uint(&x->out, "worker", worker);
    embd__msg_field_uint(&x->out, "workers", 2);
    embd__msg_field_uint(&x->out, "clock", 0);
    embd__msg_field_uint(&x->out, "lease_ms", 1000);
    embd__msg_field_bool(&x->out, "leave", true);
    ask_send(x);
    end_ok(x);
}

/* It was complete when the other worker left. */
static void a_round_of_one_waits_for_the_last_slice(void **state)
{
    (void)state;
    struct sweeps s;
    sweeps_open(&s, FEW, EMBD_DURABILITY_SNAPSHOT);
    struct exchange *x = send_round(&s, &s.other, 0);
    uint64_t step = step_of(send_empty(&s, &s.j.rig.data, "big"));
    leave(&s, 1);
    assert_true(shard_collect(s.j.rig.shard));
    assert_false(x->is_answered);
    assert_true(slices_left(&s) > ROWS / 4 - 5);
    assert_int_equal(step_of(x), step + 1);
    sweeps_close(&s);
}

static void a_round_waits_for_the_last_slice(void **state)
{
    (void)state;
    struct sweeps s;
    sweeps_open(&s, FEW, EMBD_DURABILITY_SNAPSHOT);
    struct exchange *first = send_round(&s, &s.other, 0);
    uint64_t step = step_of(send_empty(&s, &s.j.rig.data, "big"));
    struct exchange *last = send_round(&s, &s.third, 1);
    assert_true(shard_collect(s.j.rig.shard));
    assert_false(first->is_answered || last->is_answered);
    slices_left(&s);
    assert_int_equal(step_of(first), step + 1);
    assert_int_equal(step_of(last), step + 1);
    sweeps_close(&s);
}

static void a_pull_that_makes_rows_waits_for_the_last_slice(void **state)
{
    (void)state;
    struct sweeps s;
    static const uint64_t key = 1000;
    embd_schema schema = global_schema("made", EMBD_DURABILITY_SNAPSHOT);
    schema.create_on = EMBD_CREATE_ON_PULL;
    sweeps_open(&s, FEW, EMBD_DURABILITY_SNAPSHOT);
    create_table(&s.j.rig, &schema);
    fill(&s.j.rig, "made");
    end_ok(send_empty(&s, &s.j.rig.data, "made"));
    const struct part part = part_of("made", &key, 1, NULL);
    struct part of_no_row = part;
    of_no_row.zero_missing = true;
    struct exchange *x = send_part(&s, &s.other, METHOD_PULL, &part),
                    *y = send_part(&s, &s.third, METHOD_PULL, &of_no_row);
    assert_true(y->is_answered && !x->is_answered);
    slices_left(&s);
    assert_true(x->is_answered);
    end_ok(x);
    end_ok(y);
    assert_int_equal(figure(&s.j.rig, "made", "rows"), ROWS + 1);
    sweeps_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_served_between_slices),
        cmocka_unit_test(what_changes_the_table_waits_in_its_order),
        cmocka_unit_test(what_waits_is_not_read_again_for_each_request),
        cmocka_unit_test(a_table_goes_behind_its_last_slice),
        cmocka_unit_test(a_pusher_may_leave),
        cmocka_unit_test(records_of_other_tables_are_applied_between_slices),
        cmocka_unit_test(pushes_written_together_are_applied_in_turn),
        cmocka_unit_test(a_base_is_made_between_slices),
        cmocka_unit_test(a_round_of_one_waits_for_the_last_slice),
        cmocka_unit_test(a_round_waits_for_the_last_slice),
        cmocka_unit_test(a_pull_that_makes_rows_waits_for_the_last_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
