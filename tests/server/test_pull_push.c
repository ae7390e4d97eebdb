/* test_pull_push.c - pulls and pushes of one shard against the model, bit for bit; how answers are
 * made while they are sent; requests of several parts; a store that answers later. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "deferred_store.h"
#include "dtype.h"
#include "route.h"

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
    bool divides = model->schema.combiner == EMBD_MEAN || model->schema.combiner == EMBD_SQRTN;
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
                       bool weighted)
{
    uint8_t statuses[BATCH_KEYS], expected[BATCH_KEYS];
    struct model_counts counts;
    struct model_batch model_batch = batch_model(batch, &model->schema, weighted);
    struct part part = batch_part(batch, &model->schema, dtype, weighted);
    assert_int_equal(model_push(model, &model_batch, batch->grads, false, expected, &counts),
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
    for (int round = 0; round < 4; round++) {
        embd_dtype dtype = (embd_dtype)(round % 3);
        bool weighted = schema->combiner != EMBD_CONCAT && round % 2 == 1;
        batch_fill(batch, schema);
        check_pull(&rig, model, batch, dtype, weighted);
        check_push(&rig, model, batch, dtype, weighted);
        check_pull(&rig, model, batch, EMBD_F32, weighted);
    }
    rig_close(&rig);
    free(batch);
    model_free(model);
}

static void every_optimizer_gives_the_models_bits(void **state)
{
    (void)state;
    for (int kind = EMBD_SGD; kind <= EMBD_FTRL; kind++) {
        embd_schema schema = schema_of("items", 8, EMBD_SUM);
        embd_optimizer_init(&schema.optimizer, (embd_optimizer_kind)kind, 0.05f);
        schema.optimizer.scaler = kind % 2 ? 3.0f : 1.0f;
        check_schema(&schema);
    }
}

static void every_combiner_partition_and_dtype_gives_the_models_bits(void **state)
{
    (void)state;
    for (int combiner = EMBD_CONCAT; combiner <= EMBD_SQRTN; combiner++)
        for (int partition = EMBD_HASH; partition <= EMBD_SLOT; partition++)
            for (int dtype = EMBD_F32; dtype <= EMBD_BF16; dtype++) {
                embd_schema schema = schema_of("items", 5, (embd_combiner)combiner);
                schema.partition = (embd_partition)partition;
                schema.dtype = (embd_dtype)dtype;
                schema.slots = 4;
                embd_optimizer_init(&schema.optimizer, EMBD_ADAGRAD, 0.1f);
                check_schema(&schema);
            }
}

static void rows_are_created_when_the_schema_says(void **state)
{
    (void)state;
    embd_schema schema = schema_of("items", 4, EMBD_SUM);
    schema.create_on = EMBD_CREATE_ON_PULL;
    check_schema(&schema);
    schema.admit_after = 3;
    check_schema(&schema);
    schema.create_on = EMBD_CREATE_ON_PUSH;
    check_schema(&schema);
    schema.on_full = EMBD_ERROR;
    schema.capacity = 100;
    check_schema(&schema);
}

/* ---- answers made while they are sent ---- */

struct wide {
    uint64_t keys[3000];
    float grads[3000 * 64];
    float values[3000 * 64];
};

static struct part wide_part(struct wide *wide, const char *table)
{
    for (uint32_t i = 0; i < 3000; i++)
        wide->keys[i] = i * 7919u;
    for (uint32_t i = 0; i < 3000 * 64; i++)
        wide->grads[i] = (float)i / 1024.0f;
    return (struct part){.table = embd__table_id(table),
                         .n_keys = 3000,
                         .n_rows = 3000,
                         .keys = wide->keys,
                         .grads = wide->grads,
                         .grads_bytes = sizeof wide->grads};
}

static void small_chunks_give_what_one_gives(void **state)
{
    (void)state;
    struct rig rig;
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    struct part part = wide_part(wide, "items");
    push(&rig, &part, NULL);
    pull(&rig, &part, wide->values, NULL);
    part.want_status = true;
    for (size_t chunk = LIMIT_FILL_BYTES; chunk < 200000; chunk += 12345) {
        struct part_answer answer;
        struct exchange *x = ask_parts(&rig, METHOD_PULL, &part, 1);
        ask_send(x);
        ask_take(x, UINT64_MAX, chunk);
        ask_read(x);
        assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
        assert_memory_equal(answer.values, wide->values, sizeof wide->values);
        for (uint32_t i = 0; i < answer.n_keys; i++)
            assert_int_equal(answer.statuses[i], EMBD_KEY_HIT);
        ask_free(x);
    }
    assert_true(shard_fill_bytes(rig.shard) >= LIMIT_FILL_BYTES);
    assert_int_equal(figure(&rig, NULL, "settled_bytes"), 0);
    rig_close(&rig);
    free(wide);
}

