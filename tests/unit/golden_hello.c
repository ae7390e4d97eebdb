/* golden_hello.c - the first message of a connection and its answer. As golden_messages.c has the
 * others. */
#include "tests/unit/golden_hello.h"

#include "proto/limit.h"
#include "proto/local/place.h"
#include "tests/unit/cmocka_all.h"

void build_hello_request(struct msg *m)
{
    embd__msg_request(m, 1, METHOD_HELLO);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_str(m, "client", "libembd 0.1.0");
    embd__msg_end(m);
}

void read_hello_request(struct reader *r)
{
    struct fields f;
    char client[32];
    embd__read_fields(&f, r, "hello");
    embd__field_uint(&f, "protocol", 1, 1, FIELD_REQUIRED);
    embd__field_str(&f, "client", client, sizeof client, "");
    embd__fields_end(&f);
    embd__reader_end(r);
}

void check_hello_request(struct reader *r)
{
    assert_int_equal(r->type, 0);
    assert_int_equal(r->msgid, 1);
    assert_int_equal(r->method, METHOD_HELLO);
    assert_string_equal(r->method_name, "hello");
    read_hello_request(r);
}

static const char *const features[] = {
    "f16",         "bf16",    "weights", "status",     "create_on_pull", "admit_after", "rounds",
    "cuts",        "writers", "streams", "jobs",       "order",          "push_scale",  "push_lr",
    "columns",     "i8",      "i4",      "put_writer", "share",          "ring",        "members",
    "rounds_again"};
#define N_FEATURES (sizeof features / sizeof features[0])

static const struct local_place place = {"6b1c2f0e-3a5d-4c7b-9e8f-0123456789ab",
                                         "/run/embd/7700.data.sock", 25, 4711};

void build_hello_result(struct msg *m)
{
    embd__msg_result(m, 1);
    embd__msg_map(m, 15);
    embd__msg_field_uint(m, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_str(m, "server", "embd 0.1.0");
    embd__msg_str(m, "features");
    embd__msg_array(m, N_FEATURES);
    for (size_t i = 0; i < N_FEATURES; i++)
        embd__msg_str(m, features[i]);
    embd__msg_field_uint(m, "shard", 0);
    embd__msg_field_uint(m, "shards", 2);
    embd__msg_field_uint(m, "frame_bytes", LIMIT_FRAME_BYTES);
    embd__msg_field_uint(m, "push_bytes", LIMIT_PUSH_BYTES);
    embd__msg_field_uint(m, "header_bytes", LIMIT_HEADER_BYTES);
    embd__msg_field_uint(m, "keys", LIMIT_KEYS);
    embd__msg_field_uint(m, "requests", LIMIT_REQUESTS_IN_FLIGHT);
    embd__msg_field_uint(m, "start", UINT64_C(0x1122334455667788));
    embd__msg_field_uint(m, "history", UINT64_C(0x0102030405060708));
    embd__msg_field_uint(m, "epoch", 12);
    embd__local_write(m, &place);
    embd__msg_str(m, "trunk");
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "process", UINT64_C(0x1122334455667788));
    embd__msg_field_uint(m, "shards", 2);
    embd__msg_end(m);
}

static uint64_t limits[7], starts[3], trunks[2];
static struct local_place place_read;

void read_hello_result(struct reader *r)
{
    static const char *const names[7] = {"shard",        "shards", "frame_bytes", "push_bytes",
                                         "header_bytes", "keys",   "requests"};
    struct fields f, trunk;
    char server[32];
    const msgpack_object *list;
    embd__read_fields(&f, r, "hello");
    embd__field_uint(&f, "protocol", 1, 1, FIELD_REQUIRED);
    embd__field_str(&f, "server", server, sizeof server, NULL);
    embd__field_list(&f, "features", 64, &list);
    for (int i = 0; i < 7; i++)
        limits[i] = embd__field_uint(&f, names[i], 0, UINT32_MAX, FIELD_REQUIRED);
    starts[0] = embd__field_uint(&f, "start", 0, INT64_MAX, FIELD_REQUIRED);
    starts[1] = embd__field_uint(&f, "history", 0, INT64_MAX, FIELD_REQUIRED);
    starts[2] = embd__field_uint(&f, "epoch", 0, INT64_MAX, FIELD_REQUIRED);
    embd__local_read(&f, &place_read);
    embd__field_map(&f, "trunk", &trunk, "trunk");
    trunks[0] = embd__field_uint(&trunk, "process", 0, INT64_MAX, FIELD_REQUIRED);
    trunks[1] = embd__field_uint(&trunk, "shards", 1, LIMIT_SHARDS, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void check_hello_result(struct reader *r)
{
    static const uint64_t expected[7] = {0, 2, 64 << 20, 1 << 30, 4096, 4 << 20, 64};
    static const uint64_t expected_starts[3] = {UINT64_C(0x1122334455667788),
                                                UINT64_C(0x0102030405060708), 12};
    assert_int_equal(r->type, 1);
    assert_int_equal(r->answer_status, EMBD_OK);
    read_hello_result(r);
    assert_memory_equal(limits, expected, sizeof limits);
    assert_memory_equal(starts, expected_starts, sizeof starts);
    assert_true(embd__local_is_same(&place_read, &place));
    assert_true(trunks[0] == UINT64_C(0x1122334455667788) && trunks[1] == 2);
}
