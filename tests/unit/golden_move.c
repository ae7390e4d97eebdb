/* golden_move.c - the messages of keys that move, as golden_messages.c has the others. */
#include "tests/unit/golden_move.h"

#include <string.h>

#include "proto/placement_wire.h"
#include "proto/shard_entry.h"

#define ID 0x0123456789abcdefu

static const uint64_t keys[1] = {7};
static const float row[2] = {1, 2}, state[2] = {0.5f, 0.25f};

static void add_place(struct msg *m)
{
    struct placement place;
    struct embd__error e = {.status = EMBD_OK};
    embd__placement_begin(&place, 2, 2, 2, &e);
    embd__placement_add(&place, 0, 256, &e);
    embd__placement_add(&place, 1, 768, &e);
    embd__placement_end(&place, &e);
    embd__placement_write(m, &place);
}

void build_move_begin_request(struct msg *m)
{
    embd__msg_request(m, 51, METHOD_MOVE);
    embd__msg_map(m, 3);
    embd__msg_field_str(m, "phase", "begin");
    embd__msg_field_uint(m, "id", ID);
    add_place(m);
    embd__msg_end(m);
}

void build_move_begin_result(struct msg *m)
{
    embd__msg_result(m, 51);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "rows", 1000000);
    embd__msg_field_uint(m, "bytes", 72000000);
    embd__msg_end(m);
}

void read_move_begin_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "move");
    embd__field_uint(&f, "rows", 1000000, 1000000, FIELD_REQUIRED);
    embd__field_uint(&f, "bytes", 72000000, 72000000, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

static void read_phase(struct fields *f, const char *phase)
{
    const char *const phases[] = {phase};
    embd__field_enum(f, "phase", phases, 1, -1);
}

/* What is left of the fields. */
static void read_place(struct reader *r, struct fields *f)
{
    struct placement place;
    embd__placement_read(f, 2, &place);
    embd__fields_end(f);
    embd__reader_end(r);
    if (r->error->status == EMBD_OK &&
        (place.version != 2 || place.of_vshard[255] != 0 || place.of_vshard[256] != 1))
        embd__error_set(r->error, EMBD_INVALID, "the placement is another");
}

void read_move_begin_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "move");
    read_phase(&f, "begin");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    read_place(r, &f);
}

void build_table_replace_record(struct msg *m)
{
    embd__msg_notice(m, METHOD_TABLE_REPLACE);
    embd__msg_map(m, 6);
    embd__msg_field_uint(m, "id", 0);
    embd__msg_field_str(m, "phase", "placed");
    embd__msg_field_uint(m, "decision", ID);
    embd__msg_field_uint(m, "shards", 2);
    add_place(m);
    embd__msg_field_bool(m, "moving", true);
    embd__msg_end(m);
}

void read_table_replace_record(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "table_replace");
    read_phase(&f, "placed");
    embd__field_uint(&f, "id", 0, 0, FIELD_REQUIRED);
    embd__field_uint(&f, "decision", ID, ID, FIELD_REQUIRED);
    embd__field_uint(&f, "shards", 2, 2, FIELD_REQUIRED);
    embd__field_bool(&f, "moving", false);
    read_place(r, &f);
}

static void add_shards(struct msg *m, const char *field, uint32_t first, uint32_t n)
{
    static const char *const places[3][2] = {{"127.0.0.1:7700", "/run/embd/0.sock"},
                                             {"127.0.0.1:7701", "/run/embd/1.sock"},
                                             {"127.0.0.1:7702", "/run/embd/2.sock"}};
    embd__msg_str(m, field);
    embd__msg_array(m, n);
    for (uint32_t i = first; i < first + n; i++)
        embd__shard_entry_write(m, places[i][0], places[i][1], NULL);
}

static void begin_cluster(struct msg *m, uint32_t n_fields)
{
    embd__msg_result(m, 3);
    embd__msg_map(m, n_fields);
    embd__msg_field_str(m, "name", "demo");
    embd__msg_field_uint(m, "version", 1);
    embd__msg_field_uint(m, "shard", 0);
    add_shards(m, "shards", 0, 2);
}

