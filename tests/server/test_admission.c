/* test_admission.c - which requests find room: a request is refused as a whole, only where one of
 * its own tables has no room for what it would make there, and by what it finds when its turn has
 * come. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <string.h>

#include "tests/server/deferred_store.h"
#include "tests/server/journaled.h"
#include "proto/route.h"
#include "server/service/state.h"

enum { CAPACITY = 12, DIM = 4 };

static const uint64_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const float grads[16 * DIM] = {1, 2, 3};

static embd_schema schema_of(const char *name, embd_on_full on_full, uint64_t capacity)
{
    embd_schema schema = kept_schema(name, EMBD_DURABILITY_SNAPSHOT);
    schema.on_full = on_full;
    schema.capacity = capacity;
    return schema;
}

static void create(struct rig *rig, const char *name, embd_on_full on_full, uint64_t capacity,
                   embd_create_on create_on, uint32_t admit_after)
{
    embd_schema schema = schema_of(name, on_full, capacity);
    schema.create_on = create_on;
    schema.admit_after = admit_after;
    schema.ttl = on_full == EMBD_ON_FULL_EVICT_TTL ? 100 : 0;
    create_table(rig, &schema);
}

/* n keys from number `first` on; a pull's have no gradients. */
static struct part part_at(const char *table, enum method method, uint32_t first, uint32_t n)
{
    struct part part = part_of(table, keys + first, n, grads);
    if (method == METHOD_PULL) {
        part.grads = NULL;
        part.grads_bytes = 0;
    }
    return part;
}

static void ask_well(struct rig *rig, enum method method, const struct part *parts, uint32_t n)
{
    struct exchange *x = ask_parts(rig, method, parts, n);
    ask_ok(x);
    ask_free(x);
}

static void push_keys(struct rig *rig, const char *table, uint32_t first, uint32_t n)
{
    const struct part part = part_at(table, METHOD_PUSH, first, n);
    ask_well(rig, METHOD_PUSH, &part, 1);
}

/* ---- tables whose rows pushes make ---- */

/* One key alone, and all of them with or without zeros: none is a row that is to be made. */
static void pull_unseen(struct rig *rig, const char *table)
{
    for (int zero = 0; zero < 2; zero++) {
        struct part part = part_at(table, METHOD_PULL, 15, 1);
        part.zero_missing = zero > 0;
        ask_well(rig, METHOD_PULL, &part, 1);
        part = part_at(table, METHOD_PULL, 0, 16);
        part.zero_missing = zero > 0;
        ask_well(rig, METHOD_PULL, &part, 1);
    }
}

static void a_full_table_is_pulled_from_whatever_pushes_it_refuses(void **state)
{
    static const embd_on_full policies[] = {EMBD_ON_FULL_ERROR, EMBD_ON_FULL_EVICT_LRU,
                                            EMBD_ON_FULL_EVICT_LFU, EMBD_ON_FULL_EVICT_TTL};
    struct journaled j;
    (void)state;
    journaled_new(&j);
    for (uint32_t i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%u", i);
        embd_schema schema = schema_of(name, policies[i], CAPACITY);
        schema.durability = i % 2 ? EMBD_DURABILITY_BUFFERED : EMBD_DURABILITY_DURABLE;
        schema.ttl = policies[i] == EMBD_ON_FULL_EVICT_TTL ? 100 : 0;
        create_table(&j.rig, &schema);
        push_keys(&j.rig, name, 0, CAPACITY);
        pull_unseen(&j.rig, name);
        for (int times = 0; times < 2; times++) {
            const struct part part = part_at(name, METHOD_PUSH, 0, CAPACITY + 1);
            ask_error(ask_parts(&j.rig, METHOD_PUSH, &part, 1), EMBD_FULL, "capacity", NULL);
            pull_unseen(&j.rig, name);
        }
    }
    journaled_stop(&j);
    journaled_start(&j);
    for (uint32_t i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(figure(&j.rig, name, "rows"), CAPACITY);
        pull_unseen(&j.rig, name);
    }
    journaled_end(&j);
}

