/* schema_difference.c - where two definitions of a table differ, in words. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/names.h"
#include "proto/schema.h"
#include "proto/schema_change.h"
#include "proto/schema_fields.h"

static bool differs(const embd_schema *a, const embd_schema *b, const struct schema_group *group,
                    const struct schema_field *field)
{
    if (!embd__schema_applies(group, field, a))
        return false;
    bool is_auto = a->durability == EMBD_DURABILITY_AUTO || b->durability == EMBD_DURABILITY_AUTO;
    if (is_auto && field->names == embd__durability_names)
        return false; /* whatever the other one is */
    if (field->type != SCHEMA_F32)
        return embd__schema_get(a, field) != embd__schema_get(b, field);
    float x = embd__schema_get_f32(a, field), y = embd__schema_get_f32(b, field);
    return memcmp(&x, &y, sizeof x) != 0; /* bits: -0 starts other rows than 0 */
}

/* The first field that differs, or NULL. `ignored`: bits of fields, as in embd_schema.changed. */
static const struct schema_field *find_difference(const embd_schema *a, const embd_schema *b,
                                                  uint64_t ignored)
{
    for (const struct schema_group *g = embd__schema_groups;
         g < embd__schema_groups + SCHEMA_GROUPS; g++)
        for (const struct schema_field *f = g->fields; f < g->fields + g->n_fields;
             f++, ignored >>= 1)
            if (!(ignored & 1) && differs(a, b, g, f))
                return f;
    return NULL;
}

static bool slot_sizes_differ(const embd_schema *a, const embd_schema *b)
{
    if (a->slot_sizes == NULL || b->slot_sizes == NULL)
        return a->slot_sizes != b->slot_sizes;
    return memcmp(a->slot_sizes, b->slot_sizes, a->slots * sizeof *a->slot_sizes) != 0;
}

static const char *name_difference(const embd_schema *a, const embd_schema *b, uint64_t ignored)
{
    if (strcmp(a->name, b->name) != 0)
        return "name";
    const struct schema_field *field = find_difference(a, b, ignored);
    if (field != NULL)
        return field->full;
    return slot_sizes_differ(a, b) ? "slot_sizes" : NULL;
}

const char *embd__schema_difference(const embd_schema *a, const embd_schema *b)
{
    return name_difference(a, b, 0);
}

const char *embd__schema_fixed_difference(const embd_schema *a, const embd_schema *b)
{
    bool is_alike = embd__schema_state_floats(a) == embd__schema_state_floats(b);
    return name_difference(a, b, is_alike ? embd__schema_may_change() : 0);
}

/* ---- in words ---- */

/* The fewest digits that give the float back: 0.1, not 0.100000001. */
static void tell_f32(char *to, size_t to_bytes, float value)
{
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(to, to_bytes, "%.*g", digits, (double)value);
        if (strtof(to, NULL) == value)
            return;
    }
}

static void tell_value(char *to, size_t to_bytes, const embd_schema *schema,
                       const struct schema_field *field)
{
    if (field->type == SCHEMA_F32) {
        tell_f32(to, to_bytes, embd__schema_get_f32(schema, field));
        return;
    }
    uint64_t value = embd__schema_get(schema, field);
    if (field->type == SCHEMA_ENUM)
        snprintf(to, to_bytes, "%s", field->names[value]);
    else if (field->type == SCHEMA_BOOL)
        snprintf(to, to_bytes, "%s", value ? "true" : "false");
    else
        snprintf(to, to_bytes, "%" PRIu64, value);
}

/* Both have as many slots. */
static void tell_slot_sizes(struct schema_difference *out, const embd_schema *a,
                            const embd_schema *b)
{
    uint32_t s = 0;
    if (a->slot_sizes == NULL || b->slot_sizes == NULL) {
        snprintf(out->field, sizeof out->field, "slot_sizes");
        snprintf(out->a, sizeof out->a, "%s", a->slot_sizes == NULL ? "none" : "given");
        snprintf(out->b, sizeof out->b, "%s", b->slot_sizes == NULL ? "none" : "given");
        return;
    }
    while (a->slot_sizes[s] == b->slot_sizes[s])
        s++;
    snprintf(out->field, sizeof out->field, "slot_sizes[%" PRIu32 "]", s);
    snprintf(out->a, sizeof out->a, "%" PRIu64, a->slot_sizes[s]);
    snprintf(out->b, sizeof out->b, "%" PRIu64, b->slot_sizes[s]);
}

static bool tell(const embd_schema *a, const embd_schema *b, uint64_t ignored,
                 struct schema_difference *out)
{
    const struct schema_field *field = find_difference(a, b, ignored);
    if (field != NULL) {
        snprintf(out->field, sizeof out->field, "%s", field->full);
        tell_value(out->a, sizeof out->a, a, field);
        tell_value(out->b, sizeof out->b, b, field);
        return true;
    }
    bool is_different = slot_sizes_differ(a, b);
    if (is_different)
        tell_slot_sizes(out, a, b);
    return is_different;
}

bool embd__schema_tell_difference(const embd_schema *a, const embd_schema *b,
                                  struct schema_difference *out)
{
    return tell(a, b, 0, out);
}

bool embd__schema_tell_asked(const embd_schema *table, const embd_schema *asked,
                             struct schema_difference *out)
{
    return tell(table, asked, table->changed & embd__schema_may_change(), out);
}
