/* test_requests.c - everything that is neither pull nor push nor copying: hello, ping, cluster,
 * tables, stats, drain, and what is no request at all. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <string.h>

#include "proto/route.h"
#include "proto/schema.h"
#include "server/service/answer.h"

static embd_schema schema_of(const char *name, uint32_t dim)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = dim;
    return schema;
}

static struct exchange *ask_empty(struct rig *rig, struct shard_session *session,
                                  enum method method)
{
    struct exchange *x = ask(rig, session, method);
    embd__msg_map(&x->out, 0);
    return x;
}

static struct exchange *ask_create(struct rig *rig, const embd_schema *schema)
{
    struct exchange *x = ask(rig, &rig->data, METHOD_TABLE_CREATE);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, schema);
    return x;
}

static struct exchange *ask_name(struct rig *rig, enum method method, const char *name)
{
    struct exchange *x = ask(rig, &rig->data, method);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", name);
    return x;
}

static void hello_tells_shard_and_limits(void **state)
{
    struct rig *rig = *state;
    struct fields f;
    char server[64];
    struct exchange *x = ask(rig, &rig->data, METHOD_HELLO);
    embd__msg_map(&x->out, 2);
    embd__msg_field_uint(&x->out, "protocol", 1);
    embd__msg_field_str(&x->out, "client", "test");
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "hello");
    embd__field_str(&f, "server", server, sizeof server, NULL);
    assert_string_equal(server, "embd " EMBD_VERSION);
    assert_int_equal(embd__field_uint(&f, "shard", 0, 9, FIELD_REQUIRED), 0);
    assert_int_equal(embd__field_uint(&f, "shards", 0, 9, FIELD_REQUIRED), 2);
    assert_int_equal(embd__field_uint(&f, "frame_bytes", 0, UINT64_MAX - 1, FIELD_REQUIRED),
                     LIMIT_FRAME_BYTES);
    assert_int_equal(embd__field_uint(&f, "push_bytes", 0, UINT64_MAX - 1, FIELD_REQUIRED),
                     LIMIT_FRAME_BYTES); /* of a shard that is told no other */
    assert_int_equal(embd__field_uint(&f, "keys", 0, UINT64_MAX - 1, FIELD_REQUIRED), LIMIT_KEYS);
    ask_free(x);
}

/* More keys than a test should send. */
static void statuses_that_no_answer_can_hold_are_refused(void **state)
{
    struct op_part parts[17] = {{.n_joined = 0}};
    struct op op = {.parts = parts, .n_parts = 17};
    struct embd__error e = {.status = EMBD_OK};
    (void)state;
    for (uint32_t i = 0; i < 17; i++)
        parts[i].in = (struct part){.n_keys = LIMIT_KEYS, .want_status = i < 15};
    assert_int_equal(answer_check_statuses(&op, &e), EMBD_OK);
    parts[16].in.want_status = true; /* and its head has no room */
    assert_int_equal(answer_check_statuses(&op, &e), EMBD_TOO_LARGE);
    assert_non_null(strstr(e.text, "67108864"));
}

static void hello_of_another_protocol_is_refused(void **state)
{
    struct rig *rig = *state;
    struct exchange *x = ask(rig, &rig->data, METHOD_HELLO);
    embd__msg_map(&x->out, 1);
    embd__msg_field_uint(&x->out, "protocol", 9);
    ask_error(x, EMBD_UNSUPPORTED, "protocol", "9", "1", NULL);
}

static void cluster_lists_all_shards(void **state)
{
    struct rig *rig = *state;
    struct fields f, one;
    const msgpack_object *items;
    char address[64];
    struct exchange *x = ask_empty(rig, &rig->data, METHOD_CLUSTER);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "cluster");
    assert_int_equal(embd__field_list(&f, "shards", 9, &items), 2);
    embd__list_map(&x->reader, &items[1], &one, "shard");
    embd__field_str(&one, "address", address, sizeof address, NULL);
    assert_string_equal(address, "127.0.0.1:7701");
    embd__field_str(&one, "admin", address, sizeof address, NULL);
    assert_string_equal(address, "/run/embd/1.sock");
    assert_int_equal(embd__field_uint(&f, "version", 0, 99, FIELD_REQUIRED), 7);
    ask_free(x);
}