/* Some of an answer is taken, then the table changes under it. */
static void half_sent(embd_on_full on_full,
                      void (*change)(struct rig *rig, const struct part *part))
{
    struct rig rig;
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT),
                other = schema_of("other", 64, EMBD_CONCAT);
    schema.on_full = on_full;
    schema.capacity = 3000;
    schema.create_on = EMBD_CREATE_ON_PULL;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    create_table(&rig, &other);
    struct part parts[3] = {wide_part(wide, "items"), wide_part(wide, "other"),
                            wide_part(wide, "items")};
    push(&rig, &parts[0], NULL);
    pull(&rig, &parts[0], wide->values, NULL);
    parts[0].want_status = parts[2].want_status = true;

    struct part_answer answers[3];
    struct exchange *x = ask_parts(&rig, METHOD_PULL, parts, 3);
    ask_send(x);
    ask_take(x, 200000, LIMIT_FILL_BYTES);
    change(&rig, &parts[0]);
    ask_take(x, 200000, LIMIT_FILL_BYTES);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, answers, 3), 3);
    assert_memory_equal(answers[0].values, wide->values, sizeof wide->values);
    assert_memory_equal(answers[2].values, wide->values, sizeof wide->values);
    for (uint32_t i = 0; i < 3000; i++) {
        assert_int_equal(answers[0].statuses[i], EMBD_KEY_HIT);
        assert_int_equal(answers[2].statuses[i], EMBD_KEY_HIT);
    }
    assert_true(figure(&rig, NULL, "settled_bytes") > sizeof wide->values);
    assert_true(figure(&rig, NULL, "settled_bytes") < 2 * sizeof wide->values);
    ask_free(x);
    rig_close(&rig);
    free(wide);
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
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
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
    assert_int_equal(figure(rig, "items", "evicted"), 3000);
    free(values);
    free(keys);
}

static void a_half_sent_pull_shows_the_rows_before_a_push(void **state)
{
    (void)state;
    half_sent(EMBD_GROW, change_by_push);
}

static void a_half_sent_pull_shows_the_rows_that_another_pull_evicts(void **state)
{
    (void)state;
    half_sent(EMBD_EVICT_LFU, change_by_eviction);
}

static void a_half_sent_pull_outlives_its_table(void **state)
{
    (void)state;
    half_sent(EMBD_GROW, change_by_drop);
}

/* Before its first row is made a pull has not taken effect: only its own connection's order counts.
 */
static void a_pull_not_begun_costs_a_push_of_others_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct shard_session other = {0};
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    struct part part = wide_part(wide, "items");
    pull(&rig, &part, wide->values, NULL);
    for (int is_own = 0; is_own < 2; is_own++) {
        struct part_answer answer;
        struct exchange *x = ask_parts(&rig, METHOD_PULL, &part, 1);
        ask_send(x);
        struct exchange *pushed = ask(&rig, is_own ? &rig.data : &other, METHOD_PUSH);
        embd__parts_write(&pushed->out, &part, 1, true);
        ask_ok(pushed);
        ask_free(pushed);
        assert_int_equal(figure(&rig, NULL, "settled_bytes"), is_own ? sizeof wide->values : 0);
        ask_read(x);
        assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
        if (!is_own)
            pull(&rig, &part, wide->values, NULL); /* with the push in it */
        assert_memory_equal(answer.values, wide->values, sizeof wide->values);
        ask_free(x);
    }
    rig_close(&rig);
    free(wide);
}

