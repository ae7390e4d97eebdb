/* staged.c - see staged.h. */
#include "server/engine/staged.h"

#include <stdlib.h>
#include <string.h>

struct staged *staged_set(const struct tables *tables, uint64_t id)
{
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        if (tables->staged[i] != NULL && tables->staged[i]->id == id)
            return tables->staged[i];
    return NULL;
}

static struct table *by_name(const struct staged *staged, const char *name)
{
    for (uint32_t i = 0; i < staged->n; i++)
        if (strcmp(staged->list[i]->schema.s.name, name) == 0)
            return staged->list[i];
    return NULL;
}

/* The set, empty where there was none of that id. */
static struct staged *get_set(struct tables *tables, uint64_t id, struct embd__error *e)
{
    struct staged *set = staged_set(tables, id);
    uint32_t i = 0;
    while (set == NULL && i < STAGED_SETS && tables->staged[i] != NULL)
        i++;
    if (set != NULL)
        return set;
    if (i == STAGED_SETS)
        embd__error_set(e, EMBD_BUSY, "%u loads have staged tables, the limit; try again",
                        STAGED_SETS);
    else if ((set = calloc(1, sizeof *set)) == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to stage tables");
    if (set == NULL)
        return NULL;
    set->id = id;
    tables->n_staged++;
    return tables->staged[i] = set;
}

static void end_set(struct tables *tables, struct staged *set)
{
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        if (tables->staged[i] == set)
            tables->staged[i] = NULL;
    tables->n_staged--;
    free(set);
}

int staged_prepare(struct tables *tables, uint64_t id, const embd_schema *schema, uint32_t table,
                   struct embd__error *e)
{
    struct staged *staged = get_set(tables, id, e);
    if (staged == NULL)
        return e->status;
    if (by_name(staged, schema->name) != NULL)
        return embd__error_set(e, EMBD_EXISTS, "table '%s' is staged already", schema->name);
    if (staged->n == LIMIT_TABLES)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "table '%s' would be staged table %u, the limit "
                               "is %u",
                               schema->name, staged->n + 1, LIMIT_TABLES);
    tables->staged_prepared = tables_open_table(tables, schema, table, e);
    if (tables->staged_prepared == NULL && staged->n == 0)
        end_set(tables, staged);
    return e->status;
}

int staged_add(struct tables *tables, uint64_t id, const embd_schema *schema, uint32_t table,
               struct embd__error *e)
{
    if (tables->staged_prepared == NULL && staged_prepare(tables, id, schema, table, e) != EMBD_OK)
        return e->status;
    struct staged *staged = staged_set(tables, id);
    struct table *added = tables->staged_prepared;
    tables->staged_prepared = NULL;
    staged->list[staged->n++] = added;
    tables_count(tables, added);
    return EMBD_OK;
}

struct table *staged_find(const struct tables *tables, uint64_t id, const char *name,
                          struct embd__error *e)
{
    const struct staged *staged = staged_set(tables, id);
    struct table *table = staged != NULL ? by_name(staged, name) : NULL;
    if (table == NULL)
        embd__error_set(e, EMBD_UNKNOWN_TABLE, "there is no staged table '%s' of that id", name);
    return table;
}

embd_durability staged_durability(const struct tables *tables, uint64_t id)
{
    const struct staged *staged = staged_set(tables, id);
    embd_durability all = EMBD_DURABILITY_SNAPSHOT;
    for (uint32_t i = 0; staged != NULL && i < staged->n; i++)
        all = embd__durability_join(all, table_durability(staged->list[i]));
    return all;
}

bool staged_is_journaled(const struct tables *tables, uint64_t id)
{
    return staged_durability(tables, id) != EMBD_DURABILITY_SNAPSHOT;
}

void staged_drop(struct tables *tables, uint64_t id)
{
    struct staged *staged = staged_set(tables, id);
    if (staged == NULL)
        return;
    while (staged->n > 0)
        tables_close_table(tables, staged->list[--staged->n]);
    end_set(tables, staged);
}

/* ---- replacing ---- */

static int check_one(const struct tables *tables, const struct table *table, struct embd__error *e)
{
    const char *name = table->schema.s.name;
    const struct table *old = tables_by_name(tables, name);
    if (old == NULL && !tables_id_is_free(tables, table->id, name))
        return embd__error_set(e, EMBD_EXISTS, "staged table '%s': another table has its id %u",
                               name, table->id);
    if (old != NULL && table_is_journaled(old) != table_is_journaled(table))
        return embd__error_set(e, EMBD_INVALID,
                               "table '%s' has durability '%s', the one to take its place '%s'",
                               name, embd_durability_name(table_durability(old)),
                               embd_durability_name(table->schema.s.durability));
    return EMBD_OK;
}

int staged_check(const struct tables *tables, uint64_t id, struct embd__error *e)
{
    const struct staged *staged = staged_set(tables, id);
    uint32_t n = tables->n;
    if (staged == NULL)
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

void staged_replace(struct tables *tables, uint64_t id, struct table_set replaced_out[2])
{
    struct staged *staged = staged_set(tables, id);
    replaced_out[0] = replaced_out[1] = (struct table_set){.may_have_others = 0};
    for (uint32_t i = 0; i < staged->n; i++) {
        struct table *table = staged->list[i];
        tables_put(tables, table);
        table_set_add(&replaced_out[table_is_journaled(table)], table->number);
    }
    end_set(tables, staged);
}
