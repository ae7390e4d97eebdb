/* test_half_sent.c - answers are made while they are sent: however slowly that goes, a pull shows
 * the rows of one moment, and what changes them meanwhile waits for nobody. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dtype.h"
#include "proto/route.h"
#include "server/service/state.h"

enum { ROWS = 3000, DIM = 64 };

/* A shard with a table whose rows do not go into one answer's first chunk. */
struct wide {
    struct rig rig;
    uint64_t keys[ROWS];
    float grads[ROWS * DIM];
    float values[ROWS * DIM];
};

static embd_schema schema_of(const char *name, embd_combiner combiner)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = DIM;
    schema.combiner = combiner;
    schema.seed = 77;
    return schema;
}

/* `items` has room for all rows. */
static struct wide *wide_open(const struct store_ops *store, embd_create_on create_on,
                              embd_on_full on_full)
{
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", EMBD_COMBINER_CONCAT);
    schema.create_on = create_on;
    schema.on_full = on_full;
    schema.capacity = on_full == EMBD_ON_FULL_GROW ? 0 : ROWS;
    for (uint32_t i = 0; i < ROWS; i++)
        wide->keys[i] = i * 7919u;
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        wide->grads[i] = (float)i / 1024.0f;
    rig_open(&wide->rig, store, 0, 1, NULL);
    create_table(&wide->rig, &schema);
    return wide;
}

static void wide_close(struct wide *wide)
{
    rig_close(&wide->rig);
    free(wide);
}

/* All keys, and a gradient for each. */
static struct part wide_part(struct wide *wide, const char *table)
{
    return (struct part){.table = embd__table_id(table),
                         .n_keys = ROWS,
                         .n_rows = ROWS,
                         .keys = wide->keys,
                         .grads = wide->grads,
                         .grads_bytes = sizeof wide->grads};
}

static void small_chunks_give_what_one_gives(void **state)
{
    (void)state;
    struct wide *wide = wide_open(&store_host, EMBD_CREATE_ON_PUSH, EMBD_ON_FULL_GROW);
    struct part part = wide_part(wide, "items");
    push(&wide->rig, &part, NULL);
    pull(&wide->rig, &part, wide->values, NULL);
    part.want_status = true;
    for (size_t chunk = LIMIT_FILL_BYTES; chunk < 200000; chunk += 12345) {
        struct part_answer answer;
        struct exchange *x = ask_parts(&wide->rig, METHOD_PULL, &part, 1);
        ask_send(x);
        ask_take(x, UINT64_MAX, chunk);
        ask_read(x);
        assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
        assert_memory_equal(answer.values, wide->values, sizeof wide->values);
        for (uint32_t i = 0; i < answer.n_keys; i++)
            assert_int_equal(answer.statuses[i], EMBD_KEY_HIT);
        ask_free(x);
    }
    assert_true(shard_fill_bytes(wide->rig.shard) >= LIMIT_FILL_BYTES);
    assert_int_equal(figure(&wide->rig, NULL, "materialized_bytes"), 0);
    wide_close(wide);
}

/* Some of an answer is taken, then the table changes under it. */
static void half_sent(embd_on_full on_full,
                      void (*change)(struct rig *rig, const struct part *part))
{
    struct wide *wide = wide_open(&store_host, EMBD_CREATE_ON_PULL, on_full);
    embd_schema other = schema_of("other", EMBD_COMBINER_CONCAT);
    create_table(&wide->rig, &other);
    struct part parts[3] = {wide_part(wide, "items"), wide_part(wide, "other"),
                            wide_part(wide, "items")};
    push(&wide->rig, &parts[0], NULL);
    pull(&wide->rig, &parts[0], wide->values, NULL);
    parts[0].want_status = parts[2].want_status = true;

    struct part_answer answers[3];
    struct exchange *x = ask_parts(&wide->rig, METHOD_PULL, parts, 3);
    ask_send(x);
    ask_take(x, 200000, LIMIT_FILL_BYTES);
    change(&wide->rig, &parts[0]);
    ask_take(x, 200000, LIMIT_FILL_BYTES);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, answers, 3), 3);
    assert_memory_equal(answers[0].values, wide->values, sizeof wide->values);
    assert_memory_equal(answers[2].values, wide->values, sizeof wide->values);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(answers[0].statuses[i], EMBD_KEY_HIT);
        assert_int_equal(answers[2].statuses[i], EMBD_KEY_HIT);
    }
    assert_true(figure(&wide->rig, NULL, "materialized_bytes") > sizeof wide->values);
    assert_true(figure(&wide->rig, NULL, "materialized_bytes") < 2 * sizeof wide->values);
    ask_free(x);
    wide_close(wide);
}