void build_cluster_next_result(struct msg *m)
{
    begin_cluster(m, 6);
    add_place(m);
    embd__msg_field_uint(m, "next_placement", 2u << 20);
    embd__msg_end(m);
}

void build_cluster_joining_result(struct msg *m)
{
    begin_cluster(m, 6);
    add_place(m);
    add_shards(m, "joining", 2, 1);
    embd__msg_end(m);
}

static void read_cluster(struct reader *r, struct fields *f)
{
    char name[64];
    const msgpack_object *items;
    embd__read_fields(f, r, "cluster");
    embd__field_str(f, "name", name, sizeof name, NULL);
    embd__field_uint(f, "version", 1, 1, FIELD_REQUIRED);
    embd__field_uint(f, "shard", 0, 0, FIELD_REQUIRED);
    embd__field_list(f, "shards", 2, &items);
}

void read_cluster_next_result(struct reader *r)
{
    struct fields f;
    read_cluster(r, &f);
    embd__field_uint(&f, "next_placement", 2u << 20, 2u << 20, FIELD_REQUIRED);
    read_place(r, &f);
}

void read_cluster_joining_result(struct reader *r)
{
    struct fields f;
    struct shard_entry entry;
    const msgpack_object *items;
    read_cluster(r, &f);
    if (embd__field_list(&f, "joining", 1, &items) != 1)
        embd__error_set(r->error, EMBD_INVALID, "one shard joins");
    else if (embd__shard_entry_read(r, &items[0], &entry) == EMBD_OK &&
             strcmp(entry.admin, "/run/embd/2.sock") != 0)
        embd__error_set(r->error, EMBD_INVALID, "another shard joins");
    read_place(r, &f);
}

/* ---- how far it is ---- */

void build_move_state_result(struct msg *m)
{
    embd__msg_result(m, 51);
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "version", 2);
    embd__msg_field_bool(m, "moving", true);
    embd__msg_field_uint(m, "removed", 250000);
    embd__msg_field_uint(m, "unready", 1);
    embd__msg_end(m);
}

