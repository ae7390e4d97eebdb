/* joining.c - see joining.h. */
#include "server/engine/joining.h"

#include <stdio.h>
#include <string.h>

#include "proto/schema_change.h"

static uint64_t bit(void)
{
    return embd__schema_bits("durability");
}

void joining_leave(struct tables *tables, struct table *table)
{
    tables->n_joining -= table->joins != EMBD_DURABILITY_SNAPSHOT;
    table->joins = EMBD_DURABILITY_SNAPSHOT;
}

static void join(struct tables *tables, struct table *table, embd_durability to)
{
    if (table->joins == EMBD_DURABILITY_SNAPSHOT) {
        tables->n_joining++;
        table->joining = ++tables->n_opened;
    }
    table->joins = to;
    table->joining_why[0] = '\0';
}

void joining_take(struct tables *tables, struct table *table, embd_schema *changed)
{
    const embd_schema *now = &table->schema.s;
    if (changed->durability == EMBD_DURABILITY_SNAPSHOT ||
        now->durability != EMBD_DURABILITY_SNAPSHOT) {
        joining_leave(tables, table);
        return;
    }
    join(tables, table, changed->durability);
    changed->durability = now->durability;
    changed->changed = (changed->changed & ~bit()) | (now->changed & bit());
}

embd_schema joining_schema(const struct table *table)
{
    embd_schema schema = table->schema.s;
    if (table->joins != EMBD_DURABILITY_SNAPSHOT) {
        schema.durability = table->joins;
        schema.changed |= bit();
    }
    return schema;
}

void joining_end(struct tables *tables, struct table *table, uint64_t joining)
{
    if (table == NULL || table->joins == EMBD_DURABILITY_SNAPSHOT || table->joining != joining)
        return;
    table->schema.s = joining_schema(table);
    joining_leave(tables, table);
}

void joining_fail(struct tables *tables, const char *why)
{
    for (uint32_t i = 0; i < tables->n && tables->n_joining > 0; i++) {
        struct table *table = tables->by_name[i];
        if (table->joins == EMBD_DURABILITY_SNAPSHOT)
            continue;
        joining_leave(tables, table);
        snprintf(table->joining_why, sizeof table->joining_why, "%.150s", why);
    }
}

bool joining_was_set(const struct table *table)
{
    return table->joins != EMBD_DURABILITY_SNAPSHOT || (table->schema.s.changed & bit()) != 0;
}

bool joining_is_left(const struct table *table)
{
    return !table_is_journaled(table) && joining_was_set(table);
}

/* ---- while a journal is read ---- */

bool joining_is_apart(const struct tables *tables, const char *name)
{
    for (uint32_t i = 0; i < tables->apart.n; i++)
        if (strcmp(tables->apart.list[i].name, name) == 0)
            return true;
    return false;
}

bool joining_is_apart_id(const struct tables *tables, uint32_t id)
{
    for (uint32_t i = 0; i < tables->apart.n; i++)
        if (tables->apart.list[i].id == id)
            return true;
    return false;
}

/* More than there may be: then their records are refused, and the start with them. */
void joining_set_apart(struct tables *tables, uint32_t id, const char *name)
{
    joining_has(tables, id, name);
    if (tables->apart.n == LIMIT_TABLES)
        return;
    struct apart_table *apart = &tables->apart.list[tables->apart.n++];
    apart->id = id;
    snprintf(apart->name, sizeof apart->name, "%s", name);
}

void joining_has(struct tables *tables, uint32_t id, const char *name)
{
    struct apart *apart = &tables->apart;
    uint32_t n = 0;
    for (uint32_t i = 0; i < apart->n; i++)
        if (apart->list[i].id != id && strcmp(apart->list[i].name, name) != 0)
            apart->list[n++] = apart->list[i];
    apart->n = n;
}
