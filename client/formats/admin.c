/* admin.c - the admin requests that dump and load are made of.
 *
 * Each function writes one request, waits, and reads one answer with the sticky reader: straight
 * through, checked once at the end. What can fail: the shard cannot be reached or refuses
 * (embd__request has set the client's error), or its answer is not what PROTOCOL.md says
 * (EMBD_PROTOCOL, naming the field). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/formats/admin.h"
#include "client/core/client.h"
#include "proto/load.h"
#include "proto/partfile.h"

struct msg *embd__admin_begin(embd_client *client, enum method method)
{
    struct msg *m = embd__request_begin(client, method);
    client->request.fail_fast = true;
    return m;
}

int embd__admin_end(embd_client *client, uint32_t shard, enum method method, struct answer *answer)
{
    struct embd__error *e = embd__client_error(client);
    embd__reader_end(&answer->reader);
    embd__answer_free(answer);
    if (e->status == EMBD_OK)
        return EMBD_OK;
    struct embd__error inner = *e;
    *e = (struct embd__error){0};
    int status = inner.status == EMBD_NO_MEMORY ? EMBD_NO_MEMORY : EMBD_PROTOCOL;
    return embd__error_set(e, status, "%s: the answer to %s is not understood: %s",
                           embd_shard_address(client, shard), embd__method_name(method),
                           inner.text);
}

/* ---- tables ---- */

int embd__admin_describe(embd_client *client, uint32_t shard, const char *table,
                         struct description *out)
{
    struct answer *answer;
    struct fields f, schema;
    struct msg *m = embd__admin_begin(client, METHOD_TABLE_DESCRIBE);
    embd__msg_map(m, 1);
    embd__msg_field_str(m, "name", table);
    int status = embd__request(client, shard, LISTENER_ADMIN, &answer);
    *out = (struct description){0};
    if (status)
        return status;
    embd__read_fields(&f, &answer->reader, "table_describe");
    embd__field_uint(&f, "id", 1, UINT32_MAX, FIELD_REQUIRED);
    out->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    out->rows = embd__field_uint(&f, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
    out->candidates = embd__field_uint(&f, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_map(&f, "schema", &schema, "schema");
    embd__schema_read(&schema, &out->schema);
    embd__fields_end(&f);
    status = embd__admin_end(client, shard, METHOD_TABLE_DESCRIBE, answer);
    if (status)
        embd__schema_fini(&out->schema);
    return status;
}

/* ---- rows ---- */

static void read_scan(struct answer *answer, const embd_schema *schema, struct scan_block *out)
{
    struct fields f;
    embd__read_fields(&f, &answer->reader, "scan");
    uint64_t n_rows = embd__field_uint(&f, "rows", 0, UINT32_MAX, FIELD_REQUIRED);
    uint64_t n_candidates = embd__field_uint(&f, "candidates", 0, UINT32_MAX, FIELD_REQUIRED);
    out->next = embd__field_uint(&f, "next", 0, UINT64_MAX, FIELD_REQUIRED);
    out->is_done = embd__field_bool(&f, "done", false);
    out->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) == EMBD_OK)
        embd__row_block_read(&answer->reader, schema, (uint32_t)n_rows, (uint32_t)n_candidates,
                             &out->block);
    embd__reader_end(&answer->reader);
}

int embd__admin_scan(embd_client *client, uint32_t shard, uint64_t cut, const embd_schema *schema,
                     uint64_t cursor, struct scan_block *out)
{
    struct embd__error *e = embd__client_error(client);
    struct answer *answer;
    struct msg *m = embd__admin_begin(client, METHOD_SCAN);
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "cut", cut);
    embd__msg_field_str(m, "table", schema->name);
    embd__msg_field_uint(m, "cursor", cursor);
    embd__msg_field_uint(m, "bytes", PARTFILE_BLOCK_BYTES);
    int status = embd__request(client, shard, LISTENER_ADMIN, &answer);
    if (status)
        return status;
    *out = (struct scan_block){.answer = answer};
    read_scan(answer, schema, out);
    if (e->status == EMBD_OK && !out->is_done && out->next == cursor)
        embd__error_set(e, EMBD_PROTOCOL, "cursor %" PRIu64 " does not move on", cursor);
    return e->status ? embd__admin_end(client, shard, METHOD_SCAN, answer) : EMBD_OK;
}

static int load(embd_client *client, uint32_t shard)
{
    struct answer *answer;
    int status = embd__request(client, shard, LISTENER_ADMIN, &answer);
    return status ? status : embd__admin_end(client, shard, METHOD_LOAD, answer);
}

static void write_load(struct msg *m, const embd_schema *schema, const struct row_block *block,
                       struct load_fields *fields)
{
    snprintf(fields->table, sizeof fields->table, "%s", schema->name);
    fields->n_rows = block->n_rows;
    fields->n_candidates = block->n_candidates;
    embd__load_fields_write(m, fields);
    embd__row_block_write(m, schema, block);
}

void embd__admin_load_write(struct msg *m, const embd_schema *schema, uint64_t staged,
                            const struct row_block *block)
{
    struct load_fields fields = {.is_gone = embd__block_is_gone(block), .staged = staged};
    write_load(m, schema, block, &fields);
}

int embd__admin_load(embd_client *client, uint32_t shard, const embd_schema *schema,
                     uint64_t staged, const struct row_block *block)
{
    embd__admin_load_write(embd__admin_begin(client, METHOD_LOAD), schema, staged, block);
    return load(client, shard);
}

int embd__admin_set_step(embd_client *client, uint32_t shard, const embd_schema *schema,
                         uint64_t staged, uint64_t step)
{
    const struct row_block empty = {0};
    struct load_fields fields = {.has_step = true, .step = step, .staged = staged};
    write_load(embd__admin_begin(client, METHOD_LOAD), schema, &empty, &fields);
    return load(client, shard);
}
