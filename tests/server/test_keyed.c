/* test_keyed.c - rows by key: what is put is what is got, state and all; a get changes nothing; a
 * wrong put or get names its fault and changes nothing; a put is journaled, and shows in no answer
 * that is on its way. */
#include "tests/server/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/keyed.h"
#include "proto/route.h"
#include "proto/schema.h"

enum { N = 4, DIM = 3, FLOATS = DIM + 2 }; /* adagrad's, and the step of the last push */

struct world {
    struct rig rig;
    struct image plain, slotted;
    char dir[64];
    uint64_t keys[N];
    uint16_t slots[N];
    float rows[N * DIM], states[N * FLOATS];
};

static const uint64_t sizes[2] = {10, 20};

static embd_schema schema_of(const char *name)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = DIM;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    schema.on_full = EMBD_ON_FULL_EVICT_LRU;
    schema.capacity = 6;
    if (strcmp(name, "slotted") == 0) {
        schema.slots = 2;
        schema.slot_sizes = sizes;
        schema.partition = EMBD_PARTITION_SLOT;
        schema.capacity = 0;
        schema.on_full = EMBD_ON_FULL_GROW;
        schema.durability = EMBD_DURABILITY_DURABLE;
    }
    return schema;
}

static void reset(struct world *w)
{
    static const uint64_t keys[N] = {1, 12, 3, 25};
    static const uint16_t slots[N] = {0, 1, 0, 1};
    memcpy(w->keys, keys, sizeof keys);
    memcpy(w->slots, slots, sizeof slots);
    for (uint32_t i = 0; i < N * DIM; i++)
        w->rows[i] = (float)i / 8;
    for (uint32_t i = 0; i < N * FLOATS; i++)
        w->states[i] = i % FLOATS < DIM ? (float)i / 16 : i % FLOATS == DIM;
}

static void push_all(struct world *w, const char *table)
{
    struct part part = {.table = embd__table_id(table),
                        .n_keys = N,
                        .n_rows = N,
                        .keys = w->keys,
                        .slots = strcmp(table, "slotted") == 0 ? w->slots : NULL,
                        .grads = w->rows,
                        .grads_bytes = sizeof w->rows};
    push(&w->rig, &part, NULL);
}

static int setup(void **state)
{
    static struct world w;
    embd_schema plain = schema_of("plain"), slotted = schema_of("slotted");
    scratch_new(w.dir);
    rig_open(&w.rig, &store_host, 0, 1, w.dir);
    reset(&w);
    create_table(&w.rig, &plain);
    create_table(&w.rig, &slotted);
    push_all(&w, "plain");
    push_all(&w, "slotted");
    image_take(&w.rig, "plain", &w.plain);
    image_take(&w.rig, "slotted", &w.slotted);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    image_fini(&w->plain);
    image_fini(&w->slotted);
    rig_close(&w->rig);
    scratch_remove(w->dir);
    return 0;
}

static void nothing_has_changed(struct world *w)
{
    image_check(&w->rig, "plain", &w->plain);
    image_check(&w->rig, "slotted", &w->slotted);
}

static struct exchange *ask_keyed(struct world *w, enum method method, const char *table,
                                  uint32_t n, bool has_states)
{
    struct keyed_fields fields = {.n_keys = n, .has_states = has_states};
    snprintf(fields.table, sizeof fields.table, "%s", table);
    struct exchange *x = ask(&w->rig, &w->rig.data, method);
    embd__keyed_fields_write(&x->out, &fields);
    return x;
}

static struct exchange *ask_put(struct world *w, const char *table, uint32_t n, bool has_states)
{
    const embd_schema schema = schema_of(table);
    const struct row_block block = {.n_rows = n,
                                    .keys = w->keys,
                                    .slots = w->slots,
                                    .rows = w->rows,
                                    .states = has_states ? w->states : NULL};
    struct exchange *x = ask_keyed(w, METHOD_PUT, table, n, has_states);
    embd__put_bins_write(&x->out, &schema, &block);
    return x;
}

static struct exchange *ask_get(struct world *w, const char *table, uint32_t n, bool wants_states)
{
    const embd_schema schema = schema_of(table);
    const struct row_block block = {.n_rows = n, .keys = w->keys, .slots = w->slots};
    struct exchange *x = ask_keyed(w, METHOD_GET, table, n, wants_states);
    embd__get_bins_write(&x->out, &schema, &block);
    return x;
}

