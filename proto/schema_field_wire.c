/* schema_field_wire.c - one field of a schema in a map of a message. */
#include "proto/names.h"
#include "proto/reading.h"
#include "proto/schema.h"
#include "proto/schema_fields.h"

void embd__schema_field_write(struct msg *m, const struct schema_field *field,
                              const embd_schema *schema)
{
    switch (field->type) {
    case SCHEMA_F32:
        embd__msg_field_f32(m, field->name, embd__schema_get_f32(schema, field));
        return;
    case SCHEMA_BOOL:
        embd__msg_field_bool(m, field->name, embd__schema_get(schema, field));
        return;
    case SCHEMA_ENUM:
        embd__msg_field_str(m, field->name, field->names[embd__schema_get(schema, field)]);
        return;
    case SCHEMA_U32:
    case SCHEMA_U64:
        embd__msg_field_uint(m, field->name, embd__schema_get(schema, field));
    }
}

void embd__schema_field_read(struct fields *map, const struct schema_field *field,
                             embd_schema *schema)
{
    switch (field->type) {
    case SCHEMA_F32:
        embd__schema_put_f32(
            schema, field, embd__field_f32(map, field->name, embd__schema_get_f32(schema, field)));
        return;
    case SCHEMA_BOOL:
        embd__schema_put(schema, field,
                         embd__field_bool(map, field->name, embd__schema_get(schema, field)));
        return;
    case SCHEMA_ENUM:
        embd__schema_put(schema, field,
                         (uint64_t)embd__field_enum(map, field->name, field->names,
                                                    embd__names_count(field->names),
                                                    (int)embd__schema_get(schema, field)));
        return;
    case SCHEMA_U32:
    case SCHEMA_U64:
        embd__schema_put(schema, field,
                         embd__field_uint(map, field->name, field->min, field->max,
                                          embd__schema_get(schema, field)));
    }
}
