/* golden_messages.c - the messages of golden/, built and read. The bytes there were not made by
 * this code, but packed from PROTOCOL.md by lines of Python: what is tested is the document. */
#include "tests/unit/golden_messages.h"
#include "tests/unit/golden_erase.h"
#include "tests/unit/golden_hello.h"
#include "tests/unit/golden_device.h"
#include "tests/unit/golden_changes.h"
#include "tests/unit/golden_follow.h"
#include "tests/unit/golden_lag.h"
#include "tests/unit/golden_move.h"
#include "tests/unit/golden_shared.h"
#include "tests/unit/golden_hold.h"
#include "tests/unit/golden_identity.h"
#include "tests/unit/golden_packed.h"
#include "tests/unit/golden_set.h"
#include "tests/unit/golden_stage.h"
#include "tests/unit/golden_job.h"
#include "tests/unit/golden_keyed.h"
#include "tests/unit/golden_tick.h"
#include "tests/unit/golden_watch.h"
#include "tests/unit/golden_writer.h"
#include <stdio.h>
#include <string.h>

#include "tests/unit/cmocka_all.h"
#include "proto/placement_wire.h"
#include "proto/route.h"
#include "proto/schema.h"

#define BIG        0xfedcba9876543210ull
#define PART_TABLE 0x12345678u

/* ---- hex ---- */

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t read_hex(const char *text, size_t text_bytes, uint8_t *out, size_t capacity)
{
    const char *end = text + text_bytes;
    size_t n = 0;
    while (text < end) {
        if (*text == ' ' || *text == '\n') {
            text++;
        } else if (*text == '#') {
            while (text < end && *text != '\n')
                text++;
        } else {
            if (end - text < 2 || digit(text[0]) < 0 || digit(text[1]) < 0 || n == capacity)
                return SIZE_MAX;
            out[n++] = (uint8_t)(digit(text[0]) << 4 | digit(text[1]));
            text += 2;
        }
    }
    return n;
}

size_t read_golden(const char *name, uint8_t *out, size_t capacity)
{
    static char text[16384];
    char path[512];
    snprintf(path, sizeof path, "%s/%s.hex", GOLDEN_DIR, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return SIZE_MAX;
    size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    return read_hex(text, bytes, out, capacity);
}

/* ---- ping ---- */

static void build_ping_request(struct msg *m)
{
    embd__msg_request(m, 2, METHOD_PING);
    embd__msg_map(m, 0);
    embd__msg_end(m);
}

static void build_ping_result(struct msg *m)
{
    embd__msg_result(m, 2);
    embd__msg_map(m, 0);
    embd__msg_end(m);
}

static void read_empty(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "ping");
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* ---- cluster, tables ---- */

static void begin_cluster(struct msg *m, uint32_t n_fields)
{
    embd__msg_result(m, 3);
    embd__msg_map(m, n_fields);
    embd__msg_field_str(m, "name", "demo");
    embd__msg_field_uint(m, "version", 1);
    embd__msg_field_uint(m, "shard", 0);
    embd__msg_str(m, "shards");
    embd__msg_array(m, 2);
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "address", "127.0.0.1:7700");
    embd__msg_field_str(m, "admin", "/run/embd/0.sock");
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "address", "127.0.0.1:7701");
    embd__msg_field_str(m, "admin", "/run/embd/1.sock");
}

static void build_cluster_result(struct msg *m)
{
    begin_cluster(m, 4);
    embd__msg_end(m);
}

static void build_cluster_placement_result(struct msg *m)
{
    static const uint32_t weights[] = {7, 1};
    struct placement p;
    embd__placement_weighted(&p, 2, 2, weights);
    begin_cluster(m, 5);
    embd__placement_write(m, &p);
    embd__msg_end(m);
}

static char last_address[64];
static struct placement last_placement;

