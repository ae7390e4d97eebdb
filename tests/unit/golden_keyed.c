/* golden_keyed.c - the messages of get, put and keys. As golden_messages.c has the others. */
#include "tests/unit/golden_keyed.h"

#include "proto/keyed.h"
#include "proto/schema.h"
#include "tests/unit/cmocka_all.h"

static const uint64_t keys[2] = {7, 8};
static const uint16_t slots[2] = {0, 1};
static const float rows[2][2] = {{1, 2}, {3, 4}}, found[2][2] = {{1, 2}, {0, 0}};
static const float states[2] = {0.5f, 0.25f}, found_states[2] = {0.5f, 0};
static const uint8_t statuses[2] = {EMBD_KEY_HIT, EMBD_KEY_MISSING};
static const struct keyed_fields fields = {.table = "items", .n_keys = 2, .has_states = true};
static const struct row_block block = {
    .n_rows = 2, .keys = keys, .slots = slots, .rows = rows, .states = states};

static embd_schema schema_of_items(void)
{
    embd_schema schema;
    embd_schema_init(&schema);
    schema.dim = 2;
    schema.slots = 2;
    schema.partition = EMBD_PARTITION_SLOT;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ROWWISE_ADAGRAD, 0.1f);
    return schema;
}

void build_get_request(struct msg *m)
{
    const embd_schema schema = schema_of_items();
    embd__msg_request(m, 44, METHOD_GET);
    embd__keyed_fields_write(m, &fields);
    embd__get_bins_write(m, &schema, &block);
    embd__msg_end(m);
}

static int read_fields(struct reader *r, struct keyed_fields *out)
{
    return embd__put_fields_read(r, out);
}

void read_get_request(struct reader *r)
{
    const embd_schema schema = schema_of_items();
    struct keyed_fields out;
    struct row_block got;
    if (read_fields(r, &out) == EMBD_OK)
        embd__get_bins_read(r, &schema, out.n_keys, &got);
}

static void check_fields(struct reader *r, enum method method)
{
    struct keyed_fields out;
    assert_int_equal(r->method, method);
    assert_int_equal(read_fields(r, &out), EMBD_OK);
    assert_string_equal(out.table, "items");
    assert_int_equal(out.n_keys, 2);
    assert_true(out.has_states);
}

void check_get_request(struct reader *r)
{
    const embd_schema schema = schema_of_items();
    struct row_block got;
    check_fields(r, METHOD_GET);
    assert_int_equal(embd__get_bins_read(r, &schema, 2, &got), EMBD_OK);
    assert_memory_equal(got.keys, keys, sizeof keys);
    assert_memory_equal(got.slots, slots, sizeof slots);
}

void build_get_result(struct msg *m)
{
    const struct get_answer answer = {.n_keys = 2,
                                      .dim = 2,
                                      .n_states = 1,
                                      .dtype = EMBD_DTYPE_F32,
                                      .statuses = statuses,
                                      .rows = found,
                                      .states = found_states};
    embd__msg_result(m, 44);
    embd__get_answer_write(m, &answer);
    embd__msg_end(m);
}

void read_get_result(struct reader *r)
{
    struct get_answer answer;
    embd__get_answer_read(r, &answer);
}

void check_get_result(struct reader *r)
{
    struct get_answer answer;
    assert_int_equal(embd__get_answer_read(r, &answer), EMBD_OK);
    assert_int_equal(answer.dtype, EMBD_DTYPE_F32);
    assert_int_equal(answer.dim, 2);
    assert_memory_equal(answer.statuses, statuses, sizeof statuses);
    assert_memory_equal(answer.rows, found, sizeof found);
    assert_memory_equal(answer.states, found_states, sizeof found_states);
}

void build_put_request(struct msg *m)
{
    const embd_schema schema = schema_of_items();
    embd__msg_request(m, 45, METHOD_PUT);
    embd__keyed_fields_write(m, &fields);
    embd__put_bins_write(m, &schema, &block);
    embd__msg_end(m);
}

void read_put_request(struct reader *r)
{
    const embd_schema schema = schema_of_items();
    struct keyed_fields out;
    struct row_block got;
    if (read_fields(r, &out) == EMBD_OK)
        embd__put_bins_read(r, &schema, out.n_keys, out.has_states, &got);
}

void check_put_request(struct reader *r)
{
    const embd_schema schema = schema_of_items();
    struct row_block got;
    check_fields(r, METHOD_PUT);
    assert_int_equal(embd__put_bins_read(r, &schema, 2, true, &got), EMBD_OK);
    assert_memory_equal(got.keys, keys, sizeof keys);
    assert_memory_equal(got.rows, rows, sizeof rows);
    assert_memory_equal(got.states, states, sizeof states);
}

void build_put_result(struct msg *m)
{
    embd__msg_result(m, 45);
    embd__put_answer_write(m, 1, false);
    embd__msg_end(m);
}

void read_put_result(struct reader *r)
{
    uint64_t n;
    embd__put_answer_read(r, &n);
}

void check_put_result(struct reader *r)
{
    uint64_t n;
    assert_int_equal(embd__put_answer_read(r, &n), EMBD_OK);
    assert_int_equal(n, 1);
}

/* ---- keys ---- */

static const struct list_fields part = {.table = "items",
                                        .n_most = 1000,
                                        .cursor = UINT64_C(1) << 62,
                                        .scan = UINT64_C(0x0f1e2d3c4b5a6978)};

void build_keys_request(struct msg *m)
{
    embd__msg_request(m, 46, METHOD_KEYS);
    embd__list_fields_write(m, &part);
    embd__msg_end(m);
}

void read_keys_request(struct reader *r)
{
    struct list_fields out;
    embd__list_fields_read(r, &out);
}

void check_keys_request(struct reader *r)
{
    struct list_fields out;
    assert_int_equal(r->method, METHOD_KEYS);
    assert_int_equal(embd__list_fields_read(r, &out), EMBD_OK);
    assert_string_equal(out.table, "items");
    assert_int_equal(out.n_most, 1000);
    assert_true(out.cursor == part.cursor && out.scan == part.scan);
}

void build_keys_result(struct msg *m)
{
    const struct list_answer answer = {
        .n_keys = 2, .next = UINT64_C(3) << 61, .scan = part.scan, .keys = keys, .slots = slots};
    embd__msg_result(m, 46);
    embd__list_answer_write(m, &answer);
    embd__msg_end(m);
}

void read_keys_result(struct reader *r)
{
    struct list_answer answer;
    embd__list_answer_read(r, true, &answer);
}

void check_keys_result(struct reader *r)
{
    struct list_answer answer;
    assert_int_equal(embd__list_answer_read(r, true, &answer), EMBD_OK);
    assert_int_equal(answer.n_keys, 2);
    assert_true(answer.next == UINT64_C(3) << 61 && answer.scan == part.scan && !answer.is_done);
    assert_memory_equal(answer.keys, keys, sizeof keys);
    assert_memory_equal(answer.slots, slots, sizeof slots);
}
