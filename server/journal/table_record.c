/* table_record.c - see table_record.h. */
#include "server/journal/table_record.h"

#include "proto/route.h"
#include "server/engine/engine.h"
#include "server/journal/row_record.h"

/* ---- writing ---- */

static bool has_id(uint32_t id, const embd_schema *schema)
{
    return id != 0 && id != embd__table_id(schema->name);
}

/* The definition comes last: its slot_sizes are a bin behind the map. */
static void write_table(struct msg *m, uint32_t id, const embd_schema *schema)
{
    if (has_id(id, schema))
        embd__msg_field_uint(m, "table", id);
    embd__msg_str(m, "schema");
    embd__schema_write(m, schema);
}

void table_record_create_write(struct msg *m, const struct op_create *create)
{
    embd__msg_map(m, 1u + has_id(create->id, &create->schema.s));
    write_table(m, create->id, &create->schema.s);
}

void table_record_stage_write(struct msg *m, const struct op_stage *stage)
{
    embd__msg_map(m, 2u + has_id(stage->table, &stage->schema.s));
    embd__msg_field_uint(m, "id", stage->id);
    write_table(m, stage->table, &stage->schema.s);
}

void table_record_unstage_write(struct msg *m, uint64_t id)
{
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", id);
    embd__msg_field_bool(m, "drop", true);
}

void table_record_set_write(struct msg *m, const struct op_table_set *set)
{
    const struct table *table = set->table;
    bool with_id = has_id(table->id, &table->schema.s);
    embd__msg_map(m, 2u + with_id);
    embd__msg_field_str(m, "name", table->schema.s.name);
    if (with_id)
        embd__msg_field_uint(m, "table", table->id);
    embd__msg_str(m, "set");
    embd__schema_change_write(m, &set->change);
}

/* ---- reading ---- */

/* Frees the schema after an error. */
static int read_table(struct fields *f, struct table_schema *out, uint32_t *id_out)
{
    struct fields map;
    *id_out = (uint32_t)embd__field_uint(f, "table", 1, UINT32_MAX, 0);
    embd__field_map(f, "schema", &map, "schema");
    if (embd__schema_read(&map, out) != EMBD_OK)
        return f->reader->error->status;
    if (*id_out == 0)
        *id_out = embd__table_id(out->s.name);
    if (embd__fields_end(f) != EMBD_OK || embd__reader_end(f->reader) != EMBD_OK)
        embd__schema_fini(out);
    return f->reader->error->status;
}

/* Later records name the table by it. */
static int check_id(const struct op *op, uint32_t id, const char *name, struct embd__error *e)
{
    if (tables_id_is_free(&op->engine->tables, id, name))
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT,
                           "the record gives table '%s' the id %u, which another table has", name,
                           id);
}

/* Records of earlier versions have the request's `auto`, and are of tables that are kept. */
static void resolve_durability(const struct op *op, embd_schema *schema)
{
    const struct table *table = tables_by_name(&op->engine->tables, schema->name);
    if (schema->durability == EMBD_DURABILITY_AUTO)
        schema->durability = table != NULL ? table->schema.s.durability : EMBD_DURABILITY_DURABLE;
}

int table_record_create_read(struct op *op, struct reader *r)
{
    struct op_create *create = &op->as.create;
    struct fields f;
    *create = (struct op_create){.id = 0};
    embd__read_fields(&f, r, "table_create");
    if (read_table(&f, &create->schema, &create->id) != EMBD_OK)
        return r->error->status;
    if (row_record_is_left_out(op, create->schema.s.name)) {
        tables_left_out_name(&op->engine->tables, create->schema.s.name)->id = create->id;
        embd__schema_fini(&create->schema);
        return EMBD_OK;
    }
    resolve_durability(op, &create->schema.s);
    return check_id(op, create->id, create->schema.s.name, r->error);
}

/* It was dropped then: what came before does not count. */
static void forget_left_out(struct left_out *left_out)
{
    left_out->id = 0;
    left_out->rows = left_out->pushed_keys = 0;
    left_out->is_found = false;
}

int table_record_drop_read(struct op *op, struct reader *r)
{
    struct fields f;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, r, "table_drop");
    embd__field_str(&f, "name", name, sizeof name, NULL);
    if (embd__fields_end(&f) != EMBD_OK || embd__reader_end(r) != EMBD_OK)
        return r->error->status;
    if (row_record_is_left_out(op, name))
        forget_left_out(tables_left_out_name(&op->engine->tables, name));
    else if (!row_record_is_skipped(op, name))
        op->as.dropped = tables_find(&op->engine->tables, name, r->error);
    return r->error->status;
}

/* A table that is apart may be named: its durability is set. */
static int find_set(struct op *op, struct embd__error *e)
{
    struct op_table_set *set = &op->as.set;
    set->table = tables_by_name(&op->engine->tables, set->name);
    if (set->table != NULL || embd__schema_change_durability(&set->change) != NULL ||
        row_record_is_skipped(op, set->name))
        return EMBD_OK;
    tables_find(&op->engine->tables, set->name, e);
    return e->status;
}

int table_record_set_read(struct op *op, struct reader *r)
{
    struct op_table_set *set = &op->as.set;
    struct fields f, map;
    embd__read_fields(&f, r, "table_set");
    embd__field_str(&f, "name", set->name, sizeof set->name, NULL);
    set->id = (uint32_t)embd__field_uint(&f, "table", 1, UINT32_MAX, 0);
    embd__field_map(&f, "set", &map, "set");
    if (embd__schema_change_read(&map, &set->change) != EMBD_OK ||
        embd__fields_end(&f) != EMBD_OK || embd__reader_end(r) != EMBD_OK ||
        row_record_is_left_out(op, set->name))
        return r->error->status;
    if (set->id == 0)
        set->id = embd__table_id(set->name);
    return find_set(op, r->error);
}

static int read_unstage(struct op *op, struct fields *f, uint64_t id)
{
    struct tables *tables = &op->engine->tables;
    op->kind = OP_UNSTAGE;
    op->as.unstaged = id;
    for (uint32_t i = 0; i < tables->n_left_out; i++)
        if (tables->left_out[i].staged_set == id)
            tables->left_out[i].staged_id = 0;
    embd__fields_end(f);
    return embd__reader_end(f->reader);
}

int table_record_stage_read(struct op *op, struct reader *r)
{
    struct op_stage *stage = &op->as.stage;
    struct fields f;
    embd__read_fields(&f, r, "table_stage");
    uint64_t id = embd__field_uint(&f, "id", 1, UINT64_MAX, FIELD_REQUIRED);
    if (embd__field_bool(&f, "drop", false))
        return read_unstage(op, &f, id);
    op->kind = OP_STAGE;
    *stage = (struct op_stage){.id = id};
    if (read_table(&f, &stage->schema, &stage->table) != EMBD_OK)
        return r->error->status;
    if (row_record_is_left_out(op, stage->schema.s.name)) {
        struct left_out *left_out = tables_left_out_name(&op->engine->tables, stage->schema.s.name);
        left_out->staged_id = stage->table;
        left_out->staged_set = id;
        embd__schema_fini(&stage->schema);
        return EMBD_OK;
    }
    return check_id(op, stage->table, stage->schema.s.name, r->error);
}

void table_record_replaced(struct tables *tables, uint64_t id)
{
    for (uint32_t i = 0; i < tables->n_left_out; i++) {
        struct left_out *left_out = &tables->left_out[i];
        if (left_out->staged_set != id)
            continue;
        left_out->id = left_out->id != 0 ? left_out->id : left_out->staged_id;
        left_out->staged_id = 0;
    }
}
