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

enum { ROWS = 4096 };

static void set(struct rig *rig, const char *name, const char *field, const char *value)
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
        assert_int_equal(compaction_step(c, &has_more, &e), EMBD_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_has_the_fields_of_its_position),
        cmocka_unit_test(a_half_sent_answer_keeps_its_first_values),
        cmocka_unit_test(an_arriving_push_is_checked_by_the_fields_it_meets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