static void change_by_push(struct rig *rig, const struct part *part)
{
    struct part pushed = *part;
    pushed.want_status = false;
    float *values = malloc(part->grads_bytes), *after = malloc(part->grads_bytes);
    pull(rig, &pushed, values, NULL);
    push(rig, &pushed, NULL);
    pull(rig, &pushed, after, NULL);
    assert_memory_not_equal(values, after, part->grads_bytes);
    free(values);
    free(after);
}

static void change_by_drop(struct rig *rig, const struct part *part)
{
    (void)part;
    struct exchange *x = ask(rig, &rig->data, METHOD_TABLE_DROP);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", "items");
    ask_ok(x);
    ask_free(x);
    embd_schema schema = schema_of("items", EMBD_COMBINER_CONCAT);
    create_table(rig, &schema);
}

/* Creates rows for other keys, in the places of all there are. */
static void change_by_eviction(struct rig *rig, const struct part *part)
{
    struct part pulled = *part;
    uint64_t *keys = malloc(part->n_keys * sizeof *keys);
    float *values = malloc(part->grads_bytes);
    for (uint32_t i = 0; i < part->n_keys; i++)
        keys[i] = part->keys[i] + ((uint64_t)1 << 40);
    pulled.keys = keys;
    pulled.want_status = false;
    pull(rig, &pulled, values, NULL);
    assert_int_equal(figure(rig, "items", "evicted"), ROWS);
    free(values);
    free(keys);
}

static void a_half_sent_pull_shows_the_rows_before_a_push(void **state)
{
    (void)state;
    half_sent(EMBD_ON_FULL_GROW, change_by_push);
}

static void a_half_sent_pull_shows_the_rows_that_another_pull_evicts(void **state)
{
    (void)state;
    half_sent(EMBD_ON_FULL_EVICT_LFU, change_by_eviction);
}

static void a_half_sent_pull_outlives_its_table(void **state)
{
    (void)state;
    half_sent(EMBD_ON_FULL_GROW, change_by_drop);
}

/* Before its first row is made a pull has not taken effect: only its own connection's order counts.
 */
static void a_pull_not_begun_costs_a_push_of_others_nothing(void **state)
{
    (void)state;
    struct shard_session other = {0};
    struct wide *wide = wide_open(&store_host, EMBD_CREATE_ON_PUSH, EMBD_ON_FULL_GROW);
    struct part part = wide_part(wide, "items");
    pull(&wide->rig, &part, wide->values, NULL);
    for (int is_own = 0; is_own < 2; is_own++) {
        struct part_answer answer;
        struct exchange *x = ask_parts(&wide->rig, METHOD_PULL, &part, 1);
        ask_send(x);
        struct exchange *pushed = ask(&wide->rig, is_own ? &wide->rig.data : &other, METHOD_PUSH);
        embd__parts_write(&pushed->out, &part, 1, PARTS_PUSH);
        ask_ok(pushed);
        ask_free(pushed);
        assert_int_equal(figure(&wide->rig, NULL, "materialized_bytes"),
                         is_own ? sizeof wide->values : 0);
        ask_read(x);
        assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
        if (!is_own)
            pull(&wide->rig, &part, wide->values, NULL); /* with the push in it */
        assert_memory_equal(answer.values, wide->values, sizeof wide->values);
        ask_free(x);
    }
    wide_close(wide);
}