static void creating_twice_is_no_error(void **state)
{
    struct rig *rig = *state;
    embd_schema schema = schema_of("items", 8);
    for (int i = 0; i < 2; i++) {
        struct fields f;
        struct exchange *x = ask_create(rig, &schema);
        ask_ok(x);
        embd__read_fields(&f, &x->reader, "table_create");
        assert_int_equal(embd__field_uint(&f, "id", 1, UINT32_MAX, FIELD_REQUIRED),
                         embd__table_id("items"));
        assert_int_equal(embd__field_bool(&f, "created", false), i == 0);
        ask_free(x);
    }
}

static void another_definition_of_a_table_is_refused_by_field(void **state)
{
    struct rig *rig = *state;
    embd_schema schema = schema_of("items", 8);
    create_table(rig, &schema);
    schema.dim = 16;
    ask_error(ask_create(rig, &schema), EMBD_EXISTS, "'items'", "dim", NULL);
    schema.dim = 8;
    schema.combiner = EMBD_COMBINER_MEAN;
    ask_error(ask_create(rig, &schema), EMBD_EXISTS, "'items'", "combiner", NULL);
    assert_int_equal(figure(rig, NULL, "tables"), 1);
}

static void a_bad_schema_is_refused_by_field_value_and_limit(void **state)
{
    struct rig *rig = *state;
    embd_schema schema = schema_of("items", 5000);
    ask_error(ask_create(rig, &schema), EMBD_INVALID, "dim", "5000", "4096", NULL);
    schema = schema_of("Items", 8);
    ask_error(ask_create(rig, &schema), EMBD_INVALID, "name", "Items", NULL);
    schema = schema_of("items", 8);
    schema.on_full = EMBD_ON_FULL_EVICT_LRU;
    ask_error(ask_create(rig, &schema), EMBD_INVALID, "capacity", "evict_lru", NULL);
    struct exchange *x = ask_empty(rig, &rig->data, METHOD_TABLE_CREATE);
    ask_error(x, EMBD_INVALID, "name", NULL);
    assert_int_equal(figure(rig, NULL, "tables"), 0);
}

static uint32_t described_id(struct rig *rig, const char *name)
{
    struct exchange *x = ask_name(rig, METHOD_TABLE_DESCRIBE, name);
    struct fields f;
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "table_describe");
    uint32_t id = (uint32_t)embd__field_uint(&f, "id", 1, UINT32_MAX, FIELD_REQUIRED);
    ask_free(x);
    return id;
}

static void drop(struct rig *rig, const char *name)
{
    struct exchange *x = ask_name(rig, METHOD_TABLE_DROP, name);
    ask_ok(x);
    ask_free(x);
}

/* Nobody can keep a name from existing by taking its id. */
static void tables_whose_names_have_one_id_get_two(void **state)
{
    struct rig *rig = *state;
    static const char *const names[] = {"good_53", "evil_1720fa9"};
    const uint32_t id = embd__table_id(names[0]);
    assert_int_equal(embd__table_id(names[1]), id);
    for (int first = 0; first < 2; first++) {
        const char *a = names[first], *b = names[1 - first];
        embd_schema schema = schema_of(a, 4);
        create_table(rig, &schema);
        schema = schema_of(b, 4);
        create_table(rig, &schema);
        create_table(rig, &schema); /* again: it stays */
        assert_int_equal(described_id(rig, a), id);
        uint32_t other = described_id(rig, b);
        assert_int_equal(other, embd__table_id_at(b, 1));
        assert_int_not_equal(other, id);
        drop(rig, a);
        assert_int_equal(described_id(rig, b), other);
        schema = schema_of(a, 4);
        create_table(rig, &schema);
        assert_int_equal(described_id(rig, a), id);
        assert_int_equal(figure(rig, NULL, "tables"), 2);
        drop(rig, a);
        drop(rig, b);
    }
}