static uint64_t put_ok(struct world *w, const char *table, uint32_t n, bool has_states)
{
    uint64_t n_inserted;
    struct exchange *x = ask_put(w, table, n, has_states);
    ask_ok(x);
    assert_int_equal(embd__put_answer_read(&x->reader, &n_inserted), EMBD_OK);
    ask_free(x);
    return n_inserted;
}

/* ---- right ones ---- */

static void what_is_put_is_got_with_its_state(void **state)
{
    struct world *w = *state;
    struct get_answer answer;
    w->keys[0] = 77; /* it has no row yet */
    assert_int_equal(put_ok(w, "plain", N, true), 1);
    struct exchange *x = ask_get(w, "plain", N, true);
    ask_ok(x);
    assert_int_equal(embd__get_answer_read(&x->reader, &answer), EMBD_OK);
    assert_int_equal(answer.n_keys, N);
    assert_int_equal(answer.dim, DIM);
    assert_int_equal(answer.n_states, FLOATS);
    assert_memory_equal(answer.rows, w->rows, sizeof w->rows);
    assert_memory_equal(answer.states, w->states, sizeof w->states);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(answer.statuses[i], EMBD_KEY_HIT);
    ask_free(x);
}

static void a_put_without_states_gives_those_of_a_new_row(void **state)
{
    struct world *w = *state;
    struct get_answer answer;
    const float first[FLOATS] = {0, 0, 0, 1, 0};
    put_ok(w, "plain", N, false);
    struct exchange *x = ask_get(w, "plain", N, true);
    ask_ok(x);
    assert_int_equal(embd__get_answer_read(&x->reader, &answer), EMBD_OK);
    assert_memory_equal(answer.rows, w->rows, sizeof w->rows);
    for (uint32_t i = 0; i < N; i++)
        assert_memory_equal(answer.states + i * FLOATS, first, sizeof first);
    ask_free(x);
}

static void a_get_makes_no_row_and_answers_zeros(void **state)
{
    struct world *w = *state;
    struct get_answer answer;
    const float zeros[DIM] = {0};
    w->keys[2] = 1000;
    struct exchange *x = ask_get(w, "plain", N, false);
    ask_ok(x);
    assert_int_equal(embd__get_answer_read(&x->reader, &answer), EMBD_OK);
    assert_int_equal(answer.statuses[1], EMBD_KEY_HIT);
    assert_int_equal(answer.statuses[2], EMBD_KEY_MISSING);
    assert_memory_equal((const float *)answer.rows + 2 * DIM, zeros, sizeof zeros);
    assert_int_equal(answer.n_states, 0);
    ask_free(x);
    nothing_has_changed(w);
}

static void a_put_is_in_the_journal(void **state)
{
    struct world *w = *state;
    struct image put;
    assert_int_equal(put_ok(w, "slotted", N, false), 0);
    w->keys[1] = 13;
    assert_int_equal(put_ok(w, "slotted", N, true), 1);
    image_take(&w->rig, "slotted", &put);
    rig_close(&w->rig);
    rig_open(&w->rig, &store_host, 0, 1, w->dir);
    image_check(&w->rig, "slotted", &put);
    image_fini(&put);
}

static void an_answer_on_its_way_shows_rows_as_they_were(void **state)
{
    struct world *w = *state;
    float before[N * DIM];
    struct part part = {
        .table = embd__table_id("plain"), .n_keys = N, .n_rows = N, .keys = w->keys};
    struct part_answer answer;
    pull(&w->rig, &part, before, NULL);
    struct exchange *x = ask_parts(&w->rig, METHOD_PULL, &part, 1);
    ask_send(x);
    put_ok(w, "plain", N, false);
    ask_read(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    assert_memory_equal(answer.values, before, sizeof before);
    ask_free(x);
}

/* ---- numbered ones ---- */

static void begin_stream(struct world *w, bool is_slotted)
{
    const struct push_number stream = {.high = 3, .low = 4, .stream = is_slotted};
    assert_true(open_stream(&w->rig, &stream, true));
}

static struct exchange *ask_put_to_step(struct world *w, const char *table, uint64_t sequence,
                                        uint64_t step)
{
    const embd_schema schema = schema_of(table);
    const struct row_block block = {
        .n_rows = N, .keys = w->keys, .slots = w->slots, .rows = w->rows};
    struct keyed_fields fields = {
        .n_keys = N,
        .number = {
            .high = 3, .low = 4, .stream = strcmp(table, "slotted") == 0, .sequence = sequence}};
    fields.step = step;
    snprintf(fields.table, sizeof fields.table, "%s", table);
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_PUT);
    embd__keyed_fields_write(&x->out, &fields);
    embd__put_bins_write(&x->out, &schema, &block);
    return x;
}

