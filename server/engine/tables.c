/* tables.c - finding, creating and dropping tables.
 *
 * Ids are found by hashing, in one step or two; names by halving an array kept in order. Creating
 * is idempotent, because every client of a cluster may do it at its start. */
#include "server/engine/tables.h"

#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "proto/route.h"
#include "server/engine/joining.h"

void tables_init(struct tables *tables, const struct store_ops *ops)
{
    memset(tables, 0, sizeof *tables);
    tables->ops = ops;
}

static void uncount(struct tables *tables, struct table *table)
{
    if (tables->memory != NULL)
        row_memory_count(tables->memory, &table->counted_bytes, 0);
}

/* Also of a table whose store was not opened. */
static void free_table(const struct store_ops *ops, struct table *table)
{
    if (table == NULL)
        return;
    ops->close(table->store);
    embd__schema_fini(&table->schema);
    free(table);
}

void tables_close_table(struct tables *tables, struct table *table)
{
    if (table != NULL) {
        uncount(tables, table);
        tables->n_swept -= table->is_swept;
        tables->n_sweeps += table->is_swept;
        tables_end_late(tables, table);
        joining_leave(tables, table);
    }
    free_table(tables->ops, table);
}

void tables_fini(struct tables *tables)
{
    for (uint32_t i = 0; i < tables->n; i++)
        tables_close_table(tables, tables->by_name[i]);
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        while (tables->staged[i] != NULL && tables->staged[i]->n > 0)
            tables_close_table(tables, tables->staged[i]->list[--tables->staged[i]->n]);
    tables_give_up(tables);
    free(tables->setting);
    tables_init(tables, tables->ops);
}

struct left_out *tables_left_out(struct tables *tables, uint32_t id)
{
    for (uint32_t i = 0; i < tables->n_left_out; i++)
        if (id != 0 && tables->left_out[i].id == id)
            return &tables->left_out[i];
    return NULL;
}

struct left_out *tables_left_out_name(struct tables *tables, const char *name)
{
    for (uint32_t i = 0; i < tables->n_left_out; i++)
        if (strcmp(tables->left_out[i].name, name) == 0)
            return &tables->left_out[i];
    return NULL;
}

bool tables_skip(struct tables *tables, uint32_t id)
{
    return tables_left_out(tables, id) != NULL || joining_is_apart_id(tables, id);
}

bool tables_skip_name(struct tables *tables, const char *name)
{
    return tables_left_out_name(tables, name) != NULL || joining_is_apart(tables, name);
}

/* ---- memory ---- */

void tables_count(struct tables *tables, struct table *table)
{
    struct store_stats stats;
    tables->ops->stats(table->store, &stats);
    tables_count_as(tables, table, &stats);
}

void tables_count_all(struct tables *tables)
{
    for (uint32_t i = 0; i < tables->n; i++)
        tables_count(tables, tables->by_name[i]);
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        for (uint32_t k = 0; tables->staged[i] != NULL && k < tables->staged[i]->n; k++)
            tables_count(tables, tables->staged[i]->list[k]);
}

static uint32_t n_staged(const struct tables *tables)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        n += tables->staged[i] != NULL ? tables->staged[i]->n : 0;
    return n;
}

/* Any of the tables may be copied. */
int tables_freeze(const struct tables *tables, struct table *table, struct store_cut *cut,
                  struct embd__error *e)
{
    if (tables->memory != NULL) {
        uint64_t beyond = row_memory_limit(tables->memory) / 8;
        uint32_t n = tables->n + n_staged(tables);
        cut->copy_bytes = row_memory_room(tables->memory, beyond) / n + 1;
    }
    return tables->ops->freeze(table->store, cut, e);
}

/* ---- by name and id ---- */

static void add_id(struct tables *tables, struct table *table)
{
    uint32_t i = table->id % TABLES_PLACES;
    while (tables->by_id[i] != NULL)
        i = (i + 1) % TABLES_PLACES;
    tables->by_id[i] = table;
}

