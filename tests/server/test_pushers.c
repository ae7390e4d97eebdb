/* test_pushers.c - a push of a pusher is applied once, however often it comes: in a shard's life,
 * and after its start on the journal; a number that is left out, and a stream that is not known,
 * are told. */
#include "tests/server/rig.h"

#include <stdlib.h>
#include <string.h>

#include "proto/route.h"
#include "proto/schema.h"
#include "server/engine/pushers.h"
#include "server/engine/sources.h"

static const uint64_t keys[2] = {1, 2};
static const float grads[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static struct part one_part(const char *table, uint32_t n_keys)
{
    return (struct part){.table = embd__table_id(table),
                         .n_keys = n_keys,
                         .n_rows = n_keys,
                         .keys = keys,
                         .grads = grads,
                         .grads_bytes = n_keys * 4 * sizeof(float),
                         .dtype = EMBD_DTYPE_F32};
}

static void create(struct rig *rig, const char *name, embd_durability durability, uint64_t capacity)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, name);
    schema.dim = 4;
    schema.durability = durability;
    schema.capacity = capacity;
    schema.on_full = capacity > 0 ? EMBD_ON_FULL_ERROR : EMBD_ON_FULL_GROW;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.01f);
    create_table(rig, &schema);
}

static struct exchange *ask_push(struct rig *rig, const char *table, uint32_t n_keys,
                                 uint32_t stream, uint64_t sequence)
{
    struct part part = one_part(table, n_keys);
    struct push_extra extra = {.number = {7, 9, sequence, stream}};
    struct exchange *x = ask(rig, &rig->data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    return x;
}

static bool opened(struct rig *rig, uint32_t stream, bool is_journaled)
{
    return open_stream(rig, &(struct push_number){.high = 7, .low = 9, .stream = stream},
                       is_journaled);
}

/* Whether it had been applied before. */
static bool pushed(struct rig *rig, const char *table, uint32_t n_keys, uint32_t stream,
                   uint64_t sequence)
{
    struct push_answer answer;
    bool again;
    struct exchange *x = ask_push(rig, table, n_keys, stream, sequence);
    ask_ok(x);
    int n = embd__push_answer_read(&x->reader, &answer, 1, &again);
    assert_int_equal(n, again ? 0 : 1);
    ask_free(x);
    return again;
}

static void check_last(struct rig *rig, uint32_t stream, uint64_t journaled, uint64_t other)
{
    struct fields f;
    struct exchange *x = ask(rig, &rig->data, METHOD_WRITER);
    embd__msg_map(&x->out, 3);
    embd__msg_field_uint(&x->out, "high", 7);
    embd__msg_field_uint(&x->out, "low", 9);
    embd__msg_field_uint(&x->out, "stream", stream);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "writer");
    assert_int_equal(embd__field_uint(&f, "journaled", 0, UINT64_MAX, FIELD_REQUIRED), journaled);
    assert_int_equal(embd__field_uint(&f, "other", 0, UINT64_MAX, FIELD_REQUIRED), other);
    ask_free(x);
}

static void a_push_that_comes_again_changes_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct image image;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create(&rig, "a", EMBD_DURABILITY_SNAPSHOT, 0);
    assert_true(opened(&rig, 0, false));
    assert_true(opened(&rig, 1, false));
    assert_false(pushed(&rig, "a", 2, 0, 1));
    assert_false(pushed(&rig, "a", 2, 0, 2));
    image_take(&rig, "a", &image);
    assert_true(pushed(&rig, "a", 2, 0, 2));
    assert_true(pushed(&rig, "a", 2, 0, 1));
    image_check(&rig, "a", &image);
    assert_int_equal(figure(&rig, NULL, "pushes_again"), 2);
    assert_false(pushed(&rig, "a", 2, 1, 1)); /* another stream */
    check_last(&rig, 0, 0, 2);
    check_last(&rig, 1, 0, 1);
    assert_int_equal(figure(&rig, NULL, "push_streams"), 2);
    image_fini(&image);
    rig_close(&rig);
}

static void a_number_that_is_left_out_is_told_and_so_is_a_stream_that_is_not_known(void **state)
{
    (void)state;
    struct rig rig;
    struct image image;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create(&rig, "a", EMBD_DURABILITY_SNAPSHOT, 0);
    assert_true(opened(&rig, 0, false));
    assert_false(pushed(&rig, "a", 2, 0, 1));
    image_take(&rig, "a", &image);
    ask_error(ask_push(&rig, "a", 2, 0, 3), EMBD_GAP, "push 3", "stream 0", "last one applied is 1",
              NULL);
    ask_error(ask_push(&rig, "a", 2, 5, 2), EMBD_FORGOTTEN, "stream 5", "push 2", NULL);
    ask_error(ask_push(&rig, "a", 2, 5, 1), EMBD_FORGOTTEN, "push 1", "stream_open", NULL);
    image_check(&rig, "a", &image);
    check_last(&rig, 0, 0, 1);
    struct push_extra both = {.round = {"job", 0, 1, 0, 1000}, .number = {7, 9, 2, 0}};
    struct part part = one_part("a", 2);
    struct exchange *x = ask(&rig, &rig.data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &both);
    ask_error(x, EMBD_INVALID, "round", "writer", NULL);
    image_fini(&image);
    rig_close(&rig);
}

