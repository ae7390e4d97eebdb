/* golden_stage.c - tables that are staged and take the places of others. As golden_messages.c has
 * the others. */
#include "tests/unit/golden_stage.h"

#include <string.h>

#include "proto/schema.h"

#define ID UINT64_C(0x0123456789abcdef)

void build_table_stage_request(struct msg *m)
{
    embd__msg_request(m, 41, METHOD_TABLE_STAGE);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", ID);
    embd__msg_str(m, "schema");
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "name", "items");
    embd__msg_field_uint(m, "dim", 16);
    embd__msg_end(m);
}

void read_table_stage_request(struct reader *r)
{
    struct fields f, map;
    struct table_schema schema;
    embd__read_fields(&f, r, "table_stage");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    embd__field_map(&f, "schema", &map, "schema");
    if (embd__schema_read(&map, &schema) == EMBD_OK && schema.s.dim != 16)
        embd__error_set(r->error, EMBD_INVALID, "dim is %u", schema.s.dim);
    embd__schema_fini(&schema);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_table_stage_result(struct msg *m)
{
    embd__msg_result(m, 41);
    embd__msg_map(m, 1);
    embd__msg_field_bool(m, "journaled", true);
    embd__msg_end(m);
}

void read_table_stage_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "table_stage");
    if (!embd__field_bool(&f, "journaled", false))
        embd__error_set(r->error, EMBD_INVALID, "journaled is false");
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* ---- positions of streams ---- */

static const uint64_t stream[5] = {ID, UINT64_C(0xfedcba9876543210), 300, 3, 0};

void build_table_stage_writers_request(struct msg *m)
{
    embd__msg_request(m, 42, METHOD_TABLE_STAGE);
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "writers", 1);
    embd__msg_field_bool(m, "journaled", true);
    embd__msg_field_uint(m, "id", ID);
    embd__msg_field_bool(m, "all", true);
    embd__msg_bin(m, stream, sizeof stream);
    embd__msg_end(m);
}

void read_table_stage_writers_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "table_stage");
    embd__field_uint(&f, "writers", 1, 1, FIELD_REQUIRED);
    bool is_journaled = embd__field_bool(&f, "journaled", false);
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    bool is_all = embd__field_bool(&f, "all", false);
    embd__fields_end(&f);
    const void *bin = embd__read_bin(r, "writers", sizeof stream);
    if (bin != NULL && (!is_journaled || !is_all || memcmp(bin, stream, sizeof stream) != 0))
        embd__error_set(r->error, EMBD_INVALID, "the stream is another one");
    embd__reader_end(r);
}

/* ---- replacing ---- */

void build_table_replace_request(struct msg *m)
{
    embd__msg_request(m, 43, METHOD_TABLE_REPLACE);
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "id", ID);
    embd__msg_field_str(m, "phase", "check");
    embd__msg_field_uint(m, "tables", 1);
    embd__msg_end(m);
}

void read_table_replace_request(struct reader *r)
{
    struct fields f;
    char phase[16];
    embd__read_fields(&f, r, "table_replace");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    embd__field_str(&f, "phase", phase, sizeof phase, NULL);
    embd__field_uint(&f, "tables", 1, 1, FIELD_REQUIRED);
    if (r->error->status == EMBD_OK && strcmp(phase, "check") != 0)
        embd__error_set(r->error, EMBD_INVALID, "the phase is %s", phase);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void build_table_replace_prepare_request(struct msg *m)
{
    embd__msg_request(m, 44, METHOD_TABLE_REPLACE);
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "id", ID);
    embd__msg_field_str(m, "phase", "prepare");
    embd__msg_field_uint(m, "decision", 5);
    embd__msg_end(m);
}

void read_table_replace_prepare_request(struct reader *r)
{
    struct fields f;
    char phase[16];
    embd__read_fields(&f, r, "table_replace");
    embd__field_uint(&f, "id", ID, ID, FIELD_REQUIRED);
    embd__field_str(&f, "phase", phase, sizeof phase, NULL);
    embd__field_uint(&f, "decision", 5, 5, FIELD_REQUIRED);
    if (r->error->status == EMBD_OK && strcmp(phase, "prepare") != 0)
        embd__error_set(r->error, EMBD_INVALID, "the phase is %s", phase);
    embd__fields_end(&f);
    embd__reader_end(r);
}
