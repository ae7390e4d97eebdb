/* test_table_set.c - a table is set while other work is under way: a new base of its journal, an
 * answer that is half sent, a push that arrives. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/journaled.h"
#include "proto/route.h"
#include "server/journal/compaction.h"
#include "server/service/state.h"
#include "server/store/slice.h"

enum { ROWS = 4096 };

static struct exchange *ask_set(struct rig *rig, const char *name, const char *field,
                                const char *value)
{
    struct embd__error e = {.status = EMBD_OK};
    struct schema_change change;
    struct exchange *x = ask(rig, &rig->admin, METHOD_TABLE_SET);
    embd__schema_change_init(&change);
    assert_int_equal(embd__schema_change_add(&change, field, value, &e), EMBD_OK);
    embd__msg_map(&x->out, 2);
    embd__msg_field_str(&x->out, "name", name);
    embd__msg_str(&x->out, "set");
    embd__schema_change_write(&x->out, &change);
    return x;
}

static void set(struct rig *rig, const char *name, const char *field, const char *value)
{
    struct exchange *x = ask_set(rig, name, field, value);
    ask_ok(x);
    ask_free(x);
}

/* Pushes behind the base's position are replayed, and not those before: with the fields of then. */
static void a_base_has_the_fields_of_its_position(void **state)
{
    (void)state;
    struct journaled j;
    struct image a;
    struct compaction *c;
    struct embd__error e = {.status = EMBD_OK};
    bool has_more, again;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    journaled_new(&j);
    create_table(&j.rig, &schema);
    push_two(&j.rig, "a", 0.5f);
    assert_int_equal(compaction_begin(&j.rig.shard->commit, &c, &e), EMBD_OK);
    push_two(&j.rig, "a", 0.25f);
    set(&j.rig, "a", "optimizer.lr", "0.5");
    push_two(&j.rig, "a", -0.5f);
    while (!compaction_is_over(c)) {
        assert_int_equal(compaction_step(c, false, &has_more, &e), EMBD_OK);
        if (!has_more)
            basefile_wait(journal_base(j.rig.shard->commit.journal));
    }
    assert_int_equal(compaction_end(c, &again, &e), EMBD_OK);
    image_take(&j.rig, "a", &a);
    for (int i = 0; i < 2; i++) { /* a start writes a base too */
        journaled_stop(&j);
        journaled_start(&j);
        image_check(&j.rig, "a", &a);
    }
    create_table(&j.rig, &schema); /* although its lr is another one now */
    image_fini(&a);
    journaled_end(&j);
}

/* First values belong to the moment of the pull. */
static void a_half_sent_answer_keeps_its_first_values(void **state)
{
    (void)state;
    struct rig rig;
    struct part_answer answer;
    uint64_t *keys = calloc(ROWS, sizeof *keys);
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_SNAPSHOT);
    schema.dim = 32;
    schema.combiner = EMBD_COMBINER_CONCAT;
    schema.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0.5f, 0};
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    struct part part = {.table = embd__table_id("a"), .n_keys = ROWS, .n_rows = ROWS, .keys = keys};
    struct exchange *x = ask_parts(&rig, METHOD_PULL, &part, 1);
    ask_send(x);
    ask_take(x, 100000, LIMIT_FILL_BYTES);
    set(&rig, "a", "initializer.a", "2");
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    for (uint32_t i = 0; i < ROWS * 32; i++)
        assert_true(((const float *)answer.values)[i] == 0.5f);
    ask_free(x);
    float values[32];
    part.n_keys = part.n_rows = 1;
    pull(&rig, &part, values, NULL);
    assert_true(values[0] == 2.0f);
    rig_close(&rig);
    free(keys);
}

/* What was received under admit_nonfinite is looked at again. */
static void an_arriving_push_is_checked_by_the_fields_it_meets(void **state)
{
    (void)state;
    struct journaled j;
    uint64_t *keys = calloc(ROWS, sizeof *keys);
    float *grads = calloc(ROWS * 4, sizeof *grads);
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    schema.admit_nonfinite = true;
    journaled_new(&j);
    create_table(&j.rig, &schema);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    grads[5] = NAN;
    struct part part = part_of("a", keys, ROWS, grads);
    struct exchange *x = ask_parts(&j.rig, METHOD_PUSH, &part, 1);
    ask_arrive(x, ROWS * 8, 4096);
    set(&j.rig, "a", "admit_nonfinite", "false");
    ask_arrive_all(x);
    ask_error(x, EMBD_NOT_FINITE, "column 1", NULL);
    set(&j.rig, "a", "admit_nonfinite", "true");
    push(&j.rig, &part, NULL);
    set(&j.rig, "a", "admit_nonfinite", "false");
    journaled_stop(&j);
    journaled_start(&j);
    assert_int_equal(figure(&j.rig, "a", "steps"), 1);
    journaled_end(&j);
    free(grads);
    free(keys);
}

