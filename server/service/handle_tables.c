/* handle_tables.c - listing, creating, dropping and describing tables. */
#include <stdlib.h>
#include <string.h>

#include "server/service/authorize.h"
#include "server/service/state.h"
#include "server/service/token_use.h"
#include "server/snapshot/disk_phase.h"

int handle_tables(struct call *call)
{
    const struct tables *tables = &call->shard->engine.tables;
    struct fields f;
    uint32_t n = 0;
    embd__read_fields(&f, &call->reader, "tables");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < tables->n; i++)
        n += authorizes_table(call, tables->by_name[i]->schema.s.name);
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 1);
    embd__msg_str(m, "tables");
    embd__msg_array(m, n);
    for (uint32_t i = 0; i < tables->n; i++) {
        if (!authorizes_table(call, tables->by_name[i]->schema.s.name))
            continue;
        embd__msg_map(m, 2);
        embd__msg_field_str(m, "name", tables->by_name[i]->schema.s.name);
        embd__msg_field_uint(m, "id", tables->by_name[i]->id);
    }
    return EMBD_OK;
}

/* Replaces `auto` by its meaning here: a table's definition never has `auto`. */
static void resolve_durability(const struct call *call, embd_schema *schema)
{
    bool can_be_kept = call->shard->data_dir >= 0 && schema->create_on != EMBD_CREATE_ON_PULL;
    const struct table *table = tables_by_name(&call->shard->engine.tables, schema->name);
    if (schema->durability != EMBD_DURABILITY_AUTO)
        return;
    schema->durability = can_be_kept ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT;
    if (table != NULL)
        schema->durability = table->schema.s.durability;
}

/* The table is new here, and will be journaled. */
static int check_durability(struct call *call, const embd_schema *schema)
{
    if (schema->durability == EMBD_DURABILITY_SNAPSHOT || call->shard->data_dir >= 0 ||
        tables_by_name(&call->shard->engine.tables, schema->name) != NULL)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                           "schema field 'durability' is '%s', and this server has no data "
                           "directory; allowed is 'snapshot'",
                           embd_durability_name(schema->durability));
}

static void created(const struct shard_work *work, struct msg *m)
{
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", work->op.table->id);
    embd__msg_field_bool(m, "created", work->op.created);
}

int handle_table_create(struct call *call)
{
    struct op *op = work_op(call->work, OP_TABLE_CREATE);
    embd_schema *schema = &op->as.create.schema.s;
    struct fields f, map;
    op->as.create = (struct op_create){.id = 0};
    embd__read_fields(&f, &call->reader, "table_create");
    embd__field_map(&f, "schema", &map, "schema");
    if (embd__schema_read(&map, &op->as.create.schema) != EMBD_OK)
        return call->error.status;
    resolve_durability(call, schema);
    if (call_end(call, &f) != EMBD_OK || authorize_table(call, schema->name) != EMBD_OK ||
        token_use_check_new(call, schema->name) != EMBD_OK ||
        check_durability(call, schema) != EMBD_OK)
        return call->error.status;
    return submit(call, created);
}

/* The table a request of nothing but {name} means. */
static struct table *read_name(struct call *call, const char *what)
{
    struct fields f;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, &call->reader, what);
    embd__field_str(&f, "name", name, sizeof name, NULL);
    if (call_end(call, &f) != EMBD_OK || authorize_table(call, name) != EMBD_OK)
        return NULL;
    return tables_find(&call->shard->engine.tables, name, &call->error);
}

int handle_table_drop(struct call *call)
{
    struct table *table = read_name(call, "table_drop");
    if (table != NULL && (call->shard->cut != NULL || call->shard->cut_read != NULL ||
                          disk_phase_has_cut(call->shard)))
        return embd__error_set(&call->error, EMBD_BUSY,
                               "table '%s' is in a snapshot or dump that is being written",
                               table->schema.s.name);
    if (table == NULL)
        return call->error.status;
    work_op(call->work, OP_TABLE_DROP)->as.dropped = table;
    return submit(call, submit_result_empty);
}

/* From the step after this one the table goes by it. */
static void write_step(const struct shard *shard, const struct table *table, struct msg *m)
{
    struct store_stats stats;
    bool joins = table->joins != EMBD_DURABILITY_SNAPSHOT;
    shard->engine.tables.ops->stats(table->store, &stats);
    embd__msg_map(m, 1u + joins);
    embd__msg_field_uint(m, "step", stats.steps);
    if (joins)
        embd__msg_field_bool(m, "pending", true);
}

static void was_set(const struct shard_work *work, struct msg *m)
{
    write_step(work->shard, work->op.as.set.table, m);
}

static int check_journal(struct call *call, const struct schema_change *change)
{
    const embd_durability *to = embd__schema_change_durability(change);
    if (to == NULL || *to == EMBD_DURABILITY_SNAPSHOT || call->shard->commit.journal != NULL)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                           "schema field 'durability' cannot be set to '%s': this server has no "
                           "data directory, and so no journal; start it with --data-dir",
                           embd_durability_name(*to));
}

static int tell_check(struct call *call, const struct op_table_set *set)
{
    if (tables_check_set(&call->shard->engine.tables, set->table, &set->change, &call->error) !=
        EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    write_step(call->shard, set->table, call->answer);
    return EMBD_OK;
}

int handle_table_set(struct call *call)
{
    struct op_table_set *set = &work_op(call->work, OP_TABLE_SET)->as.set;
    struct fields f, map;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, &call->reader, "table_set");
    embd__field_str(&f, "name", name, sizeof name, NULL);
    bool only_checks = embd__field_bool(&f, "check", false);
    embd__field_map(&f, "set", &map, "set");
    if (embd__schema_change_read(&map, &set->change) != EMBD_OK || call_end(call, &f) != EMBD_OK ||
        authorize_table(call, name) != EMBD_OK)
        return call->error.status;
    set->table = tables_find(&call->shard->engine.tables, name, &call->error);
    if (set->table == NULL || check_journal(call, &set->change) != EMBD_OK)
        return call->error.status;
    return only_checks ? tell_check(call, set) : submit(call, was_set);
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
    call->shard->engine.tables.ops->stats(table->store, &stats);
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    bool joins = table->joins != EMBD_DURABILITY_SNAPSHOT, failed = table->joining_why[0] != '\0';
    embd__msg_map(m, 5u + joins + failed);
    embd__msg_field_uint(m, "id", table->id);
    if (joins)
        embd__msg_field_str(m, "becomes", embd_durability_name(table->joins));
    if (failed)
        embd__msg_field_str(m, "failed", table->joining_why);
    embd__msg_field_uint(m, "step", stats.steps);
    embd__msg_field_uint(m, "rows", stats.rows);
    embd__msg_field_uint(m, "candidates", stats.candidates);
    embd__msg_str(m, "schema"); /* last: its slot_sizes are a bin after the map */
    embd__schema_write(m, &schema);
    return EMBD_OK;
}