/* Answers nobody takes cannot fill the memory: the push is refused. */
static void slow_readers_are_kept_for_up_to_a_limit(void **state)
{
    (void)state;
    struct rig rig;
    struct shard_session others[3] = {{0}, {0}, {0}};
    struct exchange *slow[3], *own[5];
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
    rig_open(&rig, &store_host, 0, 1, NULL);
    rig_close(&rig);
    struct shard_config config = rig.config;
    struct embd__error e = {.status = EMBD_OK};
    config.settle_bytes = 2 * sizeof wide->values;
    assert_int_equal(shard_open(&config, &rig.shard, &e), EMBD_OK);
    create_table(&rig, &schema);
    struct part part = wide_part(wide, "items");
    for (int i = 0; i < 3; i++) {
        slow[i] = ask(&rig, &others[i], METHOD_PULL);
        embd__parts_write(&slow[i]->out, &part, 1, false);
        ask_send(slow[i]);
        ask_take(slow[i], 1, LIMIT_FILL_BYTES);
        ask_take(slow[i], 60000, LIMIT_FILL_BYTES);
    }
    ask_error(ask_parts(&rig, METHOD_PUSH, &part, 1), EMBD_BUSY, "slow readers", "1536000", NULL);
    assert_int_equal(figure(&rig, "items", "steps"), 0);
    ask_read(slow[2]);
    push(&rig, &part, NULL);
    assert_true(figure(&rig, NULL, "settled_memory_bytes") > 0);
    for (int i = 0; i < 3; i++)
        ask_free(slow[i]);
    assert_int_equal(figure(&rig, NULL, "settled_memory_bytes"), 0);

    /* Large answers of empty rows, on the connection that pushes. */
    static uint32_t offsets[LIMIT_ROWS / 20];
    struct part large = part;
    large.n_keys = 0;
    large.n_rows = LIMIT_ROWS / 20 - 1;
    large.offsets = offsets;
    schema = schema_of("pooled", 64, EMBD_SUM);
    create_table(&rig, &schema);
    large.table = embd__table_id("pooled");
    for (int i = 0; i < 5; i++) {
        own[i] = ask_parts(&rig, METHOD_PULL, &large, 1);
        ask_send(own[i]);
    }
    part.table = large.table;
    ask_error(ask_parts(&rig, METHOD_PUSH, &part, 1), EMBD_BUSY, "this connection", "134217728",
              NULL);
    for (int i = 0; i < 5; i++)
        ask_free(own[i]);
    push(&rig, &part, NULL);
    rig_close(&rig);
    free(wide);
}

static void a_pull_given_up_half_sent_leaves_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    struct part part = wide_part(wide, "items");
    for (int settled = 0; settled < 2; settled++) {
        struct exchange *x = ask_parts(&rig, METHOD_PULL, &part, 1);
        ask_send(x);
        ask_take(x, 100000, LIMIT_FILL_BYTES);
        if (settled)
            push(&rig, &part, NULL);
        ask_free(x);
    }
    push(&rig, &part, NULL);
    rig_close(&rig);
    free(wide);
}

/* Zeros stay zeros although another pull creates the rows meanwhile. */
static void a_half_sent_pull_of_zeros_is_settled_by_inserts(void **state)
{
    (void)state;
    struct rig rig;
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
    schema.create_on = EMBD_CREATE_ON_PULL;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    struct part part = wide_part(wide, "items");
    struct part_answer answer;
    part.zero_missing = true;
    struct exchange *x = ask_parts(&rig, METHOD_PULL, &part, 1);
    ask_send(x);
    ask_take(x, 100000, LIMIT_FILL_BYTES);
    part.zero_missing = false;
    pull(&rig, &part, wide->values, NULL);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    for (uint32_t i = 0; i < 3000 * 64; i++)
        assert_true(((const float *)answer.values)[i] == 0.0f);
    ask_free(x);
    assert_int_equal(figure(&rig, "items", "rows"), 3000);
    rig_close(&rig);
    free(wide);
}

/* Whatever create_on says: it only reads. */
static void a_pull_of_zeros_creates_no_row(void **state)
{
    (void)state;
    struct rig rig;
    struct wide *wide = calloc(1, sizeof *wide);
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
    schema.create_on = EMBD_CREATE_ON_PULL;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &schema);
    struct part part = wide_part(wide, "items");
    part.zero_missing = true;
    pull(&rig, &part, wide->values, NULL);
    assert_int_equal(figure(&rig, "items", "rows"), 0);
    rig_close(&rig);
    free(wide);
}

/* ---- several parts ---- */

#define N_ROOM 12u