/* ---- a capacity below the table's rows ---- */

enum { SHRUNK = 300, LEFT = 120, DIM = 4 };

static struct journaled shrinking_open(embd_durability durability, uint64_t slice)
{
    static uint64_t keys[SHRUNK];
    static float grads[DIM * SHRUNK];
    struct journaled j = {.dir = ""};
    embd_schema a = kept_schema("a", durability), b = kept_schema("b", durability);
    embd_schema c = kept_schema("other", durability);
    a.on_full = EMBD_ON_FULL_EVICT_LFU;
    a.capacity = 1000;
    store_slice = slice;
    journaled_new(&j);
    create_table(&j.rig, &a);
    create_table(&j.rig, &b);
    create_table(&j.rig, &c);
    for (uint32_t i = 0; i < SHRUNK; i++)
        keys[i] = i;
    for (uint32_t n = SHRUNK; n > 0; n -= 50) {
        const struct part part = part_of("a", keys, n, grads);
        push(&j.rig, &part, NULL);
    }
    push_two(&j.rig, "b", 0.5f);
    return j;
}

static void shrinking_end(struct journaled *j)
{
    journaled_end(j);
    store_slice = 256u << 10;
}

/* As it is where it is not divided. */
static struct image shrunk_at_once(embd_durability durability)
{
    struct image image;
    struct journaled j = shrinking_open(durability, UINT64_MAX);
    struct exchange *x = ask_set(&j.rig, "a", "capacity", "120");
    ask_send(x);
    ask_wait(x);
    ask_free(x);
    image_take(&j.rig, "a", &image);
    assert_int_equal(image.rows, LEFT);
    shrinking_end(&j);
    return image;
}

static struct exchange *send_shrink(struct journaled *j)
{
    struct exchange *x = ask_set(&j->rig, "a", "capacity", "120");
    ask_send(x);
    while (!j->rig.shard->engine.set.is_on) /* its record is written first */
        shard_collect(j->rig.shard);
    assert_false(x->is_answered);
    return x;
}

static struct exchange *send_push(struct journaled *j, struct shard_session *session,
                                  const char *name)
{
    static const uint64_t key = 2;
    static const float grads[DIM] = {1, 2, 3, 4};
    const struct part part = part_of(name, &key, 1, grads);
    struct exchange *x = ask(&j->rig, session, METHOD_PUSH);
    embd__parts_write(&x->out, &part, 1, PARTS_PUSH);
    ask_send(x);
    return x;
}

static struct exchange *ask_drop(struct journaled *j, struct shard_session *session)
{
    struct exchange *x = ask(&j->rig, session, METHOD_TABLE_DROP);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", "other");
    ask_send(x);
    return x;
}

static void pull_one(struct rig *rig, const char *name)
{
    static const uint64_t key = 2;
    float values[DIM];
    struct part part = part_of(name, &key, 1, NULL);
    pull(rig, &part, values, NULL);
}

/* Other tables are served between slices, also pushes; the table is read. What changes it, and what
 * changes which tables there are, waits. */
static void rows_go_between_other_requests(void **state)
{
    (void)state;
    struct image whole = shrunk_at_once(EMBD_DURABILITY_SNAPSHOT);
    struct journaled j = shrinking_open(EMBD_DURABILITY_SNAPSHOT, 1);
    struct shard_session other = j.rig.data, third = j.rig.admin;
    struct exchange *x = send_shrink(&j);
    struct exchange *same = send_push(&j, &other, "a"), *drop = ask_drop(&j, &third);
    uint32_t n = 0;
    bool was_seen[SHRUNK + 1] = {false};
    for (; !x->is_answered; n++) {
        struct exchange *y = send_push(&j, &j.rig.data, "b");
        assert_true(y->is_answered && !same->is_answered && !drop->is_answered);
        ask_read(y);
        ask_free(y);
        pull_one(&j.rig, "a");
        was_seen[figure(&j.rig, "a", "rows")] = true;
        shard_collect(j.rig.shard);
    }
    assert_true(n > SHRUNK - LEFT && was_seen[SHRUNK] && was_seen[LEFT]);
    for (uint32_t rows = LEFT + 1; rows < SHRUNK; rows++)
        assert_false(was_seen[rows]);
    ask_read(x);
    ask_free(x);
    ask_wait(same);
    ask_free(same);
    ask_wait(drop);
    ask_free(drop);
    assert_int_equal(figure(&j.rig, "a", "rows"), whole.rows);
    image_fini(&whole);
    shrinking_end(&j);
}

