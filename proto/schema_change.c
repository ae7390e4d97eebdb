/* schema_change.c - see schema_change.h. */
#include "proto/schema_change.h"

#include <stdio.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/reading.h"

/* A field and its bit. */
struct place {
    const struct schema_group *group;
    const struct schema_field *field;
    uint64_t bit;
};

static bool place_of(uint32_t n, struct place *out)
{
    out->bit = 1ull << n;
    for (out->group = embd__schema_groups; out->group < embd__schema_groups + SCHEMA_GROUPS;
         n -= out->group++->n_fields)
        if (n < out->group->n_fields) {
            out->field = &out->group->fields[n];
            return true;
        }
    return false;
}

/* for (each place p) */
#define EACH_PLACE(p)                                                                              \
    uint32_t n_ = 0;                                                                               \
    place_of(n_, p);                                                                               \
    n_++

static uint64_t bit_of(const struct schema_field *field)
{
    struct place p;
    for (EACH_PLACE(&p))
        if (p.field == field)
            return p.bit;
    EMBD_ASSERT(field == NULL);
    return 0;
}

uint64_t embd__schema_may_change(void)
{
    struct place p;
    uint64_t bits = 0;
    for (EACH_PLACE(&p))
        bits |= p.field->may_change ? p.bit : 0;
    return bits;
}

uint64_t embd__schema_bits(const char *name)
{
    const struct schema_group *group;
    const struct schema_field *field = embd__schema_find(name, &group);
    if (field == NULL)
        return 0;
    uint64_t bits = bit_of(field);
    for (uint32_t i = 1;
         field == &group->fields[0] && group->name[0] != '\0' && i < group->n_fields; i++)
        bits |= bit_of(&group->fields[i]);
    return bits;
}

/* ---- naming fields ---- */

static int refuse_fixed(const char *field, struct embd__error *e)
{
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "schema field '%.60s' is fixed when a table is created; create another "
                           "table for another value",
                           field);
}

static bool is_fixed_name(const char *name)
{
    return strcmp(name, "name") == 0 || strcmp(name, "slot_sizes") == 0;
}

void embd__schema_change_init(struct schema_change *change)
{
    embd_schema_init(&change->to);
    change->named = 0;
}

int embd__schema_change_add(struct schema_change *change, const char *name, const char *value,
                            struct embd__error *e)
{
    const struct schema_group *group;
    const struct schema_field *field = embd__schema_find(name, &group);
    if (field == NULL && !is_fixed_name(name))
        return embd__error_set(e, EMBD_INVALID, "unknown schema field '%.60s'", name);
    if (field == NULL || !field->may_change)
        return refuse_fixed(name, e);
    if (change->named & bit_of(field))
        return embd__error_set(e, EMBD_INVALID, "schema field '%s' is named twice", field->full);
    change->named |= bit_of(field);
    return embd__schema_parse(&change->to, field, field->full, value, e);
}

/* ---- as a message ---- */

static bool is_named(const struct schema_change *change, const struct schema_field *field)
{
    return (change->named & bit_of(field)) != 0;
}

static uint32_t count(const struct schema_change *change, const struct schema_group *group)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < group->n_fields; i++)
        n += is_named(change, &group->fields[i]);
    return n;
}

static void write_fields(struct msg *m, const struct schema_change *change,
                         const struct schema_group *group)
{
    for (uint32_t i = 0; i < group->n_fields; i++)
        if (is_named(change, &group->fields[i]))
            embd__schema_field_write(m, &group->fields[i], &change->to);
}

void embd__schema_change_write(struct msg *m, const struct schema_change *change)
{
    const struct schema_group *own = &embd__schema_groups[0], *end = own + SCHEMA_GROUPS;
    uint32_t n = count(change, own);
    for (const struct schema_group *g = own + 1; g < end; g++)
        n += count(change, g) > 0;
    embd__msg_map(m, n);
    write_fields(m, change, own);
    for (const struct schema_group *g = own + 1; g < end; g++) {
        if (count(change, g) == 0)
            continue;
        embd__msg_str(m, g->name);
        embd__msg_map(m, count(change, g));
        write_fields(m, change, g);
    }
}

static void read_fields(struct fields *map, const struct schema_group *group,
                        struct schema_change *out)
{
    struct reader *r = map->reader;
    for (uint32_t i = 0; i < group->n_fields; i++) {
        const struct schema_field *field = &group->fields[i];
        if (!embd__field_has(map, field->name) || r->error->status != EMBD_OK)
            continue;
        embd__schema_field_read(map, field, &out->to);
        out->named |= bit_of(field);
        if (!field->may_change && r->error->status == EMBD_OK)
            refuse_fixed(field->full, r->error);
    }
}

static void read_group(struct fields *map, const struct schema_group *group,
                       struct schema_change *out)
{
    struct fields nested;
    char what[32];
    snprintf(what, sizeof what, "set %s", group->name);
    embd__field_map(map, group->name, &nested, what);
    read_fields(&nested, group, out);
    embd__fields_end(&nested);
}

int embd__schema_change_read(struct fields *map, struct schema_change *out)
{
    static const char *const fixed[] = {"name", "slot_sizes"};
    struct embd__error *e = map->reader->error;
    embd__schema_change_init(out);
    for (int i = 0; i < 2; i++)
        if (e->status == EMBD_OK && embd__field_has(map, fixed[i]))
            refuse_fixed(fixed[i], e);
    read_fields(map, &embd__schema_groups[0], out);
    for (uint32_t i = 1; i < SCHEMA_GROUPS; i++)
        read_group(map, &embd__schema_groups[i], out);
    embd__fields_end(map);
    if (e->status == EMBD_OK && out->named == 0)
        embd__error_set(e, EMBD_INVALID, "%s names no field; name one or more", map->what);
    return e->status;
}