/* Answers nobody takes cannot fill the memory: the push is refused. */
static void slow_readers_are_kept_for_up_to_a_limit(void **state)
{
    (void)state;
    struct shard_session others[3] = {{0}, {0}, {0}};
    struct exchange *slow[3], *own[5];
    embd_schema schema = schema_of("items", EMBD_COMBINER_CONCAT);
    struct wide *wide = wide_open(&store_host, EMBD_CREATE_ON_PUSH, EMBD_ON_FULL_GROW);
    rig_close(&wide->rig); /* once more, with less room */
    struct shard_config config = wide->rig.config;
    struct embd__error e = {.status = EMBD_OK};
    config.materialize_bytes = 2 * sizeof wide->values;
    assert_int_equal(shard_open(&config, &wide->rig.shard, &e), EMBD_OK);
    create_table(&wide->rig, &schema);
    struct part part = wide_part(wide, "items");
    for (int i = 0; i < 3; i++) {
        slow[i] = ask(&wide->rig, &others[i], METHOD_PULL);
        embd__parts_write(&slow[i]->out, &part, 1, PARTS_PULL);
        ask_send(slow[i]);
        ask_take(slow[i], 1, LIMIT_FILL_BYTES);
        ask_take(slow[i], 60000, LIMIT_FILL_BYTES);
    }
    ask_error(ask_parts(&wide->rig, METHOD_PUSH, &part, 1), EMBD_BUSY, "slow readers", "1536000",
              NULL);
    assert_int_equal(figure(&wide->rig, "items", "steps"), 0);
    /* Other shards may have it: until it is repeated, keys stay where they are. */
    assert_int_equal(moving_check_pushes(wide->rig.shard, &e), EMBD_BUSY);
    wide->rig.shard->now_ns += UINT64_C(61000000000);
    assert_int_equal(moving_check_pushes(wide->rig.shard, &(struct embd__error){0}), EMBD_OK);
    ask_read(slow[2]);
    push(&wide->rig, &part, NULL);
    assert_true(figure(&wide->rig, NULL, "materialized_memory_bytes") > 0);
    for (int i = 0; i < 3; i++)
        ask_free(slow[i]);
    assert_int_equal(figure(&wide->rig, NULL, "materialized_memory_bytes"), 0);

    /* Large answers of empty rows, on the connection that pushes. */
    static uint32_t offsets[LIMIT_ROWS / 20];
    struct part large = part;
    large.n_keys = 0;
    large.n_rows = LIMIT_ROWS / 20 - 1;
    large.offsets = offsets;
    schema = schema_of("pooled", EMBD_COMBINER_SUM);
    create_table(&wide->rig, &schema);
    large.table = embd__table_id("pooled");
    for (int i = 0; i < 5; i++) {
        own[i] = ask_parts(&wide->rig, METHOD_PULL, &large, 1);
        ask_send(own[i]);
    }
    part.table = large.table;
    ask_error(ask_parts(&wide->rig, METHOD_PUSH, &part, 1), EMBD_BUSY, "this connection",
              "134217728", NULL);
    for (int i = 0; i < 5; i++)
        ask_free(own[i]);
    push(&wide->rig, &part, NULL);
    wide_close(wide);
}

static void a_pull_given_up_half_sent_leaves_nothing(void **state)
{
    (void)state;
    struct wide *wide = wide_open(&store_host, EMBD_CREATE_ON_PUSH, EMBD_ON_FULL_GROW);
    struct part part = wide_part(wide, "items");
    for (int settled = 0; settled < 2; settled++) {
        struct exchange *x = ask_parts(&wide->rig, METHOD_PULL, &part, 1);
        ask_send(x);
        ask_take(x, 100000, LIMIT_FILL_BYTES);
        if (settled)
            push(&wide->rig, &part, NULL);
        ask_free(x);
    }
    push(&wide->rig, &part, NULL);
    wide_close(wide);
}