static void read_cluster_result(struct reader *r)
{
    struct fields f, shard;
    char text[108];
    const msgpack_object *shards;
    embd__read_fields(&f, r, "cluster");
    embd__field_str(&f, "name", text, sizeof text, NULL);
    embd__field_uint(&f, "version", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_uint(&f, "shard", 0, LIMIT_SHARDS - 1, FIELD_REQUIRED);
    uint32_t n = embd__field_list(&f, "shards", LIMIT_SHARDS, &shards);
    for (uint32_t i = 0; i < n; i++) {
        embd__list_map(r, &shards[i], &shard, "shard");
        embd__field_str(&shard, "address", last_address, sizeof last_address, NULL);
        embd__field_str(&shard, "admin", text, sizeof text, "");
        embd__fields_end(&shard);
    }
    embd__placement_read(&f, 2, &last_placement);
    embd__fields_end(&f);
    embd__reader_end(r);
}

static void check_cluster_result(struct reader *r)
{
    read_cluster_result(r);
    assert_string_equal(last_address, "127.0.0.1:7701");
    assert_true(last_placement.is_even && last_placement.version == 1);
}

static void check_cluster_placement_result(struct reader *r)
{
    read_cluster_result(r);
    assert_true(last_placement.version == 2 && last_placement.base == 2);
    assert_int_equal(embd__placement_count(&last_placement, 1), 128);
    assert_int_equal(last_placement.of_vshard[895], 0);
    assert_int_equal(last_placement.of_vshard[896], 1);
}

static void build_tables_result(struct msg *m)
{
    embd__msg_result(m, 4);
    embd__msg_map(m, 1);
    embd__msg_str(m, "tables");
    embd__msg_array(m, 1);
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "name", "items");
    embd__msg_field_uint(m, "id", embd__table_id("items"));
    embd__msg_end(m);
}

static void read_tables_result(struct reader *r)
{
    struct fields f, table;
    char name[EMBD_NAME_MAX + 1];
    const msgpack_object *tables;
    embd__read_fields(&f, r, "tables");
    uint32_t n = embd__field_list(&f, "tables", LIMIT_TABLES, &tables);
    for (uint32_t i = 0; i < n; i++) {
        embd__list_map(r, &tables[i], &table, "table");
        embd__field_str(&table, "name", name, sizeof name, NULL);
        embd__field_uint(&table, "id", 1, UINT32_MAX, FIELD_REQUIRED);
        embd__fields_end(&table);
    }
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* ---- table_create, table_describe ---- */

static void full_schema(embd_schema *s)
{
    static const uint64_t sizes[2] = {100, 200};
    embd_schema_init(s);
    s->durability = EMBD_DURABILITY_SNAPSHOT;
    strcpy(s->name, "items");
    s->dim = 16;
    s->slots = 2;
    s->slot_sizes = sizes;
    s->partition = EMBD_PARTITION_SLOT;
    s->combiner = EMBD_COMBINER_MEAN;
    s->dtype = EMBD_DTYPE_F16;
    embd_optimizer_init(&s->optimizer, EMBD_OPTIMIZER_ADAM, 0.001f);
    s->initializer = (embd_initializer){.kind = EMBD_INITIALIZER_UNIFORM_SLOT};
    s->seed = BIG;
    s->capacity = 1000000;
    s->on_full = EMBD_ON_FULL_ERROR;
    s->admit_after = 2;
}

static void plain_schema(embd_schema *s)
{
    embd_schema_init(s);
    s->durability = EMBD_DURABILITY_SNAPSHOT;
    strcpy(s->name, "items");
    s->dim = 4;
}

static void build_table_create_request(struct msg *m)
{
    embd_schema schema;
    full_schema(&schema);
    embd__msg_request(m, 5, METHOD_TABLE_CREATE);
    embd__msg_map(m, 1);
    embd__msg_str(m, "schema");
    embd__schema_write(m, &schema);
    embd__msg_end(m);
}

static void read_schema(struct reader *r, struct fields *f, const embd_schema *expected)
{
    struct fields map;
    struct table_schema schema;
    embd__field_map(f, "schema", &map, "schema");
    embd__schema_read(&map, &schema);
    embd__fields_end(f);
    embd__reader_end(r);
    if (expected != NULL)
        assert_null(embd__schema_difference(&schema.s, expected));
    embd__schema_fini(&schema);
}

static void read_table_create_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "table_create");
    read_schema(r, &f, NULL);
}