static struct exchange *ask_put_numbered(struct world *w, const char *table, uint64_t sequence)
{
    return ask_put_to_step(w, table, sequence, 0);
}

static struct exchange *answered(struct exchange *x)
{
    ask_ok(x);
    return x;
}

static void put_numbered(struct world *w, const char *table, uint64_t sequence)
{
    struct exchange *x = ask_put_numbered(w, table, sequence);
    ask_ok(x);
    ask_free(x);
}

/* A put that was applied before. */
static void changes_nothing(struct world *w, const char *table, uint64_t sequence)
{
    struct image before;
    image_take(&w->rig, table, &before);
    put_numbered(w, table, sequence);
    image_check(&w->rig, table, &before);
    image_fini(&before);
}

static void a_put_with_a_number_is_applied_once(void **state)
{
    struct world *w = *state;
    for (int is_slotted = 0; is_slotted < 2; is_slotted++) {
        const char *table = is_slotted ? "slotted" : "plain";
        reset(w);
        ask_error(ask_put_numbered(w, table, 1), EMBD_FORGOTTEN, NULL);
        begin_stream(w, is_slotted);
        ask_error(ask_put_numbered(w, table, 2), EMBD_GAP, NULL);
        put_numbered(w, table, 1);
        push_all(w, table);
        changes_nothing(w, table, 1);
        put_numbered(w, table, 2);
        changes_nothing(w, table, 1);
        changes_nothing(w, table, 2);
    }
}

/* Its answer was lost; meanwhile others pushed, and the table's step is beyond that of the put. */
static void a_put_of_a_step_is_repeated_behind_pushes(void **state)
{
    struct world *w = *state;
    for (int is_slotted = 0; is_slotted < 2; is_slotted++) {
        const char *table = is_slotted ? "slotted" : "plain";
        struct image before;
        begin_stream(w, is_slotted);
        ask_free(answered(ask_put_to_step(w, table, 1, 5)));
        push_all(w, table);
        image_take(&w->rig, table, &before);
        ask_free(answered(ask_put_to_step(w, table, 1, 5)));
        ask_error(ask_put_to_step(w, table, 2, 5), EMBD_INVALID, "put step", NULL);
        image_check(&w->rig, table, &before);
        image_fini(&before);
    }
}

static void a_refused_put_uses_no_number_up(void **state)
{
    struct world *w = *state;
    begin_stream(w, false);
    put_numbered(w, "plain", 1);
    for (uint32_t i = 0; i < N; i++)
        w->keys[i] = 200 + i;
    ask_error(ask_put_numbered(w, "plain", 2), EMBD_FULL, "plain", NULL);
    reset(w);
    put_numbered(w, "plain", 2);
}

static void a_journal_knows_numbers_of_puts(void **state)
{
    struct world *w = *state;
    begin_stream(w, true);
    put_numbered(w, "slotted", 1);
    push_all(w, "slotted");
    rig_close(&w->rig);
    rig_open(&w->rig, &store_host, 0, 1, w->dir);
    changes_nothing(w, "slotted", 1);
    ask_error(ask_put_numbered(w, "slotted", 3), EMBD_GAP, NULL);
    put_numbered(w, "slotted", 2);
}

/* ---- which keys there are ---- */

static struct exchange *ask_keys(struct world *w, const char *table, uint64_t cursor, uint64_t scan)
{
    struct list_fields fields = {.cursor = cursor, .scan = scan, .n_most = 3};
    snprintf(fields.table, sizeof fields.table, "%s", table);
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_KEYS);
    embd__list_fields_write(&x->out, &fields);
    return x;
}