/* ---- making it ---- */

static int check_applies(const struct place *p, const embd_schema *schema, struct embd__error *e)
{
    if (embd__schema_applies(p->group, p->field, schema))
        return EMBD_OK;
    if (p->group == &embd__schema_groups[0])
        return embd__error_set(e, EMBD_INVALID,
                               "schema field '%s' has no effect with on_full '%s' of table '%s'",
                               p->field->full, embd_on_full_name(schema->on_full), schema->name);
    uint64_t kind = embd__schema_get(schema, &p->group->fields[0]);
    return embd__error_set(
        e, EMBD_INVALID, "schema field '%s' is not a parameter of the %s '%s' of table '%s'",
        p->field->full, p->group->name, p->group->fields[0].names[kind], schema->name);
}

static void copy_value(embd_schema *to, const embd_schema *from, const struct schema_field *field)
{
    if (field->type == SCHEMA_F32)
        embd__schema_put_f32(to, field, embd__schema_get_f32(from, field));
    else
        embd__schema_put(to, field, embd__schema_get(from, field));
}

/* Rows do not get to know afterwards when they were pushed. */
static int check_use(const embd_schema *made, const embd_schema *was, struct embd__error *e)
{
    if (embd__schema_same_use(made, was))
        return EMBD_OK;
    if (made->on_full == was->on_full)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "schema field '%s' of table '%s' cannot take the place of '%s': its "
                               "rows remember the %s of their last push; create another table",
                               made->ttl > 0 ? "ttl" : "ttl_seconds", was->name,
                               made->ttl > 0 ? "ttl_seconds" : "ttl",
                               made->ttl > 0 ? "second" : "step");
    return embd__error_set(
        e, EMBD_UNSUPPORTED,
        "schema field 'on_full' of table '%s' cannot become '%s': its rows, with "
        "'%s', do not remember the same of their use; create another table",
        was->name, embd_on_full_name(made->on_full), embd_on_full_name(was->on_full));
}

/* A table that exists is kept in one way or another. */
static int check_durability(const embd_schema *made, struct embd__error *e)
{
    if (made->durability != EMBD_DURABILITY_AUTO)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "schema field 'durability' is 'auto', which is for new tables; set "
                           "'snapshot', 'buffered', 'durable', 'replicated' or "
                           "'replicated_durable'");
}

/* A parameter of the policy of before goes with it. */
static void drop_inapplicable(embd_schema *made)
{
    const struct schema_group *own = &embd__schema_groups[0];
    for (uint32_t i = 0; i < own->n_fields; i++)
        if (!embd__schema_applies(own, &own->fields[i], made))
            embd__schema_put(made, &own->fields[i], 0);
}

int embd__schema_change_make(const struct schema_change *change, const embd_schema *schema,
                             embd_schema *out, struct embd__error *e)
{
    struct place p;
    embd_schema made = *schema;
    for (EACH_PLACE(&p))
        if (change->named & p.bit)
            copy_value(&made, &change->to, p.field);
    for (EACH_PLACE(&p))
        if ((change->named & p.bit) && check_applies(&p, &made, e) != EMBD_OK)
            return e->status;
    drop_inapplicable(&made);
    if (((change->named & embd__schema_bits("durability")) != 0 &&
         check_durability(&made, e) != EMBD_OK) ||
        embd__schema_check(&made, e) != EMBD_OK || check_use(&made, schema, e) != EMBD_OK)
        return e->status;
    made.changed |= change->named;
    *out = made;
    return EMBD_OK;
}

void embd__schema_take_changes(embd_schema *to, const embd_schema *from)
{
    struct place p;
    for (EACH_PLACE(&p))
        if (p.field->may_change)
            copy_value(to, from, p.field);
    to->changed = from->changed;
}

bool embd__schema_change_shows(const struct schema_change *change)
{
    const struct schema_group *group;
    return count(change, &embd__schema_groups[SCHEMA_GROUPS - 1]) > 0 ||
           is_named(change, embd__schema_find("capacity", &group));
}

const embd_durability *embd__schema_change_durability(const struct schema_change *change)
{
    return change->named & embd__schema_bits("durability") ? &change->to.durability : NULL;
}

/* ---- what was set before ---- */

bool embd__schema_changed_names(uint64_t changed, char out[SCHEMA_CHANGED_BYTES])
{
    struct place p;
    size_t n = 0;
    out[0] = '\0';
    for (EACH_PLACE(&p))
        if ((changed & p.bit) && p.field->may_change)
            n += (size_t)snprintf(out + n, SCHEMA_CHANGED_BYTES - n, "%s%s", n > 0 ? "," : "",
                                  p.field->full);
    return n > 0;
}

/* The name up to a comma, or the end. */
static int read_name(const char *name, size_t bytes, uint64_t *out, struct embd__error *e)
{
    struct place p;
    for (EACH_PLACE(&p))
        if (p.field->may_change && strlen(p.field->full) == bytes &&
            memcmp(p.field->full, name, bytes) == 0) {
            *out |= p.bit;
            return EMBD_OK;
        }
    char shown[SHOWN_TEXT];
    embd__show_text(shown, name, bytes);
    return embd__error_set(
        e, EMBD_INVALID, "schema field 'changed' names '%s', which is not a field that may change",
        shown);
}

int embd__schema_changed_read(const char *names, uint64_t *out, struct embd__error *e)
{
    uint64_t changed = 0;
    for (const char *at = names; *at != '\0';) {
        size_t bytes = strcspn(at, ",");
        if (read_name(at, bytes, &changed, e) != EMBD_OK)
            return e->status;
        at += bytes + (at[bytes] == ',');
    }
    *out = changed;
    return EMBD_OK;
}
