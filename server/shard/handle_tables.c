/* handle_tables.c - listing, creating, dropping and describing tables. */
#include <stdlib.h>
#include <string.h>

#include "server/shard/base.h"
#include "server/shard/commit.h"
#include "server/shard/permit.h"
#include "proto/route.h"
#include "server/shard/settle.h"
#include "server/shard/state.h"

int handle_tables(struct call *call)
{
    const struct tables *tables = &call->shard->tables;
    struct fields f;
    uint32_t n = 0;
    embd__read_fields(&f, &call->reader, "tables");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < tables->n; i++)
        n += permits_table(call, tables->by_name[i]->schema.s.name);
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 1);
    embd__msg_str(m, "tables");
    embd__msg_array(m, n);
    for (uint32_t i = 0; i < tables->n; i++) {
        if (!permits_table(call, tables->by_name[i]->schema.s.name))
            continue;
        embd__msg_map(m, 2);
        embd__msg_field_str(m, "name", tables->by_name[i]->schema.s.name);
        embd__msg_field_uint(m, "id", tables->ids[i]);
    }
    return EMBD_OK;
}

/* What `auto` means here: the definition that a table keeps has no `auto`. */
static void resolve_durability(const struct call *call, embd_schema *schema)
{
    bool can_be_kept = call->shard->data_dir >= 0 && schema->create_on != EMBD_CREATE_ON_PULL;
    const struct table *table = tables_by_id(&call->shard->tables, embd__table_id(schema->name));
    if (schema->durability != EMBD_DURABILITY_AUTO)
        return;
    schema->durability = can_be_kept ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT;
    if (table != NULL)
        schema->durability = table->schema.s.durability;
}

int handle_table_create(struct call *call)
{
    struct fields f, map;
    struct table_schema schema;
    struct table *table;
    bool created;
    embd__read_fields(&f, &call->reader, "table_create");
    embd__field_map(&f, "schema", &map, "schema");
    bool is_read = embd__schema_read(&map, &schema) == EMBD_OK;
    if (is_read)
        resolve_durability(call, &schema.s);
    if (is_read && call_end(call, &f) == EMBD_OK && permit_table(call, schema.s.name) == EMBD_OK &&
        tables_create(&call->shard->tables, &schema.s, &table, &created, &call->error) == EMBD_OK &&
        created && commit_create(call, &schema.s) != EMBD_OK)
        tables_drop(&call->shard->tables, table);
    embd__schema_fini(&schema);
    if (call->error.status != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 2);
    embd__msg_field_uint(call->answer, "id", table->id);
    embd__msg_field_bool(call->answer, "created", created);
    return EMBD_OK;
}

/* The table a request of nothing but {name} means. */
static struct table *read_name(struct call *call, const char *what)
{
    struct fields f;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, &call->reader, what);
    embd__field_str(&f, "name", name, sizeof name, NULL);
    if (call_end(call, &f) != EMBD_OK || permit_table(call, name) != EMBD_OK)
        return NULL;
    return tables_find(&call->shard->tables, name, &call->error);
}

int handle_table_drop(struct call *call)
{
    struct table *table = read_name(call, "table_drop");
    if (table != NULL && call->shard->cut != NULL)
        return embd__error_set(&call->error, EMBD_BUSY,
                               "table '%s' is in a snapshot that is being written",
                               table->schema.s.name);
    if (table == NULL ||
        settle(call->shard, call->request->session, table, CHANGE_DROP, &call->error) != EMBD_OK ||
        commit_now(call, table->schema.s.durability) != EMBD_OK)
        return call->error.status;
    base_give_up(call->shard);
    tables_drop(&call->shard->tables, table);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

/* The answer's slot_sizes must outlive the table, which may be dropped before they are sent. */
static int keep_slot_sizes(struct call *call, embd_schema *schema)
{
    if (schema->slot_sizes == NULL)
        return EMBD_OK;
    size_t bytes = schema->slots * sizeof *schema->slot_sizes;
    uint64_t *sizes = malloc(bytes);
    if (sizes == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for %u slot_sizes",
                               schema->slots);
    memcpy(sizes, schema->slot_sizes, bytes);
    schema->slot_sizes = call->work->memory = sizes;
    return EMBD_OK;
}

int handle_table_describe(struct call *call)
{
    const struct table *table = read_name(call, "table_describe");
    if (table == NULL)
        return call->error.status;
    embd_schema schema = table->schema.s;
    struct store_stats stats;
    if (keep_slot_sizes(call, &schema) != EMBD_OK)
        return call->error.status;
    call->shard->tables.ops->stats(table->store, &stats);
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "id", table->id);
    embd__msg_field_uint(m, "step", stats.steps);
    embd__msg_field_uint(m, "rows", stats.rows);
    embd__msg_field_uint(m, "candidates", stats.candidates);
    embd__msg_str(m, "schema"); /* last: its slot_sizes are a bin after the map */
    embd__schema_write(m, &schema);
    return EMBD_OK;
}