/* The push without keys takes the number that the other could not use. */
static void a_push_that_is_refused_uses_no_number(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "a" : "b";
        create(&rig, name, i == 0 ? EMBD_DURABILITY_SNAPSHOT : EMBD_DURABILITY_DURABLE, 1);
        assert_true(opened(&rig, 0, i == 1));
        assert_false(pushed(&rig, name, 1, 0, 1));
        ask_error(ask_push(&rig, name, 2, 0, 2), EMBD_FULL, "capacity", NULL);
        ask_error(ask_push(&rig, name, 1, 0, 3), EMBD_GAP, "is 1", NULL);
        assert_true(pushed(&rig, name, 2, 0, 1)); /* although there would be no room */
        assert_false(pushed(&rig, name, 0, 0, 2));
        assert_false(pushed(&rig, name, 1, 0, 3));
    }
    check_last(&rig, 0, 3, 3);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    check_last(&rig, 0, 3, 0);
    rig_close(&rig);
    scratch_remove(dir);
}

static void after_a_start_journaled_pushes_are_known_and_others_forgotten(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    struct image image;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create(&rig, "a", EMBD_DURABILITY_DURABLE, 0);
    create(&rig, "b", EMBD_DURABILITY_SNAPSHOT, 0);
    assert_true(opened(&rig, 0, true));
    assert_true(opened(&rig, 1, false));
    for (uint64_t n = 1; n <= 3; n++) {
        assert_false(pushed(&rig, "a", 2, 0, n));
        assert_false(pushed(&rig, "b", 2, 1, n));
    }
    image_take(&rig, "a", &image);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    check_last(&rig, 0, 3, 0);
    assert_true(pushed(&rig, "a", 2, 0, 3));
    image_check(&rig, "a", &image);
    assert_false(pushed(&rig, "a", 2, 0, 4));
    create(&rig, "b", EMBD_DURABILITY_SNAPSHOT, 0);
    ask_error(ask_push(&rig, "b", 2, 1, 4), EMBD_FORGOTTEN, "stream 1", NULL);
    image_fini(&image);
    rig_close(&rig);
    scratch_remove(dir);
}

/* Of a record alone: nobody says on the wire how far another client has come. */
static void a_request_names_no_sources(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create(&rig, "b", EMBD_DURABILITY_SNAPSHOT, 0);
    struct part part = one_part("b", 1);
    const struct push_source source = {5, 9};
    const struct push_extra extra = {.sources = &source, .n_sources = 1};
    struct exchange *x = ask(&rig, &rig.data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_error(x, EMBD_INVALID, "'sources'", NULL);
    rig_close(&rig);
}

static void clients_have_the_place_of_their_last_push_until_there_are_too_many(void **state)
{
    (void)state;
    struct sources sources = {.n = 0};
    uint32_t place;
    assert_false(sources_find(&sources, 1, &place));
    for (uint64_t client = 0; client <= SOURCES_MAX; client++)
        for (uint32_t at = 1; at <= 2; at++)
            sources_note(&sources, &(struct push_source){client, at});
    assert_int_equal(sources.n, SOURCES_MAX);
    assert_false(sources_find(&sources, 0, &place));
    assert_true(sources_find(&sources, SOURCES_MAX, &place));
    assert_int_equal(place, 2);
    sources_note(&sources, &(struct push_source){SOURCES_MAX + 1, 7});
    assert_int_equal(sources.n, 1);
    assert_false(sources_find(&sources, SOURCES_MAX, &place));
    assert_true(sources_find(&sources, SOURCES_MAX + 1, &place));
    assert_int_equal(place, 7);
    sources_note(&sources, &(struct push_source){SOURCES_MAX + 1, 5}); /* that was applied late */
    assert_true(sources_find(&sources, SOURCES_MAX + 1, &place) && place == 7);
    static const uint32_t places[] = {0x7fffffff, 0xfffffffe, 2}; /* the last is behind 2^32 - 1 */
    for (size_t i = 0; i < 3; i++)
        sources_note(&sources, &(struct push_source){SOURCES_MAX + 1, places[i]});
    assert_true(sources_find(&sources, SOURCES_MAX + 1, &place) && place == 2);
    sources_fini(&sources);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_that_comes_again_changes_nothing),
        cmocka_unit_test(a_number_that_is_left_out_is_told_and_so_is_a_stream_that_is_not_known),
        cmocka_unit_test(a_push_that_is_refused_uses_no_number),
        cmocka_unit_test(after_a_start_journaled_pushes_are_known_and_others_forgotten),
        cmocka_unit_test(a_request_names_no_sources),
        cmocka_unit_test(clients_have_the_place_of_their_last_push_until_there_are_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