static void a_part_beside_others_finds_the_room_that_it_finds_alone(void **state)
{
    struct rig rig;
    (void)state;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create(&rig, "x", EMBD_ON_FULL_GROW, 0, EMBD_CREATE_ON_PUSH, 0);
    create(&rig, "p", EMBD_ON_FULL_GROW, 0, EMBD_CREATE_ON_PULL, 0);
    create(&rig, "a", EMBD_ON_FULL_ERROR, 3, EMBD_CREATE_ON_PUSH, 2);
    create(&rig, "b", EMBD_ON_FULL_ERROR, 3, EMBD_CREATE_ON_PUSH, 0);
    create(&rig, "c", EMBD_ON_FULL_EVICT_LRU, 3, EMBD_CREATE_ON_PUSH, 0);
    /* Keys that are only counted, before they are admitted, take no room; 3 of them do, when they
     * are. */
    struct part parts[3] = {part_at("x", METHOD_PUSH, 0, 0), part_at("a", METHOD_PUSH, 0, 4),
                            part_at("b", METHOD_PUSH, 0, 3)};
    ask_well(&rig, METHOD_PUSH, parts, 3);
    assert_int_equal(figure(&rig, "a", "candidates"), 4);
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 3), EMBD_FULL, "part 1", "table a", "4 keys",
              NULL);
    parts[1] = part_at("a", METHOD_PUSH, 1, 4);
    ask_well(&rig, METHOD_PUSH, parts, 3);
    assert_int_equal(figure(&rig, "a", "rows"), 3);
    /* Beside a table whose rows pulls make, with keys and without. */
    push_keys(&rig, "c", 0, 3);
    for (uint32_t n = 0; n < 2; n++)
        for (int zero = 0; zero < 2; zero++) {
            parts[0] = part_at("p", METHOD_PULL, 0, n);
            parts[1] = part_at("b", METHOD_PULL, 4, 4);
            parts[2] = part_at("c", METHOD_PULL, 4, 4);
            parts[1].zero_missing = parts[2].zero_missing = zero > 0;
            ask_well(&rig, METHOD_PULL, parts, 3);
        }
    rig_close(&rig);
}

/* ---- tables whose rows pulls make ---- */

static void create_four(struct rig *rig)
{
    create(rig, "p", EMBD_ON_FULL_GROW, 0, EMBD_CREATE_ON_PULL, 0);
    create(rig, "q", EMBD_ON_FULL_GROW, 0, EMBD_CREATE_ON_PULL, 3);
    create(rig, "t", EMBD_ON_FULL_EVICT_TTL, 2, EMBD_CREATE_ON_PULL, 0);
    create(rig, "u", EMBD_ON_FULL_ERROR, 2, EMBD_CREATE_ON_PULL, 0);
    push_keys(rig, "t", 0, 2);
    push_keys(rig, "u", 0, 1);
}

static void a_pull_that_one_table_refuses_changes_none(void **state)
{
    static const char *const orders[][4] = {
        {"p", "q", "u", "t"}, {"t", "p", "q", "u"}, {"p", "t", "u", "q"}, {"u", "q", "t", "p"}};
    struct rig rig;
    struct image before[4];
    (void)state;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_four(&rig);
    for (uint32_t i = 0; i < 4; i++)
        image_take(&rig, orders[0][i], &before[i]);
    for (uint32_t o = 0; o < 4; o++) {
        struct part parts[4];
        for (uint32_t i = 0; i < 4; i++)
            parts[i] = part_at(orders[o][i], METHOD_PULL, 4, orders[o][i][0] < 't' ? 4 : 1);
        ask_error(ask_parts(&rig, METHOD_PULL, parts, 4), EMBD_FULL, "table t", "capacity 2", NULL);
        for (uint32_t i = 0; i < 4; i++)
            image_check(&rig, orders[0][i], &before[i]);
    }
    for (uint32_t i = 0; i < 4; i++)
        image_fini(&before[i]);
    rig_close(&rig);
}

/* A key of two parts is seen once; rows of one part do not go for another's; one part's statuses
 * are not another's. */
static void parts_of_a_pull_for_one_table_are_one_request_to_it(void **state)
{
    struct rig rig;
    struct part_answer answers[2];
    (void)state;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create(&rig, "seen", EMBD_ON_FULL_GROW, 0, EMBD_CREATE_ON_PULL, 2);
    create(&rig, "few", EMBD_ON_FULL_EVICT_LRU, 4, EMBD_CREATE_ON_PULL, 0);
    struct part parts[2] = {part_at("seen", METHOD_PULL, 0, 3), part_at("seen", METHOD_PULL, 2, 3)};
    parts[0].want_status = parts[1].want_status = true;
    for (uint8_t status = EMBD_KEY_FILTERED;; status = EMBD_KEY_INSERTED) {
        const uint8_t all[3] = {status, status, status};
        struct exchange *x = ask_parts(&rig, METHOD_PULL, parts, 2);
        ask_ok(x);
        assert_int_equal(embd__pull_answer_read(&x->reader, answers, 2), 2);
        assert_memory_equal(answers[0].statuses, all, 3);
        assert_memory_equal(answers[1].statuses, all, 3);
        ask_free(x);
        if (status == EMBD_KEY_INSERTED)
            break;
    }
    assert_int_equal(figure(&rig, "seen", "rows"), 5);
    parts[0] = part_at("few", METHOD_PULL, 0, 3);
    parts[1] = part_at("few", METHOD_PULL, 3, 2);
    for (int wants = 0; wants < 3; wants++) {
        parts[0].want_status = wants == 1;
        parts[1].want_status = wants == 2;
        ask_error(ask_parts(&rig, METHOD_PULL, parts, 2), EMBD_FULL, "part 0", "5 keys", NULL);
        assert_int_equal(figure(&rig, "few", "rows"), 0);
    }
    parts[0].want_status = parts[1].want_status = true;
    struct exchange *x = ask_parts(&rig, METHOD_PULL, parts, 2);
    ask_ok(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, answers, 2), 2);
    assert_int_equal(answers[0].statuses[2], EMBD_KEY_INSERTED);
    assert_int_equal(answers[1].statuses[0], EMBD_KEY_INSERTED);
    assert_int_equal(answers[1].statuses[1], EMBD_KEY_FULL);
    ask_free(x);
    rig_close(&rig);
}

