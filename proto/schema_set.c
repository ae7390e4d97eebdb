/* schema_set.c - schema fields from text, as the command line and configuration give them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/names.h"
#include "proto/schema.h"
#include "proto/schema_fields.h"

static int unreadable(const char *field, const char *value, const char *expected,
                      struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID, "schema field '%.60s' is '%.60s', expected %s", field,
                           value, expected);
}

/* Digits only: strtoull alone accepts signs and blanks. Returns the end, NULL if it is not a
 * u64. */
static const char *parse_u64(const char *text, uint64_t *value_out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *value_out = value;
    return errno == 0 ? end : NULL;
}

static int set_uint(embd_schema *schema, const struct schema_field *f, const char *name,
                    const char *text, struct embd__error *e)
{
    uint64_t value;
    const char *end = parse_u64(text, &value);
    if (end == NULL || *end != '\0')
        return unreadable(name, text, "an unsigned integer", e);
    if (value < f->min || value > f->max)
        return embd__error_set(
            e, EMBD_INVALID, "schema field '%s' is %llu, allowed are %llu to %llu", name,
            (unsigned long long)value, (unsigned long long)f->min, (unsigned long long)f->max);
    if (f->at == offsetof(embd_schema, slots) && schema->slot_sizes != NULL &&
        value != schema->slots)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'slots' is %llu, but slot_sizes has %u",
                               (unsigned long long)value, schema->slots);
    embd__schema_put(schema, f, value);
    return EMBD_OK;
}

static int set_f32(embd_schema *schema, const struct schema_field *f, const char *name,
                   const char *text, struct embd__error *e)
{
    char *end;
    float value = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return unreadable(name, text, "a finite number", e);
    embd__schema_put_f32(schema, f, value);
    return EMBD_OK;
}

static int set_bool(embd_schema *schema, const struct schema_field *f, const char *name,
                    const char *text, struct embd__error *e)
{
    bool is_true = strcmp(text, "true") == 0;
    if (!is_true && strcmp(text, "false") != 0)
        return unreadable(name, text, "true or false", e);
    embd__schema_put(schema, f, is_true);
    return EMBD_OK;
}

static int set_enum(embd_schema *schema, const struct schema_field *f, const char *name,
                    const char *text, struct embd__error *e)
{
    char known[160] = "one of";
    for (uint64_t i = 0; f->names[i] != NULL; i++) {
        if (strcmp(f->names[i], text) == 0) {
            embd__schema_put(schema, f, i);
            return EMBD_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s %s", i ? "," : "", f->names[i]);
    }
    return unreadable(name, text, known, e);
}

int embd__schema_parse(embd_schema *schema, const struct schema_field *f, const char *name,
                       const char *text, struct embd__error *e)
{
    switch (f->type) {
    case SCHEMA_U32:
    case SCHEMA_U64:
        return set_uint(schema, f, name, text, e);
    case SCHEMA_F32:
        return set_f32(schema, f, name, text, e);
    case SCHEMA_BOOL:
        return set_bool(schema, f, name, text, e);
    case SCHEMA_ENUM:
        break;
    }
    return set_enum(schema, f, name, text, e);
}

static int set_name(embd_schema *schema, const char *text, struct embd__error *e)
{
    if (strlen(text) > EMBD_NAME_MAX)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'name' has %zu bytes, the limit is %u", strlen(text),
                               EMBD_NAME_MAX);
    memset(schema->name, 0, sizeof schema->name);
    strcpy(schema->name, text);
    return EMBD_OK;
}

static int set_slot_sizes(embd_schema *schema, const char *text, uint64_t *storage,
                          struct embd__error *e)
{
    uint32_t n = 0;
    const char *at = text;
    uint64_t size;
    if (storage == NULL)
        return embd__error_set(e, EMBD_INVALID, "schema field 'slot_sizes' cannot be set here");
    for (;;) {
        at = parse_u64(at, &size);
        if (at == NULL || (*at != ',' && *at != '\0'))
            return unreadable("slot_sizes", text, "unsigned integers with commas between", e);
        if (n == EMBD_SLOTS_MAX)
            return embd__error_set(e, EMBD_INVALID,
                                   "schema field 'slot_sizes' has over %u values, the limit",
                                   EMBD_SLOTS_MAX);
        storage[n++] = size;
        if (*at++ == '\0')
            break;
    }
    if (schema->slot_sizes == NULL && schema->slots != 1 && schema->slots != n)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'slot_sizes' has %u values, but slots is %u", n,
                               schema->slots);
    schema->slots = n;
    schema->slot_sizes = storage;
    return EMBD_OK;
}

const struct schema_field *embd__schema_find(const char *name,
                                             const struct schema_group **group_out)
{
    for (const struct schema_group *g = embd__schema_groups;
         g < embd__schema_groups + SCHEMA_GROUPS; g++) {
        size_t bytes = strlen(g->name);
        const char *rest = name;
        *group_out = g;
        if (bytes > 0) {
            if (strncmp(name, g->name, bytes) != 0)
                continue;
            if (name[bytes] == '\0')
                return &g->fields[0];
            if (name[bytes] != '.')
                continue;
            rest = name + bytes + 1;
        }
        for (uint32_t i = 0; i < g->n_fields; i++)
            if (strcmp(g->fields[i].name, rest) == 0)
                return &g->fields[i];
    }
    return NULL;
}

static int set(embd_schema *schema, const char *name, const char *value, uint64_t *storage,
               struct embd__error *e)
{
    const struct schema_group *group;
    if (strcmp(name, "name") == 0)
        return set_name(schema, value, e);
    if (strcmp(name, "slot_sizes") == 0)
        return set_slot_sizes(schema, value, storage, e);
    const struct schema_field *f = embd__schema_find(name, &group);
    if (f == NULL)
        return embd__error_set(e, EMBD_INVALID, "unknown schema field '%.60s'", name);
    if (!embd__schema_applies(group, f, schema) && group->name[0] == '\0')
        return embd__error_set(e, EMBD_INVALID,
                               "schema field '%s' has no effect with on_full '%s'; remove it", name,
                               embd_on_full_name(schema->on_full));
    if (!embd__schema_applies(group, f, schema)) {
        uint64_t kind = embd__schema_get(schema, &group->fields[0]);
        return embd__error_set(e, EMBD_INVALID,
                               "schema field '%s' is not a parameter of the %s '%s'", name,
                               group->name, group->fields[0].names[kind]);
    }
    int status = embd__schema_parse(schema, f, name, value, e);
    if (status == EMBD_OK && group->name[0] != '\0' && f == &group->fields[0])
        embd__schema_reset_group(schema, group);
    return status;
}

int embd_schema_set(embd_schema *schema, const char *field, const char *value, uint64_t *storage)
{
    struct embd__error e = {0};
    embd_schema own;
    uint32_t struct_bytes;
    if (embd__schema_take(&own, schema, &e) != EMBD_OK)
        return embd__error_keep(&e, e.status);
    int status = set(&own, field, value, storage, &e);
    struct_bytes = schema->struct_bytes;
    memcpy(schema, &own, struct_bytes < sizeof own ? struct_bytes : sizeof own);
    schema->struct_bytes = struct_bytes;
    return embd__error_keep(&e, status);
}

int embd_schema_check(const embd_schema *schema)
{
    struct embd__error e = {0};
    embd_schema own;
    int status = embd__schema_take(&own, schema, &e);
    return embd__error_keep(&e, status == EMBD_OK ? embd__schema_check(&own, &e) : status);
}
