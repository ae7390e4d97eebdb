/* table_setting.c - see table_setting.h. What can fail: the table cannot become that, which is
 * found out first; and memory, before rows go or, for candidates to be forgotten, after. */
#include "server/engine/table_setting.h"

#include <stdlib.h>

#include "proto/assert.h"
#include "server/engine/admission.h"
#include "server/engine/bound.h"
#include "server/engine/joining.h"

/* While rows go. */
struct table_setting {
    struct table *table;
    struct setting_owner *owner;
    struct schema_change change;
    embd_schema to;
    struct store_shrink shrink;
    uint32_t n_gone;
    bool is_divided;          /* the table is_swept for it */
    struct embd__error error; /* since the rows are gone */
};

/* As if it had joined the journal. */
static int make(const struct schema_change *change, const struct table *table, embd_schema *out,
                struct embd__error *e)
{
    embd_schema now = joining_schema(table);
    return embd__schema_change_make(change, &now, out, e);
}

int tables_check_set(const struct tables *tables, const struct table *table,
                     const struct schema_change *change, struct embd__error *e)
{
    embd_schema changed;
    if (make(change, table, &changed, e) != EMBD_OK)
        return e->status;
    return bound_check(tables->ops, table, &changed, e);
}

static bool creates_by_pulls(const struct table *table)
{
    return table->schema.s.create_on == EMBD_CREATE_ON_PULL;
}

/* ---- slices ---- */

static void end_sweep(struct tables *tables, struct table *table)
{
    table->is_swept = false;
    tables->n_swept--;
    tables->n_sweeps++;
}

/* The rows are gone. A base that was being made may have ended meanwhile. */
static void take(struct tables *tables, struct embd__error *e)
{
    struct table *table = tables->setting->table;
    bool did_create = creates_by_pulls(table);
    embd_schema changed;
    if (make(&tables->setting->change, table, &changed, e) != EMBD_OK ||
        admission_make(tables->ops, table, &changed, e) != EMBD_OK)
        return;
    joining_take(tables, table, &changed);
    table->schema.s = changed;
    tables->n_creating += creates_by_pulls(table);
    tables->n_creating -= did_create;
    tables->ops->alter(table->store);
    tables_count(tables, table);
}

static void end(struct tables *tables, const struct embd__error *e)
{
    struct table_setting *setting = tables->setting;
    struct embd__error error = *e; /* it may be the setting's */
    struct setting_owner *owner = setting->owner;
    uint32_t n_gone = setting->n_gone;
    if (setting->is_divided) {
        end_sweep(tables, setting->table);
        tables_count(tables, setting->table);
    }
    tables->setting = NULL;
    free(setting);
    owner->ended(owner, n_gone, &error);
}

static void go_on(struct tables *tables)
{
    struct table_setting *setting = tables->setting;
    struct setting_owner *owner = setting->owner;
    struct embd__error e = {.status = EMBD_OK};
    bool shows = setting->shrink.phase == STORE_SHRINK_CHOSEN;
    if (shows && owner->make_way != NULL && !owner->make_way(owner, setting->table))
        return;
    bound_go_on(tables->ops, setting->table, &setting->shrink, &setting->n_gone, &e);
    if (e.status == EMBD_OK && shows)
        take(tables, &setting->error);
    if (e.status != EMBD_OK)
        end(tables, &e);
    else if (setting->shrink.phase == STORE_SHRINK_DONE)
        end(tables, &setting->error);
}

/* There is one. */
static struct table *next_swept(struct tables *tables)
{
    struct table *table;
    do {
        tables->sweep_at = (tables->sweep_at + 1) % tables->n;
        table = tables->by_name[tables->sweep_at];
    } while (!table->is_swept);
    return table;
}

bool tables_sweep(struct tables *tables)
{
    struct table *table = next_swept(tables);
    uint64_t n_sweeps = tables->n_sweeps;
    if (tables->setting != NULL && tables->setting->table == table)
        go_on(tables);
    else if (!tables->ops->collect(table->store))
        end_sweep(tables, table);
    return tables->n_sweeps > n_sweeps;
}

/* ---- setting ---- */

static int begin(struct tables *tables, struct embd__error *e)
{
    struct table_setting *setting = tables->setting;
    if (make(&setting->change, setting->table, &setting->to, e) != EMBD_OK)
        return e->status;
    return bound_begin(tables->ops, setting->table, &setting->to, &setting->shrink,
                       &setting->n_gone, e);
}

void tables_begin_set(struct tables *tables, struct table *table,
                      const struct schema_change *change, struct setting_owner *owner)
{
    struct embd__error e = {.status = EMBD_OK};
    EMBD_ASSERT(tables->setting == NULL);
    tables->setting = calloc(1, sizeof *tables->setting);
    if (tables->setting == NULL) {
        embd__error_set(&e, EMBD_NO_MEMORY, "table %s: no memory to set fields of it",
                        table->schema.s.name);
        owner->ended(owner, 0, &e);
        return;
    }
    tables->setting->table = table;
    tables->setting->owner = owner;
    tables->setting->change = *change;
    tables->setting->error.status = EMBD_OK;
    bool is_over = begin(tables, &e) != EMBD_OK;
    if (!is_over && tables->setting->shrink.phase == STORE_SHRINK_DONE) {
        take(tables, &e);
        is_over = true;
    }
    if (is_over) {
        end(tables, &e);
        return;
    }
    tables->setting->is_divided = true;
    tables->n_swept += !table->is_swept;
    table->is_swept = true;
}