static void create_bound(struct rig *rig, const char *name, embd_on_full on_full,
                         embd_create_on create_on)
{
    embd_schema schema = schema_of(name, 2, EMBD_CONCAT);
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
    create_bound(&rig, "a", EMBD_ERROR, EMBD_CREATE_ON_PUSH);
    create_bound(&rig, "b", EMBD_ERROR, EMBD_CREATE_ON_PUSH);
    struct part parts[2] = {room_part("a", keys, 8, grads), room_part("b", keys, 8, grads)};
    push(&rig, &parts[1], NULL);
    image_take(&rig, "a", &a);
    image_take(&rig, "b", &b);
    parts[1] = room_part("b", keys, 13, grads);
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_FULL, "part 1", "'b'", "12", NULL);
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
    create_bound(&rig, "a", EMBD_EVICT_LRU, EMBD_CREATE_ON_PUSH);
    create_bound(&rig, "b", EMBD_EVICT_LFU, EMBD_CREATE_ON_PUSH);
    struct part parts[2] = {room_part("a", keys, 12, grads), room_part("b", keys, 8, grads)};
    push(&rig, &parts[0], NULL);
    push(&rig, &parts[1], NULL);
    image_take(&rig, "a", &a);
    image_take(&rig, "b", &b);
    parts[0] = room_part("a", keys + 12, 4, grads);
    parts[1] = room_part("b", keys, 13, grads); /* 8 of them have rows */
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_FULL, "part 1", "'b'", "12", "13", NULL);
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
    create_bound(&rig, "a", EMBD_ERROR, EMBD_CREATE_ON_PULL);
    struct part parts[2] = {room_part("a", keys, 7, NULL), room_part("a", keys + 7, 7, NULL)};
    ask_error(ask_parts(&rig, METHOD_PULL, parts, 2), EMBD_FULL, "part 1", "'a'", "14", "12", NULL);
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
    embd_schema schema = schema_of("items", 4, EMBD_SUM);
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
    create_bound(&rig, "a", EMBD_ERROR, EMBD_CREATE_ON_PULL);
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

static bool is_out_of_memory;

static void *buffer_new_or_not(size_t bytes)
{
    return is_out_of_memory ? NULL : store_host.buffer_new(bytes);
}

static void a_push_that_cannot_settle_changes_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct image before;
    struct part_answer answer;
    struct wide *wide = calloc(1, sizeof *wide);
    struct store_ops ops = store_host;
    embd_schema schema = schema_of("items", 64, EMBD_CONCAT);
    ops.buffer_new = buffer_new_or_not;
    rig_open(&rig, &ops, 0, 1, NULL);
    create_table(&rig, &schema);
    struct part part = wide_part(wide, "items");
    push(&rig, &part, NULL);
    pull(&rig, &part, wide->values, NULL);
    image_take(&rig, "items", &before);
    struct exchange *x = ask_parts(&rig, METHOD_PULL, &part, 1);
    ask_send(x);
    ask_take(x, 100000, LIMIT_FILL_BYTES);
    is_out_of_memory = true;
    ask_error(ask_parts(&rig, METHOD_PUSH, &part, 1), EMBD_NO_MEMORY, "bytes", NULL);
    is_out_of_memory = false;
    image_check(&rig, "items", &before);
    push(&rig, &part, NULL);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    assert_memory_equal(answer.values, wide->values, sizeof wide->values);
    ask_free(x);
    image_fini(&before);
    rig_close(&rig);
    free(wide);
}

static uint32_t n_pushes_left;

static void push_or_not(struct store *store, struct store_push *push, struct store_done *done)
{
    if (n_pushes_left-- > 0)
        store_host.push(store, push, done);
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
    ops.push = push_or_not;
    rig_open(&rig, &ops, 0, 1, NULL);
    create_bound(&rig, "a", EMBD_ERROR, EMBD_CREATE_ON_PUSH);
    create_bound(&rig, "b", EMBD_ERROR, EMBD_CREATE_ON_PUSH);
    struct part parts[2] = {room_part("a", keys, 2, grads), room_part("b", keys, 2, grads)};
    n_pushes_left = 1;
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_NO_MEMORY, "part 1",
              "no memory for rows", "before it were applied", NULL);
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
        cmocka_unit_test(small_chunks_give_what_one_gives),
        cmocka_unit_test(a_half_sent_pull_shows_the_rows_before_a_push),
        cmocka_unit_test(a_half_sent_pull_shows_the_rows_that_another_pull_evicts),
        cmocka_unit_test(a_half_sent_pull_outlives_its_table),
        cmocka_unit_test(a_pull_not_begun_costs_a_push_of_others_nothing),
        cmocka_unit_test(slow_readers_are_kept_for_up_to_a_limit),
        cmocka_unit_test(a_pull_given_up_half_sent_leaves_nothing),
        cmocka_unit_test(a_half_sent_pull_of_zeros_is_settled_by_inserts),
        {"S4.6 a pull of zeros creates no row", a_pull_of_zeros_creates_no_row, NULL, NULL, NULL},
        cmocka_unit_test(a_push_that_would_overfill_a_later_table_changes_no_table),
        cmocka_unit_test(a_push_that_a_later_evicting_table_cannot_hold_changes_no_table),
        cmocka_unit_test(a_creating_pull_without_room_creates_nothing),
        cmocka_unit_test(no_parts_and_empty_parts_are_answered),
        cmocka_unit_test(a_late_store_answers_in_order_and_in_full),
        cmocka_unit_test(a_push_that_cannot_settle_changes_nothing),
        cmocka_unit_test(memory_running_out_in_a_later_part_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