void read_move_state_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "move");
    embd__field_uint(&f, "version", 2, 2, FIELD_REQUIRED);
    if (!embd__field_bool(&f, "moving", false) && r->error->status == EMBD_OK)
        embd__error_set(r->error, EMBD_INVALID, "keys move");
    embd__field_uint(&f, "removed", 250000, 250000, FIELD_REQUIRED);
    embd__field_uint(&f, "unready", 1, 1, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* ---- the rate ---- */

void build_snapshot_rate_request(struct msg *m)
{
    embd__msg_request(m, 32, METHOD_SNAPSHOT);
    embd__msg_map(m, 3);
    embd__msg_field_str(m, "name", "move-2");
    embd__msg_field_str(m, "phase", "rate");
    embd__msg_field_uint(m, "rate", 50u << 20);
    embd__msg_end(m);
}

void read_snapshot_rate_request(struct reader *r)
{
    struct fields f;
    char name[65];
    embd__read_fields(&f, r, "snapshot");
    embd__field_str(&f, "name", name, sizeof name, NULL);
    read_phase(&f, "rate");
    embd__field_uint(&f, "rate", 50u << 20, 50u << 20, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_snapshot_rate_result(struct msg *m)
{
    embd__msg_result(m, 32);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "job", 1787922613096031);
    embd__msg_field_str(m, "name", "move-2");
    embd__msg_field_uint(m, "rate", 50u << 20);
    embd__msg_field_uint(m, "expected_rows", 1000000);
    embd__msg_field_uint(m, "expected_bytes", 72000000);
    embd__msg_end(m);
}

void read_snapshot_rate_result(struct reader *r)
{
    struct fields f;
    char name[65];
    embd__read_fields(&f, r, "snapshot");
    embd__field_uint(&f, "job", 1787922613096031, 1787922613096031, FIELD_REQUIRED);
    embd__field_str(&f, "name", name, sizeof name, NULL);
    embd__field_uint(&f, "rate", 50u << 20, 50u << 20, FIELD_REQUIRED);
    embd__field_uint(&f, "expected_rows", 1000000, 1000000, FIELD_REQUIRED);
    embd__field_uint(&f, "expected_bytes", 72000000, 72000000, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* ---- shards that are added ---- */

void build_move_add_request(struct msg *m)
{
    struct placement even, place;
    embd__placement_even(&even, 1, 2);
    embd__placement_resize(&place, &even, 3);
    embd__msg_request(m, 54, METHOD_MOVE);
    embd__msg_map(m, 5);
    embd__msg_field_str(m, "phase", "begin");
    embd__msg_field_uint(m, "id", ID);
    embd__msg_field_uint(m, "shards", 3);
    embd__placement_write(m, &place);
    embd__msg_str(m, "members");
    embd__msg_array(m, 1);
    embd__shard_entry_write(m, "10.0.0.3:7700", "", "10.0.0.3:7790");
    embd__msg_end(m);
}

void read_move_add_request(struct reader *r)
{
    struct fields f;
    struct placement place;
    struct shard_entry entry;
    const msgpack_object *items;
    embd__read_fields(&f, r, "move");
    read_phase(&f, "begin");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    uint32_t n = (uint32_t)embd__field_uint(&f, "shards", 3, 3, FIELD_REQUIRED);
    embd__placement_read(&f, n, &place);
    bool is_one = embd__field_list_required(&f, "members", LIMIT_SHARDS, &items) == 1;
    if (r->error->status == EMBD_OK && is_one)
        embd__shard_entry_read(r, &items[0], &entry);
    embd__fields_end(&f);
    embd__reader_end(r);
    if (r->error->status == EMBD_OK && (!is_one || strcmp(entry.admin_tcp, "10.0.0.3:7790") != 0 ||
                                        embd__placement_count(&place, 2) != 0 || place.is_even))
        embd__error_set(r->error, EMBD_INVALID, "the member or the placement is another");
}

/* ---- shards that leave ---- */

void build_move_retire_request(struct msg *m)
{
    struct placement place;
    struct embd__error e = {.status = EMBD_OK};
    embd__placement_begin(&place, 3, 2, 3, &e);
    embd__placement_add(&place, 0, 512, &e);
    embd__placement_add(&place, 1, 512, &e);
    embd__placement_end(&place, &e);
    embd__msg_request(m, 57, METHOD_MOVE);
    embd__msg_map(m, 5);
    embd__msg_field_str(m, "phase", "begin");
    embd__msg_field_uint(m, "id", ID);
    embd__msg_field_uint(m, "shards", 2);
    embd__msg_field_bool(m, "retires", true);
    embd__placement_write(m, &place);
    embd__msg_end(m);
}

void read_move_retire_request(struct reader *r)
{
    struct fields f;
    struct placement place;
    embd__read_fields(&f, r, "move");
    read_phase(&f, "begin");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    uint32_t n = (uint32_t)embd__field_uint(&f, "shards", 2, 2, FIELD_REQUIRED);
    bool retires = embd__field_bool(&f, "retires", false);
    embd__placement_read(&f, n, &place);
    embd__fields_end(&f);
    embd__reader_end(r);
    if (r->error->status == EMBD_OK && (!retires || place.base != 3 || place.is_even))
        embd__error_set(r->error, EMBD_INVALID, "nobody leaves, or the placement is another");
}

static const uint64_t stream[5] = {ID, 0xfedcba9876543210u, 300, 3, 0}, client[1] = {ID};
static const uint32_t pushed[1] = {300};

void build_move_streams_result(struct msg *m)
{
    embd__msg_result(m, 55);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "journaled", 1);
    embd__msg_field_uint(m, "other", 0);
    embd__msg_bin(m, stream, sizeof stream);
    embd__msg_bin(m, NULL, 0);
    embd__msg_end(m);
}

void read_move_streams_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "move");
    embd__field_uint(&f, "journaled", 1, 1, FIELD_REQUIRED);
    embd__field_uint(&f, "other", 0, 0, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__read_bin(r, "writers", sizeof stream);
    embd__read_bin(r, "writers", 0);
    embd__reader_end(r);
}

void build_move_marks_request(struct msg *m)
{
    embd__msg_request(m, 56, METHOD_MOVE);
    embd__msg_map(m, 3);
    embd__msg_field_str(m, "phase", "marks");
    embd__msg_field_uint(m, "id", ID);
    embd__msg_field_uint(m, "clients", 1);
    embd__msg_bin(m, client, sizeof client);
    embd__msg_bin(m, pushed, sizeof pushed);
    embd__msg_end(m);
}

void read_move_marks_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "move");
    read_phase(&f, "marks");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    embd__field_uint(&f, "clients", 1, 1, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__read_bin(r, "clients", sizeof client);
    embd__read_bin(r, "pushed", sizeof pushed);
    embd__reader_end(r);
}

/* ---- rows ---- */

static void add_row(struct msg *m)
{
    embd__msg_bin(m, keys, sizeof keys);
    embd__msg_bin(m, row, sizeof row);
    embd__msg_bin(m, state, sizeof state);
    embd__msg_bin(m, NULL, 0);
    embd__msg_bin(m, NULL, 0);
    embd__msg_end(m);
}

static void read_row(struct reader *r)
{
    embd__read_bin(r, "keys", sizeof keys);
    embd__read_bin(r, "rows", sizeof row);
    embd__read_bin(r, "states", sizeof state);
    embd__read_bin(r, "candidate keys", 0);
    embd__read_bin(r, "candidate counts", 0);
    embd__reader_end(r);
}

void build_move_read_result(struct msg *m)
{
    embd__msg_result(m, 52);
    embd__msg_map(m, 8);
    embd__msg_field_bool(m, "waits", false);
    embd__msg_field_bool(m, "done", false);
    embd__msg_field_uint(m, "rows", 1);
    embd__msg_field_uint(m, "candidates", 0);
    embd__msg_field_str(m, "table", "items");
    embd__msg_field_uint(m, "partition", EMBD_PARTITION_HASH);
    embd__msg_field_uint(m, "row_bytes", sizeof row);
    embd__msg_field_uint(m, "state_bytes", sizeof state);
    add_row(m);
}

void read_move_read_result(struct reader *r)
{
    struct fields f;
    char table[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, r, "move");
    embd__field_bool(&f, "waits", true);
    embd__field_bool(&f, "done", true);
    embd__field_uint(&f, "rows", 1, 1, FIELD_REQUIRED);
    embd__field_uint(&f, "candidates", 0, 0, FIELD_REQUIRED);
    embd__field_str(&f, "table", table, sizeof table, NULL);
    embd__field_uint(&f, "partition", 0, 0, FIELD_REQUIRED);
    embd__field_uint(&f, "row_bytes", sizeof row, sizeof row, FIELD_REQUIRED);
    embd__field_uint(&f, "state_bytes", sizeof state, sizeof state, FIELD_REQUIRED);
    embd__fields_end(&f);
    read_row(r);
}

void build_move_load_request(struct msg *m)
{
    embd__msg_request(m, 53, METHOD_MOVE_LOAD);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "id", ID);
    embd__msg_field_str(m, "table", "items");
    embd__msg_field_uint(m, "rows", 1);
    embd__msg_field_uint(m, "candidates", 0);
    embd__msg_field_bool(m, "gone", false);
    add_row(m);
}

void read_move_load_request(struct reader *r)
{
    struct fields f;
    char table[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, r, "move_load");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    embd__field_str(&f, "table", table, sizeof table, NULL);
    embd__field_uint(&f, "rows", 1, 1, FIELD_REQUIRED);
    embd__field_uint(&f, "candidates", 0, 0, FIELD_REQUIRED);
    embd__field_bool(&f, "gone", true);
    embd__fields_end(&f);
    read_row(r);
}
