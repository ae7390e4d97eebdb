/* fuzz_schema.c - any bytes as a table_create; what is believed must be sound and travel on
 * unchanged. */
#include <stdlib.h>
#include <string.h>

#include "proto/json_values.h"
#include "tests/unit/received.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void read(struct received *r, struct table_schema *out)
{
    struct reader reader;
    struct fields f, map;
    memset(out, 0, sizeof *out);
    if (received_read(r, &reader) != EMBD_OK)
        return;
    embd__read_fields(&f, &reader, "table_create");
    embd__field_map(&f, "schema", &map, "schema");
    embd__schema_read(&map, out);
    embd__fields_end(&f);
    embd__reader_end(&reader);
}

static void again_over_the_wire(const embd_schema *schema)
{
    struct msg m;
    struct received r;
    struct table_schema out;
    size_t n;
    embd__msg_init(&m);
    embd__msg_request(&m, 1, METHOD_TABLE_CREATE);
    embd__msg_map(&m, 1);
    embd__msg_str(&m, "schema");
    embd__schema_write(&m, schema);
    must(embd__msg_end(&m) == EMBD_OK);
    uint8_t *bytes = flatten(&m, &n);
    received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    must(received_feed(&r, bytes, n, 0) == FRAME_DONE);
    read(&r, &out);
    must(r.error.status == EMBD_OK && embd__schema_difference(schema, &out.s) == NULL);
    embd__schema_fini(&out);
    received_fini(&r);
    free(bytes);
    embd__msg_fini(&m);
}

static void again_as_json(const embd_schema *schema)
{
    struct table_schema out;
    struct embd__error e = {0};
    json_t *json = embd__schema_to_json(schema);
    must(json != NULL);
    must(embd__schema_from_json(json, "schema", &out, &e) == EMBD_OK);
    must(embd__schema_difference(schema, &out.s) == NULL);
    embd__schema_fini(&out);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct received r;
    struct table_schema schema;
    received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    if (received_feed(&r, data, n, 0) == FRAME_DONE) {
        read(&r, &schema);
        if (r.error.status == EMBD_OK) {
            must(embd_schema_check(&schema.s) == EMBD_OK);
            again_over_the_wire(&schema.s);
            again_as_json(&schema.s);
        }
        embd__schema_fini(&schema);
    }
    received_fini(&r);
    return 0;
}
