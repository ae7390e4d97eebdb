/* schema_json.c - a schema as a JSON object of a manifest, like the map of schema_wire.c but for
 * slot_sizes, which stand in it as an array. All of a schema's fields are there, but later ones:
 * a dump says what it is without defaults. */
#include "proto/json_values.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "proto/names.h"
#include "proto/schema_change.h"
#include "proto/schema_fields.h"

/* ---- writing: jansson takes NULL values as failures, so one check at the end of each object is
 * enough ---- */

static json_t *value_to_json(const struct schema_field *field, const embd_schema *schema)
{
    switch (field->type) {
    case SCHEMA_F32:
        return json_real((double)embd__schema_get_f32(schema, field));
    case SCHEMA_BOOL:
        return json_boolean(embd__schema_get(schema, field));
    case SCHEMA_ENUM:
        return json_string(field->names[embd__schema_get(schema, field)]);
    case SCHEMA_U32:
    case SCHEMA_U64:
        break;
    }
    return embd__json_u64(embd__schema_get(schema, field));
}

/* Nonzero: out of memory. */
static int set_fields(json_t *object, const struct schema_group *group, const embd_schema *schema)
{
    int failed = 0;
    for (uint32_t i = 0; i < group->n_fields; i++) {
        const struct schema_field *field = &group->fields[i];
        if (embd__schema_is_written(group, field, schema))
            failed |= json_object_set_new(object, field->name, value_to_json(field, schema));
    }
    return failed;
}

static json_t *group_to_json(const struct schema_group *group, const embd_schema *schema)
{
    json_t *object = json_object();
    if (object != NULL && set_fields(object, group, schema) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *sizes_to_json(const embd_schema *schema)
{
    json_t *array = json_array();
    int failed = 0;
    for (uint32_t s = 0; array != NULL && s < schema->slots; s++)
        failed |= json_array_append_new(array, embd__json_u64(schema->slot_sizes[s]));
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

json_t *embd__schema_to_json(const embd_schema *schema)
{
    char changed[SCHEMA_CHANGED_BYTES];
    json_t *object = json_object();
    int failed = object == NULL;
    failed |= json_object_set_new(object, "name", json_string(schema->name));
    if (embd__schema_changed_names(schema->changed, changed))
        failed |= json_object_set_new(object, "changed", json_string(changed));
    if (schema->slot_sizes != NULL)
        failed |= json_object_set_new(object, "slot_sizes", sizes_to_json(schema));
    failed |= object != NULL && set_fields(object, &embd__schema_groups[0], schema);
    for (uint32_t i = 1; i < SCHEMA_GROUPS; i++) {
        const struct schema_group *group = &embd__schema_groups[i];
        failed |= json_object_set_new(object, group->name, group_to_json(group, schema));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- reading ---- */

static void read_f32(struct members *m, const struct schema_field *field, embd_schema *schema)
{
    const json_t *value = embd__member(m, field->name, true);
    if (value != NULL && !json_is_number(value))
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is not a number", m->what, field->name);
    double number = json_number_value(value); /* 0 for anything that is not a number */
    if (fabs(number) > (double)FLT_MAX)
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is %g, beyond f32", m->what, field->name,
                        number);
    if (m->error->status == EMBD_OK)
        embd__schema_put_f32(schema, field, (float)number);
}

static void read_bool(struct members *m, const struct schema_field *field, embd_schema *schema)
{
    const json_t *value = embd__member(m, field->name, true);
    if (value != NULL && !json_is_boolean(value))
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is not a boolean", m->what, field->name);
    if (m->error->status == EMBD_OK)
        embd__schema_put(schema, field, json_is_true(value));
}

static void read_enum(struct members *m, const struct schema_field *field, embd_schema *schema)
{
    char text[32];
    embd__member_str(m, field->name, text, sizeof text);
    for (uint64_t i = 0; m->error->status == EMBD_OK && field->names[i] != NULL; i++)
        if (strcmp(field->names[i], text) == 0) {
            embd__schema_put(schema, field, i);
            return;
        }
    embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is '%s', which is unknown", m->what,
                    field->name, text);
}

static void read_field(struct members *m, const struct schema_field *field, embd_schema *schema)
{
    switch (field->type) {
    case SCHEMA_F32:
        read_f32(m, field, schema);
        return;
    case SCHEMA_BOOL:
        read_bool(m, field, schema);
        return;
    case SCHEMA_ENUM:
        read_enum(m, field, schema);
        return;
    case SCHEMA_U32:
    case SCHEMA_U64:
        embd__schema_put(schema, field, embd__member_u64(m, field->name, field->max));
    }
}

static void read_fields(struct members *m, const struct schema_group *group, embd_schema *schema)
{
    for (uint32_t i = 0; i < group->n_fields; i++) {
        const struct schema_field *field = &group->fields[i];
        bool is_absent = field->is_later && json_object_get(m->object, field->name) == NULL;
        if (is_absent || !embd__schema_applies(group, field, schema))
            continue;
        read_field(m, field, schema);
        if (i == 0 && group->name[0] != '\0') /* kind; parameters of other kinds take the default */
            embd__schema_reset_group(schema, group);
    }
}

static void read_changed(struct members *m, embd_schema *schema)
{
    char names[SCHEMA_CHANGED_BYTES];
    struct embd__error found = {0};
    if (m->error->status != EMBD_OK || json_object_get(m->object, "changed") == NULL)
        return;
    embd__member_str(m, "changed", names, sizeof names);
    if (m->error->status == EMBD_OK &&
        embd__schema_changed_read(names, &schema->changed, &found) != EMBD_OK)
        embd__error_set(m->error, EMBD_CORRUPT, "%s: %s", m->what, found.text);
}

static void read_sizes(struct members *m, embd_schema *schema, uint64_t sizes[EMBD_SLOTS_MAX])
{
    size_t n;
    if (m->error->status != EMBD_OK || json_object_get(m->object, "slot_sizes") == NULL)
        return;
    const json_t *array = embd__member_array(m, "slot_sizes", EMBD_SLOTS_MAX, &n);
    if (array != NULL && n != schema->slots)
        embd__error_set(m->error, EMBD_CORRUPT, "%s 'slot_sizes' has %zu elements, 'slots' is %u",
                        m->what, n, schema->slots);
    for (size_t s = 0; s < n && m->error->status == EMBD_OK; s++)
        sizes[s] = embd__json_to_u64(m, "slot_sizes", json_array_get(array, s), UINT64_MAX);
    schema->slot_sizes = sizes;
}

int embd__schema_from_json(const json_t *object, const char *what, struct table_schema *out,
                           struct embd__error *e)
{
    embd_schema schema;
    struct members m, nested;
    uint64_t sizes[EMBD_SLOTS_MAX];
    memset(out, 0, sizeof *out);
    embd_schema_init(&schema);
    embd__members_open(&m, object, what, e);
    embd__member_str(&m, "name", schema.name, sizeof schema.name);
    read_fields(&m, &embd__schema_groups[0], &schema);
    for (uint32_t i = 1; i < SCHEMA_GROUPS; i++) {
        const struct schema_group *group = &embd__schema_groups[i];
        embd__members_open(&nested, embd__member(&m, group->name, true), group->name, e);
        read_fields(&nested, group, &schema);
        embd__members_end(&nested);
    }
    read_changed(&m, &schema);
    read_sizes(&m, &schema, sizes);
    if (embd__members_end(&m) == EMBD_OK && embd__schema_check(&schema, e) == EMBD_OK)
        embd__schema_copy(out, &schema, e);
    return e->status;
}
