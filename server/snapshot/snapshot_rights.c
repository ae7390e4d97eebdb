/* snapshot_rights.c - see snapshot_rights.h. */
#include "server/snapshot/snapshot_rights.h"

#include <stdio.h>
#include <string.h>

#include "server/access/access.h"
#include "server/service/authorize.h"

static int refuse(struct call *call, const char *what)
{
    const struct grant *bound = authorize_bound(call);
    call->shard->counters.denied++;
    return embd__error_set(&call->error, EMBD_DENIED,
                           "snapshot %s needs the role admin; token '%s' has the role %s, whose "
                           "snapshots name their job and their tables",
                           what, bound->name, role_name(bound->role));
}

/* A name of the list is a table's, or the beginning of some: those of the token all begin with a
 * prefix. */
static int check_scope(struct call *call, const struct table_scope *scope)
{
    if (scope->job[0] == '\0')
        return refuse(call, "without 'job'");
    if (scope->n_names == 0)
        return refuse(call, "of all tables");
    authorize_name(call, "job", scope->job);
    for (uint32_t i = 0; i < scope->n_names && call->error.status == EMBD_OK; i++)
        authorize_name(call, "table", scope->names[i]);
    return call->error.status;
}

int snapshot_check_rights(struct call *call, const char *name, const char *base,
                          const struct table_scope *scope)
{
    if (authorize_bound(call) == NULL)
        return EMBD_OK;
    if (authorize_name(call, "snapshot", name) != EMBD_OK ||
        (base[0] != '\0' && authorize_name(call, "base", base) != EMBD_OK))
        return call->error.status;
    return check_scope(call, scope);
}

int snapshot_check_read(struct call *call)
{
    return authorize_bound(call) == NULL ? EMBD_OK : refuse(call, "'read'");
}

int snapshot_check_fetch(struct call *call)
{
    return authorize_bound(call) == NULL ? EMBD_OK : refuse(call, "fetch");
}

int snapshot_check_begun(struct call *call, const char *name)
{
    const struct snapshot_parts *begun = &call->shard->snapshot;
    if (authorize_bound(call) == NULL || authorize_name(call, "snapshot", name) != EMBD_OK)
        return call->error.status;
    return strcmp(begun->name, name) == 0 ? check_scope(call, &begun->scope) : EMBD_OK;
}

/* NAME.tmp of another one may be there still. */
int snapshot_check_blob(struct call *call, const char *name)
{
    if (snapshot_check_begun(call, name) != EMBD_OK || authorize_bound(call) == NULL ||
        strcmp(call->shard->snapshot.name, name) == 0)
        return call->error.status;
    return embd__error_set(&call->error, EMBD_INVALID, "snapshot blob: '%s' was not begun", name);
}

int snapshot_check_keep(struct call *call, const char *name, const char *job)
{
    if (authorize_bound(call) == NULL || authorize_name(call, "snapshot", name) != EMBD_OK)
        return call->error.status;
    return job[0] != '\0' ? authorize_name(call, "job", job) : refuse(call, "keep without 'job'");
}

/* Its prefixes cover the names of its own. */
struct shown_name snapshot_shown_name(const struct call *call, const char *name)
{
    struct shown_name shown = {""};
    const struct grant *bound = call != NULL ? authorize_bound(call) : NULL;
    if (bound == NULL || grant_covers(bound, name))
        snprintf(shown.text, sizeof shown.text, " '%s'", name);
    return shown;
}
