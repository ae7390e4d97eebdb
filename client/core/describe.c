/* describe.c - see describe.h; and a table on a shard that is added. */
#include "client/core/describe.h"

#include <string.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "proto/route.h"

int embd__description_read(struct reader *r, const char *name, struct table_schema *out,
                           uint32_t *id_out)
{
    struct fields fields, schema;
    embd__read_fields(&fields, r, "table_describe");
    embd__field_map(&fields, "schema", &schema, "schema");
    *id_out = (uint32_t)embd__field_uint(&fields, "id", 1, UINT32_MAX, FIELD_REQUIRED);
    int status = embd__schema_read(&schema, out);
    if (status != EMBD_OK)
        return status;
    embd__reader_end(r);
    if (strcmp(out->s.name, name) != 0)
        embd__error_set(r->error, EMBD_PROTOCOL, "table %s was requested, the answer describes %s",
                        name, out->s.name);
    if (r->error->status != EMBD_OK)
        embd__schema_fini(out);
    return r->error->status;
}

/* One that was dropped is refused by the shard. */
int embd__table_grow(embd_client *client, embd_table *table, uint32_t shard)
{
    struct answer *answer;
    struct table_schema other;
    embd__msg_map(embd__request_begin(client, METHOD_TABLE_DESCRIBE), 1);
    embd__msg_field_str(&client->request.msg, "name", table->schema.s.name);
    table->ids[shard] = embd__table_id(table->schema.s.name);
    int status = embd__request_on(client, client->shards[shard].link, &answer);
    if (status == EMBD_UNKNOWN_TABLE) {
        client->error = (struct embd__error){0};
        return EMBD_OK;
    }
    if (status != EMBD_OK)
        return status;
    status =
        embd__description_read(&answer->reader, table->schema.s.name, &other, &table->ids[shard]);
    if (status == EMBD_OK)
        embd__schema_fini(&other);
    embd__answer_free(answer);
    return status;
}