/* ---- when its turn has come ---- */

static struct exchange *send_push(struct rig *rig, const struct part *parts, uint32_t n)
{
    struct exchange *x = ask_parts(rig, METHOD_PUSH, parts, n);
    ask_send(x);
    return x;
}

/* The rows of a full table expire with the push before, whose record is only being written when it
 * comes. */
static void a_push_behind_others_finds_the_room_that_these_leave(void **state)
{
    struct journaled j;
    (void)state;
    journaled_new(&j);
    rig_wake(&j.rig);
    embd_schema schema = schema_of("t", EMBD_ON_FULL_EVICT_TTL, 2),
                other = schema_of("x", EMBD_ON_FULL_GROW, 0);
    schema.ttl = 1;
    schema.durability = other.durability = EMBD_DURABILITY_DURABLE;
    create_table(&j.rig, &schema);
    create_table(&j.rig, &other);
    const struct part fill = part_at("t", METHOD_PUSH, 0, 2),
                      empty = part_at("t", METHOD_PUSH, 0, 0),
                      both[2] = {part_at("t", METHOD_PUSH, 4, 2), part_at("x", METHOD_PUSH, 0, 1)};
    struct exchange *x[3] = {send_push(&j.rig, &fill, 1), NULL, NULL};
    ask_wait(x[0]);
    x[1] = send_push(&j.rig, &empty, 1);
    assert_int_equal(j.rig.shard->engine.n_recorded, 1);
    x[2] = send_push(&j.rig, both, 2);
    for (int i = 0; i < 3; i++) {
        ask_wait(x[i]);
        ask_read(x[i]);
        assert_int_equal(x[i]->reader.answer_status, EMBD_OK);
        ask_free(x[i]);
    }
    assert_int_equal(figure(&j.rig, "t", "evicted"), 2);
    journaled_end(&j);
}

/* Calls of a store that answers later: nothing comes between the parts of a request. */
static void a_push_of_two_tables_keeps_the_room_that_it_found(void **state)
{
    struct rig rig;
    (void)state;
    deferred_open();
    rig_open(&rig, &store_deferred, 0, 1, NULL);
    create(&rig, "a", EMBD_ON_FULL_ERROR, 4, EMBD_CREATE_ON_PUSH, 0);
    create(&rig, "b", EMBD_ON_FULL_ERROR, 4, EMBD_CREATE_ON_PUSH, 0);
    const struct part both[2] = {part_at("a", METHOD_PUSH, 0, 4), part_at("b", METHOD_PUSH, 0, 4)},
                      one = part_at("b", METHOD_PUSH, 8, 1);
    struct exchange *first = send_push(&rig, both, 2), *second = send_push(&rig, &one, 1),
                    *third = send_push(&rig, both, 2); /* all have rows by then */
    while (deferred_run())
        ;
    ask_read(first);
    ask_read(second);
    ask_read(third);
    assert_int_equal(first->reader.answer_status, EMBD_OK);
    assert_int_equal(second->reader.answer_status, EMBD_FULL);
    assert_int_equal(third->reader.answer_status, EMBD_OK);
    assert_int_equal(figure(&rig, "b", "steps"), 2);
    ask_free(first);
    ask_free(second);
    ask_free(third);
    rig_close(&rig);
}

/* What a device was asked for it does, also for a connection that is gone. */
static void a_push_of_two_tables_is_made_in_both_though_its_connection_goes(void **state)
{
    struct rig rig;
    (void)state;
    deferred_open();
    rig_open(&rig, &store_deferred, 0, 1, NULL);
    create(&rig, "a", EMBD_ON_FULL_ERROR, 4, EMBD_CREATE_ON_PUSH, 0);
    create(&rig, "b", EMBD_ON_FULL_ERROR, 4, EMBD_CREATE_ON_PUSH, 0);
    const struct part both[2] = {part_at("a", METHOD_PUSH, 0, 4), part_at("b", METHOD_PUSH, 0, 4)};
    ask_free(send_push(&rig, both, 2));
    assert_int_equal(deferred_cancelled(), 2);
    assert_int_equal(rig.shard->engine.n_in_flight, 0);
    rig_close(&rig);
}