static void a_table_beyond_the_limit_is_refused(void **state)
{
    struct rig *rig = *state;
    char name[32];
    for (uint32_t i = 0; i < LIMIT_TABLES; i++) {
        snprintf(name, sizeof name, "table%u", i);
        embd_schema schema = schema_of(name, 1);
        create_table(rig, &schema);
    }
    embd_schema schema = schema_of("one-more", 1);
    ask_error(ask_create(rig, &schema), EMBD_TOO_LARGE, "one-more", "4097", "4096", NULL);
    struct exchange *x = ask_empty(rig, &rig->data, METHOD_TABLES);
    ask_ok(x);
    struct fields f;
    const msgpack_object *items;
    embd__read_fields(&f, &x->reader, "tables");
    assert_int_equal(embd__field_list(&f, "tables", LIMIT_TABLES, &items), LIMIT_TABLES);
    ask_free(x);
    x = ask_empty(rig, &rig->admin, METHOD_STATS);
    ask_ok(x);
    ask_free(x);
}

static void tables_are_listed_by_name(void **state)
{
    struct rig *rig = *state;
    static const char *const names[] = {"b", "c", "a"};
    static const char *const sorted[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        embd_schema schema = schema_of(names[i], 2);
        create_table(rig, &schema);
    }
    struct exchange *x = ask_empty(rig, &rig->data, METHOD_TABLES);
    ask_ok(x);
    struct fields f, one;
    const msgpack_object *items;
    embd__read_fields(&f, &x->reader, "tables");
    assert_int_equal(embd__field_list(&f, "tables", 9, &items), 3);
    for (int i = 0; i < 3; i++) {
        char name[EMBD_NAME_MAX + 1];
        embd__list_map(&x->reader, &items[i], &one, "table");
        embd__field_str(&one, "name", name, sizeof name, NULL);
        assert_string_equal(name, sorted[i]);
        assert_int_equal(embd__field_uint(&one, "id", 1, UINT32_MAX, FIELD_REQUIRED),
                         embd__table_id(name));
    }
    ask_free(x);
}

/* The description is taken after the table was dropped: it owes nothing to it. */
static void describe_gives_the_schema_back(void **state)
{
    struct rig *rig = *state;
    const uint64_t sizes[3] = {10, 20, 30};
    embd_schema schema = schema_of("slotted", 4);
    schema.slots = 3;
    schema.slot_sizes = sizes;
    schema.partition = EMBD_PARTITION_SLOT;
    schema.combiner = EMBD_COMBINER_SQRTN;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.125f);
    create_table(rig, &schema);
    struct exchange *x = ask_name(rig, METHOD_TABLE_DESCRIBE, "slotted");
    ask_send(x);
    struct exchange *drop = ask_name(rig, METHOD_TABLE_DROP, "slotted");
    ask_ok(drop);
    ask_free(drop);

    struct fields f, map;
    struct table_schema found;
    ask_read(x);
    embd__read_fields(&f, &x->reader, "table_describe");
    assert_int_equal(embd__field_uint(&f, "rows", 0, 9, FIELD_REQUIRED), 0);
    embd__field_map(&f, "schema", &map, "schema");
    assert_int_equal(embd__schema_read(&map, &found), EMBD_OK);
    assert_null(embd__schema_difference(&schema, &found.s));
    embd__schema_fini(&found);
    ask_free(x);
    ask_error(ask_name(rig, METHOD_TABLE_DESCRIBE, "slotted"), EMBD_UNKNOWN_TABLE, "slotted", NULL);
    ask_error(ask_name(rig, METHOD_TABLE_DROP, "slotted"), EMBD_UNKNOWN_TABLE, "slotted", NULL);
}

static void unknown_methods_and_fields_are_named(void **state)
{
    struct rig *rig = *state;
    static const char bytes[] = "\x94\x00\x05\xa5mputs\x91\x80";
    ask_error(ask_bytes(rig, &rig->data, bytes, sizeof bytes - 1), EMBD_UNKNOWN_METHOD, "mputs",
              NULL);
    ask_error(ask_empty(rig, &rig->data, METHOD_DRAIN), EMBD_UNKNOWN_METHOD, "drain", "data", NULL);
    ask_error(ask_empty(rig, &rig->admin, METHOD_PULL), EMBD_UNKNOWN_METHOD, "pull", "admin", NULL);
    struct exchange *x = ask(rig, &rig->data, METHOD_PING);
    embd__msg_map(&x->out, 1);
    embd__msg_field_uint(&x->out, "speed", 3);
    ask_error(x, EMBD_INVALID, "speed", NULL);
    x = ask(rig, &rig->data, METHOD_PING);
    embd__msg_map(&x->out, 0);
    embd__msg_bin(&x->out, "12345678", 8);
    ask_error(x, EMBD_MALFORMED, "1 bins", NULL);
    assert_int_equal(figure(rig, NULL, "unknown_methods"), 3);
    assert_int_equal(figure(rig, NULL, "errors"), 5);
}