/* One part of the list; what it adds to. */
static void list_part(struct world *w, const char *table, struct list_answer *answer, bool seen[32],
                      uint16_t slots[32])
{
    struct exchange *x = ask_keys(w, table, answer->next, answer->scan);
    ask_ok(x);
    assert_int_equal(embd__list_answer_read(&x->reader, slots != NULL, answer), EMBD_OK);
    assert_true(answer->n_keys <= 3);
    for (uint32_t i = 0; i < answer->n_keys; i++) {
        assert_true(answer->keys[i] < 32 && !seen[answer->keys[i]]);
        seen[answer->keys[i]] = true;
        if (slots != NULL)
            slots[answer->keys[i]] = answer->slots[i];
    }
    ask_free(x);
}

static void all_keys_are_listed_part_by_part(void **state)
{
    struct world *w = *state;
    for (int has_slots = 0; has_slots < 2; has_slots++) {
        struct list_answer answer = {.next = 0};
        bool seen[32] = {false};
        uint16_t slots[32];
        while (!answer.is_done)
            list_part(w, has_slots ? "slotted" : "plain", &answer, seen, has_slots ? slots : NULL);
        for (uint64_t key = 0; key < 32; key++) {
            bool has_row = key == 1 || key == 3 || key == 12 || key == 25;
            assert_int_equal(seen[key], has_row);
            if (has_row && has_slots)
                assert_int_equal(slots[key], key >= 10);
        }
    }
    nothing_has_changed(w);
}

/* A place in a table is none in the one that took its place. */
static void a_cursor_of_another_table_is_named(void **state)
{
    struct world *w = *state;
    struct list_answer answer = {.next = 0};
    bool seen[32] = {false};
    list_part(w, "plain", &answer, seen, NULL);
    ask_error(ask_keys(w, "plain", 1, answer.scan + 1), EMBD_INVALID, "keys scan", "begin again",
              NULL);
    ask_error(ask_keys(w, "slotted", 1, answer.scan), EMBD_INVALID, "keys scan", "slotted", NULL);
    ask_error(ask_keys(w, "nowhere", 0, 0), EMBD_UNKNOWN_TABLE, "nowhere", NULL);
    for (uint64_t cursor = 1; cursor != 0; cursor *= 2) {
        struct exchange *x = ask_keys(w, "plain", cursor, answer.scan);
        ask_ok(x);
        ask_free(x);
    }
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_KEYS);
    embd__msg_map(&x->out, 2);
    embd__msg_field_str(&x->out, "table", "plain");
    embd__msg_field_uint(&x->out, "keys", LIST_KEYS_MAX + 1);
    ask_error(x, EMBD_INVALID, "keys", "131072", NULL);
    nothing_has_changed(w);
}

/* ---- wrong ones ---- */

static void numbers_that_are_none_are_named(void **state)
{
    struct world *w = *state;
    w->rows[4] = NAN;
    ask_error(ask_put(w, "plain", N, false), EMBD_NOT_FINITE, "put rows", "12", "column 1", NULL);
    reset(w);
    w->states[FLOATS + 2] = INFINITY;
    ask_error(ask_put(w, "plain", N, true), EMBD_NOT_FINITE, "put states", "12", "column 2", NULL);
    reset(w);
    w->states[DIM] = 0.5f;
    ask_error(ask_put(w, "plain", N, true), EMBD_INVALID, "states[0][3]", "whole", NULL);
    w->states[DIM] = 2; /* the table has made one step */
    ask_error(ask_put(w, "plain", N, true), EMBD_INVALID, "states[0]", "2", "limit is 1", NULL);
    nothing_has_changed(w);
}

static void keys_and_slots_that_do_not_fit_are_named(void **state)
{
    struct world *w = *state;
    w->slots[2] = 2;
    ask_error(ask_put(w, "slotted", N, true), EMBD_INVALID, "put slots[2]", "2", NULL);
    ask_error(ask_get(w, "slotted", N, true), EMBD_INVALID, "get slots[2]", "2", NULL);
    reset(w);
    w->keys[1] = 9;
    ask_error(ask_put(w, "slotted", N, true), EMBD_INVALID, "put keys[1]", "9", "10", NULL);
    ask_error(ask_get(w, "slotted", N, true), EMBD_INVALID, "get keys[1]", "9", "10", NULL);
    ask_error(ask_put(w, "nowhere", N, true), EMBD_UNKNOWN_TABLE, "nowhere", NULL);
    ask_error(ask_get(w, "nowhere", N, true), EMBD_UNKNOWN_TABLE, "nowhere", NULL);
    nothing_has_changed(w);
}