static void check_table_create_request(struct reader *r)
{
    struct fields f;
    embd_schema schema;
    full_schema(&schema);
    embd__read_fields(&f, r, "table_create");
    read_schema(r, &f, &schema);
}

static void build_table_create_result(struct msg *m)
{
    embd__msg_result(m, 5);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", embd__table_id("items"));
    embd__msg_field_bool(m, "created", true);
    embd__msg_end(m);
}

static void read_table_create_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "table_create");
    embd__field_uint(&f, "id", 1, UINT32_MAX, FIELD_REQUIRED);
    embd__field_bool(&f, "created", false);
    embd__fields_end(&f);
    embd__reader_end(r);
}

static void build_table_describe_result(struct msg *m)
{
    embd_schema schema;
    plain_schema(&schema);
    embd__msg_result(m, 6);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "id", embd__table_id("items"));
    embd__msg_field_uint(m, "step", 1);
    embd__msg_field_uint(m, "rows", 1);
    embd__msg_field_uint(m, "candidates", 0);
    embd__msg_str(m, "schema");
    embd__schema_write(m, &schema);
    embd__msg_end(m);
}

static void read_description(struct reader *r, const embd_schema *expected)
{
    struct fields f;
    embd__read_fields(&f, r, "table_describe");
    embd__field_uint(&f, "id", 1, UINT32_MAX, FIELD_REQUIRED);
    embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_uint(&f, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_uint(&f, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
    read_schema(r, &f, expected);
}

static void read_table_describe_result(struct reader *r)
{
    read_description(r, NULL);
}

static void check_table_describe_result(struct reader *r)
{
    embd_schema schema;
    plain_schema(&schema);
    read_description(r, &schema);
}

/* ---- pull ---- */

static const uint64_t pull_keys[3] = {5, BIG, 5}, slot_key = 9;
static const uint32_t pull_offsets[3] = {0, 2, 3};
static const float pull_weights[3] = {1.0f, 0.5f, 2.0f};
static const uint16_t pull_slot = 3;

static void build_pull_request(struct msg *m)
{
    const struct part parts[2] = {
        {.table = PART_TABLE,
         .n_keys = 3,
         .n_rows = 2,
         .want_status = true,
         .scale = true,
         .keys = pull_keys,
         .offsets = pull_offsets,
         .weights = pull_weights},
        {.table = 1,
         .dtype = EMBD_DTYPE_F16,
         .n_keys = 1,
         .n_rows = 1,
         .zero_missing = true,
         .keys = &slot_key,
         .slots = &pull_slot},
    };
    embd__msg_request(m, 7, METHOD_PULL);
    embd__parts_write(m, parts, 2, PARTS_PULL);
    embd__msg_end(m);
}

static struct part parts[LIMIT_PARTS];

static void read_pull_request(struct reader *r)
{
    embd__parts_read(r, parts, LIMIT_PARTS, PARTS_PULL);
}

static void check_pull_request(struct reader *r)
{
    assert_int_equal(embd__parts_read(r, parts, LIMIT_PARTS, PARTS_PULL), 2);
    assert_int_equal(parts[0].table, PART_TABLE);
    assert_int_equal(parts[0].dtype, EMBD_DTYPE_F32);
    assert_int_equal(parts[0].n_keys, 3);
    assert_int_equal(parts[0].n_rows, 2);
    assert_memory_equal(parts[0].keys, pull_keys, sizeof pull_keys);
    assert_memory_equal(parts[0].offsets, pull_offsets, sizeof pull_offsets);
    assert_memory_equal(parts[0].weights, pull_weights, sizeof pull_weights);
    assert_true(parts[0].want_status && parts[0].scale && !parts[0].zero_missing);
    assert_null(parts[0].slots);
    assert_int_equal(parts[1].table, 1);
    assert_int_equal(parts[1].dtype, EMBD_DTYPE_F16);
    assert_int_equal(parts[1].n_rows, 1);
    assert_true(parts[1].zero_missing && !parts[1].want_status && !parts[1].scale);
    assert_int_equal(parts[1].keys[0], 9);
    assert_int_equal(parts[1].slots[0], 3);
    assert_null(parts[1].offsets);
    assert_null(parts[1].grads);
}

static const float pulled[4] = {1, 2, 3, 4};
static const uint8_t pulled_statuses[3] = {EMBD_KEY_HIT, EMBD_KEY_MISSING, EMBD_KEY_HIT};
static const uint16_t pulled_halves[2] = {0x3c00, 0xc000};

static void build_pull_result(struct msg *m)
{
    const struct part_answer answers[2] = {
        {.n_rows = 2,
         .dim = 2,
         .n_keys = 3,
         .has_status = true,
         .values = pulled,
         .statuses = pulled_statuses},
        {.n_rows = 1, .dim = 2, .n_keys = 1, .dtype = EMBD_DTYPE_F16, .values = pulled_halves},
    };
    embd__msg_result(m, 7);
    embd__pull_answer_write(m, answers, 2, 0, NULL);
    embd__msg_end(m);
}

static void read_pull_result(struct reader *r)
{
    static struct part_answer answers[LIMIT_PARTS];
    embd__pull_answer_read(r, answers, LIMIT_PARTS);
}

static void check_pull_result(struct reader *r)
{
    struct part_answer answers[2];
    assert_int_equal(embd__pull_answer_read(r, answers, 2), 2);
    assert_int_equal(answers[0].n_rows, 2);
    assert_int_equal(answers[0].n_keys, 3);
    assert_memory_equal(answers[0].values, pulled, sizeof pulled);
    assert_memory_equal(answers[0].statuses, pulled_statuses, 3);
    assert_int_equal(answers[1].dtype, EMBD_DTYPE_F16);
    assert_false(answers[1].has_status);
    assert_memory_equal(answers[1].values, pulled_halves, sizeof pulled_halves);
}

/* ---- push ---- */

static const uint64_t push_keys[2] = {5, 6};
static const float push_grads[4] = {0.25f, -1, 0, 3};

static void build_push_request(struct msg *m)
{
    const struct part part = {.table = PART_TABLE,
                              .n_keys = 2,
                              .n_rows = 2,
                              .want_status = true,
                              .keys = push_keys,
                              .grads = push_grads,
                              .grads_bytes = sizeof push_grads};
    embd__msg_request(m, 8, METHOD_PUSH);
    embd__parts_write(m, &part, 1, PARTS_PUSH);
    embd__msg_end(m);
}

static void read_push_request(struct reader *r)
{
    embd__parts_read(r, parts, LIMIT_PARTS, PARTS_PUSH);
}

static void check_push_request(struct reader *r)
{
    assert_int_equal(embd__parts_read(r, parts, LIMIT_PARTS, PARTS_PUSH), 1);
    assert_int_equal(parts[0].n_rows, 2);
    assert_memory_equal(parts[0].keys, push_keys, sizeof push_keys);
    assert_int_equal(parts[0].grads_bytes, sizeof push_grads);
    assert_memory_equal(parts[0].grads, push_grads, sizeof push_grads);
}

static void build_push_result(struct msg *m)
{
    static const uint8_t statuses[2] = {EMBD_KEY_HIT, EMBD_KEY_INSERTED};
    const struct push_answer answer = {
        .step = 300, .n_inserted = 1, .n_evicted = 5, .n_keys = 2, .statuses = statuses};
    embd__msg_result(m, 8);
    embd__push_answer_write(m, &answer, 1, 7);
    embd__msg_end(m);
}

static void read_push_result(struct reader *r)
{
    static struct push_answer answers[LIMIT_PARTS];
    bool again;
    embd__push_answer_read(r, answers, LIMIT_PARTS, &again);
}

static void check_push_result(struct reader *r)
{
    struct push_answer answer;
    bool again;
    assert_int_equal(embd__push_answer_read(r, &answer, 1, &again), 1);
    assert_int_equal(r->map, 7);
    assert_false(again);
    assert_int_equal(answer.step, 300);
    assert_int_equal(answer.n_inserted, 1);
    assert_int_equal(answer.n_evicted, 5);
    assert_int_equal(answer.n_keys, 2);
    assert_int_equal(answer.statuses[1], EMBD_KEY_INSERTED);
}

/* ---- errors ---- */

static void build_error_result(struct msg *m)
{
    embd__msg_error(m, 9, EMBD_UNKNOWN_TABLE, "unknown table 'items'");
    embd__msg_end(m);
}

static void check_error_result(struct reader *r)
{
    assert_int_equal(r->msgid, 9);
    assert_int_equal(r->answer_status, EMBD_UNKNOWN_TABLE);
    assert_int_equal(r->answer_text_bytes, strlen("unknown table 'items'"));
    assert_memory_equal(r->answer_text, "unknown table 'items'", r->answer_text_bytes);
}

static void build_error_notice(struct msg *m)
{
    embd__msg_error_notice(
        m, EMBD_MALFORMED,
        "the message begins with byte 0xc1, expected an array of 3 or 4 elements");
    embd__msg_end(m);
}

static void check_error_notice(struct reader *r)
{
    assert_int_equal(r->type, 2);
    assert_int_equal(r->method, -1);
    assert_string_equal(r->method_name, "error");
    assert_int_equal(r->answer_status, EMBD_MALFORMED);
    assert_memory_equal(r->answer_text, "the message begins", 18);
}

static void read_nothing(struct reader *r)
{
    (void)r;
}

/* ---- rows ---- */

static void rows_schema(embd_schema *s)
{
    embd_schema_init(s);
    s->durability = EMBD_DURABILITY_SNAPSHOT;
    strcpy(s->name, "items");
    s->dim = 2;
    s->slots = 2;
    s->partition = EMBD_PARTITION_SLOT;
    embd_optimizer_init(&s->optimizer, EMBD_OPTIMIZER_ROWWISE_ADAGRAD, 0.1f);
}

static const uint64_t row_keys[2] = {7, 8}, candidate_key = 9;
static const uint16_t row_slots[2] = {0, 1}, candidate_slot = 1;
static const float row_states[2] = {0.5f, 0.25f};
static const uint32_t candidate_count = 2;
static const struct row_block block = {
    .n_rows = 2,
    .n_candidates = 1,
    .keys = row_keys,
    .slots = row_slots,
    .rows = pulled,
    .states = row_states,
    .candidate_keys = &candidate_key,
    .candidate_slots = &candidate_slot,
    .candidate_counts = &candidate_count,
};

static void build_scan_result(struct msg *m)
{
    embd_schema schema;
    rows_schema(&schema);
    embd__msg_result(m, 10);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "rows", 2);
    embd__msg_field_uint(m, "candidates", 1);
    embd__msg_field_uint(m, "next", UINT64_MAX);
    embd__msg_field_bool(m, "done", true);
    embd__msg_field_uint(m, "step", 3);
    embd__row_block_write(m, &schema, &block);
    embd__msg_end(m);
}

static void build_load_request(struct msg *m)
{
    embd_schema schema;
    rows_schema(&schema);
    embd__msg_request(m, 11, METHOD_LOAD);
    embd__msg_map(m, 4);
    embd__msg_field_str(m, "table", "items");
    embd__msg_field_uint(m, "rows", 2);
    embd__msg_field_uint(m, "candidates", 1);
    embd__msg_field_uint(m, "step", 3);
    embd__row_block_write(m, &schema, &block);
    embd__msg_end(m);
}

static void read_block(struct reader *r, struct row_block *out)
{
    struct fields f;
    embd_schema schema;
    char table[EMBD_NAME_MAX + 1];
    rows_schema(&schema);
    embd__read_fields(&f, r, "rows");
    embd__field_str(&f, "table", table, sizeof table, "");
    uint64_t n_rows = embd__field_uint(&f, "rows", 0, UINT32_MAX, FIELD_REQUIRED);
    uint64_t n_candidates = embd__field_uint(&f, "candidates", 0, UINT32_MAX, FIELD_REQUIRED);
    embd__field_uint(&f, "next", 0, UINT64_MAX, 0);
    embd__field_bool(&f, "done", false);
    embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__row_block_read(r, &schema, (uint32_t)n_rows, (uint32_t)n_candidates, out);
}

static void read_rows(struct reader *r)
{
    struct row_block out;
    read_block(r, &out);
}

static void check_rows(struct reader *r)
{
    struct row_block out;
    read_block(r, &out);
    assert_int_equal(r->error->status, EMBD_OK);
    assert_memory_equal(out.keys, row_keys, sizeof row_keys);
    assert_memory_equal(out.slots, row_slots, sizeof row_slots);
    assert_memory_equal(out.rows, pulled, sizeof pulled);
    assert_memory_equal(out.states, row_states, sizeof row_states);
    assert_int_equal(out.candidate_keys[0], 9);
    assert_int_equal(out.candidate_slots[0], 1);
    assert_int_equal(out.candidate_counts[0], 2);
}

/* ---- snapshot ---- */

static void build_snapshot_request(struct msg *m)
{
    embd__msg_request(m, 12, METHOD_SNAPSHOT);
    embd__msg_map(m, 5);
    embd__msg_field_str(m, "name", "nightly");
    embd__msg_field_str(m, "phase", "blob");
    embd__msg_field_str(m, "blob", "step");
    embd__msg_field_uint(m, "offset", 0);
    embd__msg_field_uint(m, "xxh3", 0x491d632ef4606cc0);
    embd__msg_bin(m, "step 9000", 9);
    embd__msg_end(m);
}

static const void *read_blob(struct reader *r, uint64_t *bytes_out, uint64_t *xxh3_out)
{
    struct fields f;
    char text[64];
    embd__read_fields(&f, r, "snapshot");
    embd__field_str(&f, "name", text, sizeof text, NULL);
    embd__field_str(&f, "phase", text, sizeof text, NULL);
    embd__field_str(&f, "blob", text, sizeof text, NULL);
    embd__field_uint(&f, "offset", 0, 0, FIELD_REQUIRED);
    *xxh3_out = embd__field_uint(&f, "xxh3", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
    const void *data = embd__read_bin_any(r, "blob", 1, LIMIT_FRAME_BYTES, bytes_out);
    embd__reader_end(r);
    return data;
}

static void read_snapshot_request(struct reader *r)
{
    uint64_t bytes, xxh3;
    read_blob(r, &bytes, &xxh3);
}

static void check_snapshot_request(struct reader *r)
{
    uint64_t bytes, xxh3;
    const void *data = read_blob(r, &bytes, &xxh3);
    assert_int_equal(r->error->status, EMBD_OK);
    assert_int_equal(bytes, 9);
    assert_memory_equal(data, "step 9000", 9);
    assert_true(xxh3 == 0x491d632ef4606cc0);
}

#define GOLDEN(name, read, check)                                                                  \
    {                                                                                              \
#name, build_##name, read, check                                                           \
    }

const struct golden goldens[] = {
    GOLDEN(hello_request, read_hello_request, check_hello_request),
    GOLDEN(hello_result, read_hello_result, check_hello_result),
    GOLDEN(share_request, read_share_request, read_share_request),
    GOLDEN(ring_request, read_ring_request, read_ring_request),
    GOLDEN(trunk_request, read_trunk_request, read_trunk_request),
    GOLDEN(pull_behind_request, read_pull_behind_request, check_pull_behind_request),
    GOLDEN(pull_behind_result, read_pull_behind_result, check_pull_behind_result),
    GOLDEN(pull_shared_request, read_pull_shared_request, read_pull_shared_request),
    GOLDEN(pull_shared_result, read_pull_shared_result, read_pull_shared_result),
    GOLDEN(device_open_request, read_device_open_request, check_device_open_request),
    GOLDEN(device_open_result, read_device_open_result, check_device_open_result),
    GOLDEN(device_pull_request, read_device_pull_request, check_device_pull_request),
    GOLDEN(device_pull_own_request, read_device_pull_request, check_device_pull_own_request),
    GOLDEN(device_push_request, read_device_push_request, check_device_push_request),
    GOLDEN(device_push_gates_request, read_device_push_request, check_device_push_gates_request),
    GOLDEN(device_close_request, read_device_close_request, read_device_close_request),
    GOLDEN(follow_request, read_follow_request, read_follow_request),
    GOLDEN(follow_maps_request, read_follow_maps_request, read_follow_maps_request),
    GOLDEN(follow_room_request, read_follow_room_request, read_follow_room_request),
    GOLDEN(follow_most_request, read_follow_most_request, read_follow_most_request),
    GOLDEN(follow_result, read_follow_result, read_follow_result),
    GOLDEN(follow_aged_result, read_follow_aged_result, read_follow_aged_result),
    GOLDEN(follow_growing_result, read_follow_growing_result, read_follow_growing_result),
    GOLDEN(changes_request, read_changes_request, read_changes_request),
    GOLDEN(changes_result, read_changes_result, read_changes_result),
    GOLDEN(ping_request, read_empty, read_empty),
    GOLDEN(ping_result, read_empty, read_empty),
    GOLDEN(cluster_result, read_cluster_result, check_cluster_result),
    GOLDEN(cluster_placement_result, read_cluster_result, check_cluster_placement_result),
    GOLDEN(tables_result, read_tables_result, read_tables_result),
    GOLDEN(tick_request, read_tick_request, read_tick_request),
    GOLDEN(tick_result, read_tick_result, read_tick_result),
    GOLDEN(hold_request, read_hold_request, read_hold_request),
    GOLDEN(hold_result, read_hold_result, read_hold_result),
    GOLDEN(push_order_request, read_push_order_request, read_push_order_request),
    GOLDEN(push_lr_request, read_push_lr_request, read_push_lr_request),
    GOLDEN(push_scores_request, read_push_scores_request, read_push_scores_request),
    GOLDEN(push_columns_request, read_push_columns_request, read_push_columns_request),
    GOLDEN(push_packed_request, read_push_packed_request, read_push_packed_request),
    GOLDEN(pull_packed_result, read_pull_packed_result, read_pull_packed_result),
    GOLDEN(push_round_request, read_push_round_request, read_push_round_request),
    GOLDEN(push_writer_request, read_push_writer_request, read_push_writer_request),
    GOLDEN(push_again_result, read_push_again_result, read_push_again_result),
    GOLDEN(writer_request, read_writer_request, read_writer_request),
    GOLDEN(writer_result, read_writer_result, read_writer_result),
    GOLDEN(stream_open_request, read_stream_open_request, read_stream_open_request),
    GOLDEN(stream_open_result, read_stream_open_result, read_stream_open_result),
    GOLDEN(identity_request, read_identity_request, read_identity_request),
    GOLDEN(identity_result, read_identity_result, read_identity_result),
    GOLDEN(identity_decision_request, read_identity_decision_request,
           read_identity_decision_request),
    GOLDEN(identity_decision_result, read_identity_decision_result, read_identity_decision_result),
    GOLDEN(table_stage_request, read_table_stage_request, read_table_stage_request),
    GOLDEN(table_stage_result, read_table_stage_result, read_table_stage_result),
    GOLDEN(table_stage_writers_request, read_table_stage_writers_request,
           read_table_stage_writers_request),
    GOLDEN(table_replace_request, read_table_replace_request, read_table_replace_request),
    GOLDEN(table_replace_prepare_request, read_table_replace_prepare_request,
           read_table_replace_prepare_request),
    GOLDEN(move_begin_request, read_move_begin_request, read_move_begin_request),
    GOLDEN(move_begin_result, read_move_begin_result, read_move_begin_result),
    GOLDEN(snapshot_rate_request, read_snapshot_rate_request, read_snapshot_rate_request),
    GOLDEN(snapshot_rate_result, read_snapshot_rate_result, read_snapshot_rate_result),
    GOLDEN(table_replace_record, read_table_replace_record, read_table_replace_record),
    GOLDEN(cluster_next_result, read_cluster_next_result, read_cluster_next_result),
    GOLDEN(cluster_joining_result, read_cluster_joining_result, read_cluster_joining_result),
    GOLDEN(move_state_result, read_move_state_result, read_move_state_result),
    GOLDEN(move_add_request, read_move_add_request, read_move_add_request),
    GOLDEN(move_retire_request, read_move_retire_request, read_move_retire_request),
    GOLDEN(move_streams_result, read_move_streams_result, read_move_streams_result),
    GOLDEN(move_marks_request, read_move_marks_request, read_move_marks_request),
    GOLDEN(move_read_result, read_move_read_result, read_move_read_result),
    GOLDEN(move_load_request, read_move_load_request, read_move_load_request),
    GOLDEN(hot_request, read_hot_request, read_hot_request),
    GOLDEN(hot_result, read_hot_result, read_hot_result),
    GOLDEN(trace_request, read_trace_request, read_trace_request),
    GOLDEN(trace_result, read_trace_result, read_trace_result),
    GOLDEN(table_create_request, read_table_create_request, check_table_create_request),
    GOLDEN(table_create_result, read_table_create_result, read_table_create_result),
    GOLDEN(table_describe_result, read_table_describe_result, check_table_describe_result),
    GOLDEN(table_set_request, read_table_set_request, check_table_set_request),
    GOLDEN(table_set_result, read_table_set_result, read_table_set_result),
    GOLDEN(pull_request, read_pull_request, check_pull_request),
    GOLDEN(pull_result, read_pull_result, check_pull_result),
    GOLDEN(push_request, read_push_request, check_push_request),
    GOLDEN(push_result, read_push_result, check_push_result),
    GOLDEN(erase_request, read_erase_request, check_erase_request),
    GOLDEN(erase_result, read_erase_result, check_erase_result),
    GOLDEN(get_request, read_get_request, check_get_request),
    GOLDEN(get_result, read_get_result, check_get_result),
    GOLDEN(put_request, read_put_request, check_put_request),
    GOLDEN(put_result, read_put_result, check_put_result),
    GOLDEN(keys_request, read_keys_request, check_keys_request),
    GOLDEN(keys_result, read_keys_result, check_keys_result),
    GOLDEN(error_result, read_nothing, check_error_result),
    GOLDEN(error_notice, read_nothing, check_error_notice),
    GOLDEN(scan_result, read_rows, check_rows),
    GOLDEN(load_request, read_rows, check_rows),
    GOLDEN(snapshot_request, read_snapshot_request, check_snapshot_request),
    GOLDEN(snapshot_start_request, read_snapshot_start_request, read_snapshot_start_request),
    GOLDEN(snapshot_tables_request, read_snapshot_tables_request, read_snapshot_tables_request),
    GOLDEN(snapshot_start_result, read_snapshot_start_result, read_snapshot_start_result),
    GOLDEN(snapshot_progress_request, read_snapshot_progress_request,
           read_snapshot_progress_request),
    GOLDEN(snapshot_progress_result, read_snapshot_progress_result, read_snapshot_progress_result),
    GOLDEN(snapshot_go_request, read_snapshot_go_request, read_snapshot_go_request),
    GOLDEN(snapshot_cancel_request, read_snapshot_cancel_request, read_snapshot_cancel_request),
    GOLDEN(snapshot_fetch_request, read_snapshot_fetch_request, read_snapshot_fetch_request),
    GOLDEN(snapshot_fetch_result, read_snapshot_fetch_result, read_snapshot_fetch_result),
};
const uint32_t n_goldens = sizeof goldens / sizeof goldens[0];