static void notifications_have_no_effect_and_no_answer(void **state)
{
    struct rig *rig = *state;
    static const char unknown[] = "\x93\x02\xa3hey\x90";
    static const char drain[] = "\x93\x02\xa5"
                                "drain\x90";
    struct exchange *x = ask_bytes(rig, &rig->data, unknown, sizeof unknown - 1);
    assert_true(x->is_answered);
    assert_false(x->request.has_answer);
    ask_free(x);
    x = ask_bytes(rig, &rig->admin, drain, sizeof drain - 1);
    assert_true(x->is_answered);
    assert_false(x->request.has_answer);
    ask_free(x);
    assert_int_equal(rig->n_drains, 0);
    assert_int_equal(figure(rig, NULL, "notifications_ignored"), 2);
}

static void drain_is_passed_on_and_then_work_is_refused(void **state)
{
    struct rig *rig = *state;
    struct exchange *x = ask_empty(rig, &rig->admin, METHOD_DRAIN);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(rig->n_drains, 1);
    shard_drain(rig->shard);
    embd_schema schema = schema_of("late", 4);
    ask_error(ask_create(rig, &schema), EMBD_DRAINING, "table_create", NULL);
    ask_error(ask_empty(rig, &rig->data, METHOD_PULL), EMBD_DRAINING, "pull", NULL);
    x = ask_empty(rig, &rig->data, METHOD_PING);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(figure(rig, NULL, "draining"), 1);
}

static void stats_count_what_happened(void **state)
{
    struct rig *rig = *state;
    embd_schema schema = schema_of("items", 2);
    schema.combiner = EMBD_COMBINER_CONCAT;
    schema.partition = EMBD_PARTITION_MODULO;
    create_table(rig, &schema);
    const uint64_t keys[3] = {2, 4, 4};
    const float grads[6] = {0};
    float values[6];
    uint8_t statuses[3];
    struct part part = {.table = embd__table_id("items"),
                        .n_keys = 3,
                        .n_rows = 3,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads};
    push(rig, &part, NULL);
    part.want_status = true;
    pull(rig, &part, values, statuses);
    assert_int_equal(figure(rig, NULL, "keys_pushed"), 3);
    assert_int_equal(figure(rig, NULL, "keys_inserted"), 2);
    assert_int_equal(figure(rig, NULL, "keys_pulled"), 3);
    assert_int_equal(figure(rig, NULL, "keys_hit"), 3);
    assert_int_equal(figure(rig, NULL, "requests_push"), 1);
    assert_int_equal(figure(rig, "items", "rows"), 2);
    assert_int_equal(figure(rig, "items", "steps"), 1);
    uint64_t index_bytes = figure(rig, "items", "index_bytes");
    assert_int_equal(figure(rig, "items", "index_bytes_per_key"), (index_bytes + 1) / 2);
}

static int setup(void **state)
{
    static struct rig rig;
    rig_open(&rig, &store_host, 0, 2, NULL);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    rig_close(*state);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hello_tells_shard_and_limits),
        TEST(statuses_that_no_answer_can_hold_are_refused),
        TEST(hello_of_another_protocol_is_refused),
        TEST(cluster_lists_all_shards),
        TEST(creating_twice_is_no_error),
        TEST(another_definition_of_a_table_is_refused_by_field),
        TEST(a_bad_schema_is_refused_by_field_value_and_limit),
        TEST(tables_whose_names_have_one_id_get_two),
        TEST(a_table_beyond_the_limit_is_refused),
        TEST(tables_are_listed_by_name),
        TEST(describe_gives_the_schema_back),
        TEST(unknown_methods_and_fields_are_named),
        TEST(notifications_have_no_effect_and_no_answer),
        TEST(drain_is_passed_on_and_then_work_is_refused),
        TEST(stats_count_what_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