/* After a table has gone: places behind its own may have been taken for want of it. */
static void place_ids(struct tables *tables)
{
    memset(tables->by_id, 0, sizeof tables->by_id);
    for (uint32_t i = 0; i < tables->n; i++)
        add_id(tables, tables->by_name[i]);
}

uint32_t tables_from(const struct tables *tables, const char *name)
{
    uint32_t low = 0, high = tables->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (strcmp(tables->by_name[middle]->schema.s.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct table *at_name(const struct tables *tables, uint32_t i, const char *name)
{
    bool is_there = i < tables->n && strcmp(tables->by_name[i]->schema.s.name, name) == 0;
    return is_there ? tables->by_name[i] : NULL;
}

struct table *tables_find(const struct tables *tables, const char *name, struct embd__error *e)
{
    struct table *table = tables_by_name(tables, name);
    if (table == NULL)
        embd__error_set(e, EMBD_UNKNOWN_TABLE, "there is no table '%s'", name);
    return table;
}

static int check_equal(const struct table *table, const embd_schema *schema, struct embd__error *e)
{
    struct schema_difference differs;
    if (!embd__schema_tell_asked(&table->schema.s, schema, &differs))
        return EMBD_OK;
    return embd__error_set(e, EMBD_EXISTS, "table '%s' has %s %s, asked for %s", schema->name,
                           differs.field, differs.a, differs.b);
}

static int check_new(const struct tables *tables, const embd_schema *schema, struct embd__error *e)
{
    if (tables->n == LIMIT_TABLES)
        return embd__error_set(e, EMBD_TOO_LARGE, "table '%s' would be table %u, the limit is %u",
                               schema->name, tables->n + 1, LIMIT_TABLES);
    return EMBD_OK;
}

struct table *tables_by_name(const struct tables *tables, const char *name)
{
    return at_name(tables, tables_from(tables, name), name);
}

/* ---- ids ---- */

static bool is_of_other(const struct table *table, uint32_t id, const char *name)
{
    return table->id == id && strcmp(table->schema.s.name, name) != 0;
}

bool tables_id_is_free(const struct tables *tables, uint32_t id, const char *name)
{
    const struct table *table = tables_by_id(tables, id);
    return table == NULL || !is_of_other(table, id, name);
}

/* Staged tables take their ids with them. */
static bool is_staged(const struct tables *tables, uint32_t id, const char *name)
{
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        for (uint32_t k = 0; tables->staged[i] != NULL && k < tables->staged[i]->n; k++)
            if (is_of_other(tables->staged[i]->list[k], id, name))
                return true;
    return false;
}

/* There are more ids than tables, and each name has its own order of them. */
static uint32_t choose_id(const struct tables *tables, uint32_t wanted, const char *name)
{
    uint32_t n = 0;
    if (wanted != 0 && tables_id_is_free(tables, wanted, name))
        return wanted;
    for (;; n++) {
        uint32_t id = embd__table_id_at(name, n);
        if (tables_id_is_free(tables, id, name) && !is_staged(tables, id, name))
            return id;
    }
}

uint32_t tables_id_of(const struct tables *tables, const char *name)
{
    const struct table *table = tables_by_name(tables, name);
    return table != NULL ? table->id : tables->prepared->id;
}

struct table *tables_open_table(struct tables *tables, const embd_schema *schema, uint32_t id,
                                struct embd__error *e)
{
    const struct store_ops *ops = tables->ops;
    struct table *table = calloc(1, sizeof *table);
    if (table == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for table '%s'", schema->name);
        return NULL;
    }
    table->id = choose_id(tables, id, schema->name);
    table->instance = ++tables->n_opened;
    if (embd__schema_copy(&table->schema, schema, e) != EMBD_OK ||
        ops->open(&table->schema, &table->store, e) != EMBD_OK) {
        free_table(ops, table);
        return NULL;
    }
    return table;
}

int tables_prepare(struct tables *tables, const embd_schema *schema, uint32_t id,
                   struct embd__error *e)
{
    const struct table *table = tables_by_name(tables, schema->name);
    if (table != NULL)
        return check_equal(table, schema, e);
    EMBD_ASSERT(tables->prepared == NULL);
    if (check_new(tables, schema, e) != EMBD_OK)
        return e->status;
    tables->prepared = tables_open_table(tables, schema, id, e);
    return e->status;
}

void tables_give_up(struct tables *tables)
{
    free_table(tables->ops, tables->prepared);
    free_table(tables->ops, tables->staged_prepared);
    tables->prepared = tables->staged_prepared = NULL;
    for (uint32_t i = 0; i < STAGED_SETS; i++) {
        if (tables->staged[i] == NULL || tables->staged[i]->n > 0)
            continue;
        free(tables->staged[i]); /* it was made for that one */
        tables->staged[i] = NULL;
    }
}

static uint32_t free_number(const struct tables *tables)
{
    uint32_t number = 0;
    while (table_set_has(&tables->numbers, number))
        number++;
    return number;
}

static struct table **place_of(struct tables *tables, const struct table *table)
{
    uint32_t i = table->id % TABLES_PLACES;
    while (tables->by_id[i] != table)
        i = (i + 1) % TABLES_PLACES;
    return &tables->by_id[i];
}

static void insert(struct tables *tables, uint32_t i, struct table *table)
{
    uint32_t after = tables->n - i;
    memmove(tables->by_name + i + 1, tables->by_name + i, after * sizeof tables->by_name[0]);
    tables->by_name[i] = table;
    tables->n++;
    add_id(tables, table);
    table->number = free_number(tables);
    joining_has(tables, table->id, table->schema.s.name);
    table_set_add(&tables->numbers, table->number);
}

static bool creates_by_pulls(const struct table *table)
{
    return table->schema.s.create_on == EMBD_CREATE_ON_PULL;
}

static struct table *add_prepared(struct tables *tables, const char *name)
{
    struct table *table = tables->prepared;
    EMBD_ASSERT(strcmp(table->schema.s.name, name) == 0);
    tables->prepared = NULL;
    tables_put(tables, table);
    return table;
}

void tables_put(struct tables *tables, struct table *table)
{
    uint32_t i = tables_from(tables, table->schema.s.name);
    struct table *old = at_name(tables, i, table->schema.s.name);
    tables->n_creating += table->schema.s.create_on == EMBD_CREATE_ON_PULL;
    tables_count(tables, table);
    if (old == NULL) {
        insert(tables, i, table);
        return;
    }
    table->id = old->id;
    tables->n_creating -= old->schema.s.create_on == EMBD_CREATE_ON_PULL;
    table->number = old->number;
    tables->by_name[i] = table;
    *place_of(tables, old) = table;
    tables->n_opened++; /* also where it was opened before whoever looks at that began */
    tables_close_table(tables, old);
}

int tables_create(struct tables *tables, const embd_schema *schema, uint32_t id, struct table **out,
                  bool *created_out, struct embd__error *e)
{
    if (tables->prepared == NULL && tables_prepare(tables, schema, id, e) != EMBD_OK)
        return e->status;
    *created_out = tables->prepared != NULL;
    *out = *created_out ? add_prepared(tables, schema->name) : tables_by_name(tables, schema->name);
    return EMBD_OK;
}

void tables_drop(struct tables *tables, struct table *table)
{
    uint32_t i = tables_from(tables, table->schema.s.name), after = tables->n - i - 1;
    memmove(tables->by_name + i, tables->by_name + i + 1, after * sizeof tables->by_name[0]);
    tables->n--;
    place_ids(tables);
    tables->n_creating -= creates_by_pulls(table);
    table_set_remove(&tables->numbers, table->number);
    tables_close_table(tables, table);
}
