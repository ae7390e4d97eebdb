/* snapshot_scope.c - see snapshot_scope.h. */
#include "server/snapshot/snapshot_scope.h"

static bool is_there(const struct tables *tables, const char *name)
{
    for (uint32_t i = 0; i < tables->n; i++)
        if (embd__scope_name_covers(name, tables->by_name[i]->schema.s.name))
            return true;
    return false;
}

int snapshot_check_scope(const struct shard *shard, const struct table_scope *scope,
                         struct embd__error *e)
{
    for (uint32_t i = 0; i < scope->n_names && e->status == EMBD_OK; i++)
        if (!is_there(&shard->engine.tables, scope->names[i]))
            embd__error_set(e, EMBD_UNKNOWN_TABLE,
                            "snapshot tables: shard %u has no table '%s'; no snapshot was begun",
                            shard->config.index, scope->names[i]);
    return e->status;
}