/* Who set it may leave: it is made nevertheless, and its record was written. */
static void rows_go_though_nobody_waits(void **state)
{
    (void)state;
    struct image whole = shrunk_at_once(EMBD_DURABILITY_DURABLE);
    struct journaled j = shrinking_open(EMBD_DURABILITY_DURABLE, 64);
    rig_wake(&j.rig);
    struct exchange *x = send_shrink(&j);
    shard_collect(j.rig.shard);
    ask_free(x);
    assert_true(j.rig.shard->engine.set.is_on);
    while (shard_collect(j.rig.shard))
        ;
    image_check(&j.rig, "a", &whole);
    for (int i = 0; i < 2; i++) {
        journaled_stop(&j);
        journaled_start(&j);
        image_check(&j.rig, "a", &whole);
    }
    image_fini(&whole);
    shrinking_end(&j);
}

/* A directory as a kill leaves it at any slice; and the shard stops there itself. */
static void rows_go_once_however_the_shard_ends(void **state)
{
    (void)state;
    struct image whole = shrunk_at_once(EMBD_DURABILITY_DURABLE);
    for (uint32_t n_before = 0; n_before < 40; n_before += 13) {
        struct journaled killed = {.dir = ""};
        struct journaled j = shrinking_open(EMBD_DURABILITY_DURABLE, 320);
        rig_wake(&j.rig);
        struct exchange *x = send_shrink(&j);
        for (uint32_t n = 0; n < n_before; n++)
            assert_true(shard_collect(j.rig.shard));
        char command[160];
        scratch_new(killed.dir);
        snprintf(command, sizeof command, "cp -r %s/. %s", j.dir, killed.dir);
        assert_int_equal(system(command), 0);
        ask_free(x);
        journaled_stop(&j);
        journaled_start(&j);
        image_check(&j.rig, "a", &whole);
        shrinking_end(&j);
        journaled_start(&killed);
        image_check(&killed.rig, "a", &whole);
        journaled_end(&killed);
    }
    image_fini(&whole);
}

/* A hold, as for a snapshot's cut, begins behind the last slice; an answer that is half sent has
 * the rows that go. */
static void a_cut_waits_and_a_half_sent_answer_keeps_its_rows(void **state)
{
    (void)state;
    enum { WIDE = 1024, TALL = 512 };
    struct part_answer answer;
    static uint64_t keys[TALL];
    embd_schema schema = kept_schema("wide", EMBD_DURABILITY_SNAPSHOT);
    struct journaled j = shrinking_open(EMBD_DURABILITY_SNAPSHOT, 64);
    float *grads = calloc((size_t)WIDE * TALL, sizeof *grads);
    schema.dim = WIDE;
    schema.on_full = EMBD_ON_FULL_EVICT_LRU;
    schema.capacity = TALL;
    schema.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0.5f, 0};
    schema.create_on = EMBD_CREATE_ON_PULL;
    create_table(&j.rig, &schema);
    for (uint32_t i = 0; i < TALL; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < WIDE * TALL; i++)
        grads[i] = 1;
    struct part part = {.table = embd__table_id("wide"),
                        .n_keys = TALL,
                        .n_rows = TALL,
                        .keys = keys,
                        .grads = (const void *)grads,
                        .grads_bytes = (uint64_t)WIDE * TALL * sizeof *grads};
    push(&j.rig, &part, NULL);
    struct exchange *set = ask_set(&j.rig, "wide", "capacity", "1");
    ask_send(set);
    assert_true(j.rig.shard->engine.set.is_on);
    struct exchange *hold = ask(&j.rig, &j.rig.admin, METHOD_HOLD);
    embd__msg_map(&hold->out, 0);
    ask_send(hold);
    part.grads = NULL;
    part.grads_bytes = 0;
    part.zero_missing = true;
    struct exchange *x = ask_parts(&j.rig, METHOD_PULL, &part, 1);
    ask_send(x);
    ask_take(x, 100000, LIMIT_FILL_BYTES);
    assert_false(set->is_answered || hold->is_answered);
    ask_wait(set);
    assert_int_equal(figure(&j.rig, "wide", "rows"), 1);
    assert_true(hold->is_answered);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    const float *values = answer.values;
    for (uint32_t i = 0; i < WIDE * TALL; i++)
        assert_true(values[i] != 0 && values[i] != 0.5f);
    ask_free(x);
    ask_free(set);
    ask_free(hold);
    free(grads);
    shrinking_end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_has_the_fields_of_its_position),
        cmocka_unit_test(a_half_sent_answer_keeps_its_first_values),
        cmocka_unit_test(an_arriving_push_is_checked_by_the_fields_it_meets),
        cmocka_unit_test(rows_go_between_other_requests),
        cmocka_unit_test(rows_go_though_nobody_waits),
        cmocka_unit_test(rows_go_once_however_the_shard_ends),
        cmocka_unit_test(a_cut_waits_and_a_half_sent_answer_keeps_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