/* A put of `n` keys whose bins have these lengths; 0: it ends there. */
static struct exchange *ask_bins(struct world *w, enum method method, uint64_t n, bool has_states,
                                 const uint64_t bytes[4])
{
    static const uint8_t zeros[4096];
    struct exchange *x = ask(&w->rig, &w->rig.data, method);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", "plain");
    embd__msg_field_uint(&x->out, "keys", n);
    embd__msg_field_bool(&x->out, "states", has_states);
    for (int i = 0; i < 4 && bytes[i] > 0; i++)
        embd__msg_bin(&x->out, zeros, bytes[i]);
    return x;
}

static void bins_of_wrong_lengths_are_named(void **state)
{
    struct world *w = *state;
    const uint64_t keys = N * 8, rows = N * DIM * 4, states = N * FLOATS * 4;
    const struct {
        enum method method;
        uint64_t n, bytes[4];
        bool has_states;
        const char *what;
    } wrong[] = {
        {METHOD_PUT, N, {keys - 1, rows}, false, "keys"},
        {METHOD_PUT, N, {keys, rows + 4}, false, "rows"},
        {METHOD_PUT, N, {keys, rows}, true, "states"},
        {METHOD_PUT, N, {keys, rows, states - 4}, true, "states"},
        {METHOD_PUT, N, {keys, rows, N * DIM * 4}, true, "states"}, /* without the step */
        {METHOD_PUT, N, {keys, rows, states}, false, "bins"},
        {METHOD_PUT, N + 1, {keys, rows}, false, "keys"},
        {METHOD_GET, N, {keys - 8}, true, "keys"},
        {METHOD_GET, N, {keys, rows}, true, "bins"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ask_error(ask_bins(w, wrong[i].method, wrong[i].n, wrong[i].has_states, wrong[i].bytes),
                  EMBD_MALFORMED, wrong[i].what, NULL);
    const uint64_t none[4] = {0};
    ask_error(ask_bins(w, METHOD_GET, LIMIT_KEYS + 1ull, false, none), EMBD_INVALID, "keys",
              "4194304", NULL);
    nothing_has_changed(w);
}

static void a_get_that_is_too_large_is_refused(void **state)
{
    struct world *w = *state;
    uint32_t n = (16u << 20) / (DIM * 4 + FLOATS * 4 + 1) + 1;
    uint64_t *keys = calloc(n, sizeof *keys);
    struct exchange *x = ask_keyed(w, METHOD_GET, "plain", n, true);
    embd__msg_bin(&x->out, keys, n * sizeof *keys);
    ask_error(x, EMBD_TOO_LARGE, "16777216", "fewer", NULL);
    free(keys);
    nothing_has_changed(w);
}

/* Of a table that evicts too: nothing goes for a put. */
static void a_put_without_room_changes_nothing(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < N; i++)
        w->keys[i] = i == 0 ? 1 : 100 + i; /* three new ones, room for two */
    ask_error(ask_put(w, "plain", N, false), EMBD_FULL, "plain", "capacity 6", NULL);
    nothing_has_changed(w);
    w->keys[1] = w->keys[2]; /* a key twice: two new ones, and the last of them counts */
    assert_int_equal(put_ok(w, "plain", N, false), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_put_is_got_with_its_state),
        TEST(a_put_without_states_gives_those_of_a_new_row),
        TEST(a_get_makes_no_row_and_answers_zeros),
        TEST(a_put_is_in_the_journal),
        TEST(an_answer_on_its_way_shows_rows_as_they_were),
        TEST(a_put_with_a_number_is_applied_once),
        TEST(a_put_of_a_step_is_repeated_behind_pushes),
        TEST(a_refused_put_uses_no_number_up),
        TEST(a_journal_knows_numbers_of_puts),
        TEST(all_keys_are_listed_part_by_part),
        TEST(a_cursor_of_another_table_is_named),
        TEST(numbers_that_are_none_are_named),
        TEST(keys_and_slots_that_do_not_fit_are_named),
        TEST(bins_of_wrong_lengths_are_named),
        TEST(a_get_that_is_too_large_is_refused),
        TEST(a_put_without_room_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
