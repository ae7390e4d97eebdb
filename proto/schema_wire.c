/* schema_wire.c - a schema as a map of a message; the bin of slot_sizes follows the map. A map
 * names the parameters of its own optimizer and initializer only; what it leaves out takes the
 * kind's default. */
#include "proto/schema.h"

#include <string.h>

#include "proto/reading.h"
#include "proto/schema_change.h"
#include "proto/schema_fields.h"

/* ---- writing ---- */

static uint32_t count_fields(const struct schema_group *group, const embd_schema *schema)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < group->n_fields; i++)
        n += embd__schema_is_written(group, &group->fields[i], schema);
    return n;
}

static void write_fields(struct msg *m, const struct schema_group *group, const embd_schema *schema)
{
    for (uint32_t i = 0; i < group->n_fields; i++)
        if (embd__schema_is_written(group, &group->fields[i], schema))
            embd__schema_field_write(m, &group->fields[i], schema);
}

void embd__schema_write(struct msg *m, const embd_schema *schema)
{
    bool has_sizes = schema->slot_sizes != NULL;
    const struct schema_group *own = &embd__schema_groups[0];
    char changed[SCHEMA_CHANGED_BYTES];
    bool has_changed = embd__schema_changed_names(schema->changed, changed);
    embd__msg_map(m, 1u + has_changed + has_sizes + count_fields(own, schema) + SCHEMA_GROUPS - 1);
    embd__msg_field_str(m, "name", schema->name);
    if (has_changed)
        embd__msg_field_str(m, "changed", changed);
    if (has_sizes)
        embd__msg_field_bool(m, "slot_sizes", true);
    write_fields(m, own, schema);
    for (const struct schema_group *g = own + 1; g < own + SCHEMA_GROUPS; g++) {
        embd__msg_str(m, g->name);
        embd__msg_map(m, count_fields(g, schema));
        write_fields(m, g, schema);
    }
    if (has_sizes)
        embd__msg_bin(m, schema->slot_sizes, 8ull * schema->slots);
}

/* ---- reading ---- */

static void read_own(struct fields *map, embd_schema *schema)
{
    const struct schema_group *own = &embd__schema_groups[0];
    embd__field_str(map, "name", schema->name, sizeof schema->name, NULL);
    for (uint32_t i = 0; i < own->n_fields; i++)
        if (embd__schema_applies(own, &own->fields[i], schema))
            embd__schema_field_read(map, &own->fields[i], schema);
}

static void read_group(struct fields *map, const struct schema_group *group, embd_schema *schema)
{
    struct fields nested;
    char what[32];
    strcpy(stpcpy(what, "schema "), group->name);
    embd__field_map(map, group->name, &nested, what);
    embd__schema_field_read(&nested, &group->fields[0], schema);
    embd__schema_reset_group(schema, group);
    for (uint32_t i = 1; i < group->n_fields; i++)
        if (embd__schema_applies(group, &group->fields[i], schema))
            embd__schema_field_read(&nested, &group->fields[i], schema);
    embd__fields_end(&nested);
}

static void read_changed(struct fields *map, embd_schema *schema)
{
    struct reader *r = map->reader;
    struct embd__error found = {0};
    char names[SCHEMA_CHANGED_BYTES];
    embd__field_str(map, "changed", names, sizeof names, "");
    if (r->error->status == EMBD_OK &&
        embd__schema_changed_read(names, &schema->changed, &found) != EMBD_OK)
        embd__error_set(r->error, embd__reader_fault(r, found.status), "%s", found.text);
}

/* An error of schema_check is the reader's error too. */
static void check(struct reader *r, const embd_schema *schema)
{
    struct embd__error found = {0};
    if (r->error->status == EMBD_OK && embd__schema_check(schema, &found) != EMBD_OK)
        embd__error_set(r->error, embd__reader_fault(r, found.status), "%s", found.text);
}

int embd__schema_read(struct fields *map, struct table_schema *out)
{
    struct reader *r = map->reader;
    embd_schema schema;
    memset(out, 0, sizeof *out);
    embd_schema_init(&schema);
    read_own(map, &schema);
    for (uint32_t i = 1; i < SCHEMA_GROUPS; i++)
        read_group(map, &embd__schema_groups[i], &schema);
    read_changed(map, &schema);
    bool has_sizes = embd__field_bool(map, "slot_sizes", false);
    if (embd__fields_end(map) == EMBD_OK && has_sizes)
        schema.slot_sizes = embd__read_bin(r, "slot_sizes", 8ull * schema.slots);
    check(r, &schema);
    if (r->error->status == EMBD_OK)
        embd__schema_copy(out, &schema, r->error);
    return r->error->status;
}