/* Zeros stay zeros although another pull creates the rows meanwhile. */
static void a_half_sent_pull_of_zeros_is_copied_by_inserts(void **state)
{
    (void)state;
    struct wide *wide = wide_open(&store_host, EMBD_CREATE_ON_PULL, EMBD_ON_FULL_GROW);
    struct part part = wide_part(wide, "items");
    struct part_answer answer;
    part.zero_missing = true;
    struct exchange *x = ask_parts(&wide->rig, METHOD_PULL, &part, 1);
    ask_send(x);
    ask_take(x, 100000, LIMIT_FILL_BYTES);
    part.zero_missing = false;
    pull(&wide->rig, &part, wide->values, NULL);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        assert_true(((const float *)answer.values)[i] == 0.0f);
    ask_free(x);
    assert_int_equal(figure(&wide->rig, "items", "rows"), ROWS);
    wide_close(wide);
}

/* Whatever create_on says: it only reads. */
static void a_pull_of_zeros_creates_no_row(void **state)
{
    (void)state;
    struct wide *wide = wide_open(&store_host, EMBD_CREATE_ON_PULL, EMBD_ON_FULL_GROW);
    struct part part = wide_part(wide, "items");
    part.zero_missing = true;
    pull(&wide->rig, &part, wide->values, NULL);
    assert_int_equal(figure(&wide->rig, "items", "rows"), 0);
    wide_close(wide);
}

static bool is_out_of_memory;

static void *buffer_new_or_not(size_t bytes)
{
    return is_out_of_memory ? NULL : store_host.buffer_new(bytes);
}

static void a_push_that_cannot_settle_changes_nothing(void **state)
{
    (void)state;
    struct image before;
    struct part_answer answer;
    struct store_ops ops = store_host;
    ops.buffer_new = buffer_new_or_not;
    struct wide *wide = wide_open(&ops, EMBD_CREATE_ON_PUSH, EMBD_ON_FULL_GROW);
    struct part part = wide_part(wide, "items");
    push(&wide->rig, &part, NULL);
    pull(&wide->rig, &part, wide->values, NULL);
    image_take(&wide->rig, "items", &before);
    struct exchange *x = ask_parts(&wide->rig, METHOD_PULL, &part, 1);
    ask_send(x);
    ask_take(x, 100000, LIMIT_FILL_BYTES);
    is_out_of_memory = true;
    ask_error(ask_parts(&wide->rig, METHOD_PUSH, &part, 1), EMBD_NO_MEMORY, "bytes", NULL);
    is_out_of_memory = false;
    image_check(&wide->rig, "items", &before);
    push(&wide->rig, &part, NULL);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    assert_memory_equal(answer.values, wide->values, sizeof wide->values);
    ask_free(x);
    image_fini(&before);
    wide_close(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_chunks_give_what_one_gives),
        cmocka_unit_test(a_half_sent_pull_shows_the_rows_before_a_push),
        cmocka_unit_test(a_half_sent_pull_shows_the_rows_that_another_pull_evicts),
        cmocka_unit_test(a_half_sent_pull_outlives_its_table),
        cmocka_unit_test(a_pull_not_begun_costs_a_push_of_others_nothing),
        cmocka_unit_test(slow_readers_are_kept_for_up_to_a_limit),
        cmocka_unit_test(a_pull_given_up_half_sent_leaves_nothing),
        cmocka_unit_test(a_half_sent_pull_of_zeros_is_copied_by_inserts),
        {"S4.6 a pull of zeros creates no row", a_pull_of_zeros_creates_no_row, NULL, NULL, NULL},
        cmocka_unit_test(a_push_that_cannot_settle_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
