/* staged.c - see staged.h. */
#include "server/engine/staged.h"

#include <string.h>

static bool is_journaled(const struct table *table)
{
    return table->schema.s.durability != EMBD_DURABILITY_SNAPSHOT;
}

static struct table *by_name(const struct staged *staged, const char *name)
{
    for (uint32_t i = 0; i < staged->n; i++)
        if (strcmp(staged->list[i]->schema.s.name, name) == 0)
            return staged->list[i];
    return NULL;
}

int staged_prepare(struct tables *tables, uint64_t id, const embd_schema *schema, uint32_t table,
                   struct embd__error *e)
{
    struct staged *staged = &tables->staged;
    bool is_same = staged->id == id;
    if (is_same && by_name(staged, schema->name) != NULL)
        return embd__error_set(e, EMBD_EXISTS, "table '%s' is staged already", schema->name);
    if (is_same && staged->n == LIMIT_TABLES)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "table '%s' would be staged table %u, the limit "
                               "is %u",
                               schema->name, staged->n + 1, LIMIT_TABLES);
    staged->prepared = tables_open_table(tables, schema, table, e);
    return e->status;
}

int staged_add(struct tables *tables, uint64_t id, const embd_schema *schema, uint32_t table,
               struct embd__error *e)
{
    struct staged *staged = &tables->staged;
    if (staged->prepared == NULL && staged_prepare(tables, id, schema, table, e) != EMBD_OK)
        return e->status;
    struct table *added = staged->prepared;
    staged->prepared = NULL;
    if (staged->id != id)
        staged_drop(tables);
    staged->id = id;
    staged->list[staged->n++] = added;
    tables_count(tables, added);
    return EMBD_OK;
}

struct table *staged_find(const struct tables *tables, uint64_t id, const char *name,
                          struct embd__error *e)
{
    struct table *table = tables->staged.id == id ? by_name(&tables->staged, name) : NULL;
    if (table == NULL)
        embd__error_set(e, EMBD_UNKNOWN_TABLE, "there is no staged table '%s' of that id", name);
    return table;
}

bool staged_is_journaled(const struct tables *tables)
{
    bool is_any = false;
    for (uint32_t i = 0; i < tables->staged.n; i++)
        is_any = is_any || is_journaled(tables->staged.list[i]);
    return is_any;
}

void staged_drop(struct tables *tables)
{
    struct staged *staged = &tables->staged;
    while (staged->n > 0)
        tables_close_table(tables, staged->list[--staged->n]);
    staged->id = 0;
}

/* ---- replacing ---- */

static int check_one(const struct tables *tables, const struct table *table, struct embd__error *e)
{
    const char *name = table->schema.s.name;
    const struct table *old = tables_by_name(tables, name);
    if (old == NULL && !tables_id_is_free(tables, table->id, name))
        return embd__error_set(e, EMBD_EXISTS, "staged table '%s': another table has its id %u",
                               name, table->id);
    if (old != NULL && is_journaled(old) != is_journaled(table))
        return embd__error_set(e, EMBD_INVALID,
                               "table '%s' has durability '%s', the one to take its place '%s'",
                               name, embd_durability_name(old->schema.s.durability),
                               embd_durability_name(table->schema.s.durability));
    return EMBD_OK;
}

int staged_check(const struct tables *tables, uint64_t id, struct embd__error *e)
{
    const struct staged *staged = &tables->staged;
    uint32_t n = tables->n;
    if (staged->id != id || id == 0)
        return embd__error_set(e, EMBD_INVALID, "there are no staged tables of the id %llu",
                               (unsigned long long)id);
    for (uint32_t i = 0; i < staged->n; i++) {
        if (check_one(tables, staged->list[i], e) != EMBD_OK)
            return e->status;
        n += tables_by_name(tables, staged->list[i]->schema.s.name) == NULL;
    }
    if (n > LIMIT_TABLES)
        return embd__error_set(e, EMBD_TOO_LARGE, "there would be %u tables, the limit is %u", n,
                               LIMIT_TABLES);
    return EMBD_OK;
}

void staged_replace(struct tables *tables, struct table_set replaced_out[2])
{
    struct staged *staged = &tables->staged;
    replaced_out[0] = replaced_out[1] = (struct table_set){.may_have_others = 0};
    for (uint32_t i = 0; i < staged->n; i++) {
        struct table *table = staged->list[i];
        tables_put(tables, table);
        table_set_add(&replaced_out[is_journaled(table)], table->number);
    }
    staged->n = 0;
    staged->id = 0;
}