static bool take_memory(void *arg, uint64_t bytes)
{
    uint64_t *left = arg;
    bool fits = bytes <= *left;
    *left -= fits ? bytes : 0;
    return fits;
}

static void give_memory(void *arg, uint64_t bytes)
{
    *(uint64_t *)arg += bytes;
}

/* A table of long rows, on a shard whose peers may take *left. */
static void open_bounded(struct rig *rig, uint64_t *left)
{
    deferred_open();
    rig_open(rig, &store_deferred, 0, 1, NULL);
    rig->shard->config.answer_take = take_memory;
    rig->shard->config.answer_give = give_memory;
    rig->shard->config.net_arg = left;
    embd_schema schema = schema_of("wide", EMBD_ON_FULL_GROW, 0);
    schema.dim = EMBD_DIM_MAX;
    schema.combiner = EMBD_COMBINER_SUM;
    create_table(rig, &schema);
}

/* Memory is left for `n_fit` such requests at once: a further one is refused, twice. */
static void memory_is_bounded(struct rig *rig, enum method method, const struct part *part,
                              int n_fit, const char *const fragments[])
{
    const uint64_t *left = rig->shard->config.net_arg, all = *left;
    struct exchange *x[8];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i <= n_fit; i++)
            ask_send(x[i] = ask_parts(rig, method, part, 1));
        ask_read(x[n_fit]);
        check_error(x[n_fit], EMBD_BUSY, fragments);
        while (deferred_run())
            ;
        for (int i = 0; i < n_fit; i++) {
            ask_read(x[i]);
            assert_int_equal(x[i]->reader.answer_status, EMBD_OK);
        }
        for (int i = 0; i <= n_fit; i++)
            ask_free(x[i]);
        assert_int_equal(*left, all);
    }
}

/* Rows of i4 are 8 times as long when a device has made them as f32. */
static void memory_for_pulls_of_i4_is_bounded_and_given_back(void **state)
{
    enum { ROWS = 1000, FIT = 2 };
    static uint32_t offsets[ROWS + 1];
    const uint64_t all = FIT * (UINT64_C(16384000) + 64);
    uint64_t left = all;
    struct rig rig;
    (void)state;
    open_bounded(&rig, &left);
    const struct part part = {.table = embd__table_id("wide"),
                              .dtype = EMBD_DTYPE_I4,
                              .n_rows = ROWS,
                              .keys = keys,
                              .offsets = offsets};
    const char *const fragments[] = {"rows take 16384063 bytes as f32", "frame_memory", NULL};
    memory_is_bounded(&rig, METHOD_PULL, &part, FIT, fragments);
    rig_close(&rig);
}

/* Gradients of i4 are 8 times as long when a shard has them as f32. */
static void memory_for_gradients_of_i4_is_bounded_and_given_back(void **state)
{
    enum { ROWS = 4000, ROW_BYTES = EMBD_DIM_MAX / 2 + 4, FIT = 4 };
    static const uint32_t offsets[ROWS + 1];
    static const uint8_t zeros[ROWS * ROW_BYTES];
    const uint64_t all = FIT * UINT64_C(65536000) + 1;
    uint64_t left = all;
    struct rig rig;
    (void)state;
    open_bounded(&rig, &left);
    const struct part part = {.table = embd__table_id("wide"),
                              .dtype = EMBD_DTYPE_I4,
                              .n_rows = ROWS,
                              .keys = keys,
                              .offsets = offsets,
                              .grads = zeros,
                              .grads_bytes = sizeof zeros};
    const char *const fragments[] = {"65536000 bytes as f32", "frame_memory", "try again", NULL};
    memory_is_bounded(&rig, METHOD_PUSH, &part, FIT, fragments);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_table_is_pulled_from_whatever_pushes_it_refuses),
        cmocka_unit_test(a_part_beside_others_finds_the_room_that_it_finds_alone),
        cmocka_unit_test(a_pull_that_one_table_refuses_changes_none),
        cmocka_unit_test(parts_of_a_pull_for_one_table_are_one_request_to_it),
        cmocka_unit_test(a_push_behind_others_finds_the_room_that_these_leave),
        cmocka_unit_test(a_push_of_two_tables_keeps_the_room_that_it_found),
        cmocka_unit_test(a_push_of_two_tables_is_made_in_both_though_its_connection_goes),
        cmocka_unit_test(memory_for_pulls_of_i4_is_bounded_and_given_back),
        cmocka_unit_test(memory_for_gradients_of_i4_is_bounded_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
