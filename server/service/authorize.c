/* authorize.c - see authorize.h. A method that is not listed here is an admin's. */
#include "server/service/authorize.h"
#include "server/access/access.h"
#include "server/engine/check.h"

static const enum role least[METHOD_COUNT] = {
    [METHOD_PING] = ROLE_READER,          [METHOD_CLUSTER] = ROLE_READER,
    [METHOD_TABLES] = ROLE_READER,        [METHOD_TABLE_DESCRIBE] = ROLE_READER,
    [METHOD_PULL] = ROLE_READER,          [METHOD_STATS] = ROLE_READER,
    [METHOD_TABLE_CREATE] = ROLE_TRAINER, [METHOD_PUSH] = ROLE_TRAINER,
    [METHOD_ERASE] = ROLE_TRAINER,        [METHOD_TICK] = ROLE_TRAINER,
    [METHOD_WRITER] = ROLE_TRAINER,       [METHOD_STREAM_OPEN] = ROLE_TRAINER,
    [METHOD_IDENTITY] = ROLE_READER,      [METHOD_TABLE_SET] = ROLE_TRAINER,
    [METHOD_GET] = ROLE_READER,           [METHOD_PUT] = ROLE_TRAINER,
    [METHOD_KEYS] = ROLE_READER,
};

static enum role least_role(int method)
{
    return least[method] == ROLE_NONE ? ROLE_ADMIN : least[method];
}

static int deny_role(struct call *call, const char *what, enum role role)
{
    const struct grant *grant = call->request->session->grant;
    call->shard->counters.denied++;
    if (grant == NULL)
        return embd__error_set(
            &call->error, EMBD_DENIED,
            "%s needs the role %s, and this connection has shown no token; send one with hello",
            what, role_name(role));
    return embd__error_set(&call->error, EMBD_DENIED,
                           "%s needs the role %s; token '%s' has the role %s", what,
                           role_name(role), grant->name, role_name(grant->role));
}

int authorize_method(struct call *call)
{
    const struct grant *grant = call->request->session->grant;
    int method = call->reader.method;
    if (call->shard->access == NULL || method == METHOD_HELLO)
        return EMBD_OK;
    if (grant != NULL && grant->role >= least_role(method))
        return EMBD_OK;
    return deny_role(call, call->reader.method_name, least_role(method));
}

bool authorizes_table(const struct call *call, const char *table)
{
    const struct grant *grant = call->request->session->grant;
    return call->shard->access == NULL || (grant != NULL && grant_covers(grant, table));
}

struct table *authorized_table(struct call *call, const char *name)
{
    if (authorizes_table(call, name))
        return tables_find(&call->shard->engine.tables, name, &call->error);
    call->shard->counters.denied++;
    embd__error_set(&call->error, EMBD_UNKNOWN_TABLE, "there is no table '%s'", name);
    return NULL;
}

bool authorizes_tokens(const struct call *call)
{
    const struct grant *grant = call->request->session->grant;
    return call->shard->access == NULL || (grant != NULL && grant->role == ROLE_ADMIN);
}

/* Whether the table exists or not: the peer may not know. */
int authorize_table(struct call *call, const char *table)
{
    const struct grant *grant = call->request->session->grant;
    if (authorizes_table(call, table))
        return EMBD_OK;
    call->shard->counters.denied++;
    return embd__error_set(&call->error, EMBD_DENIED,
                           "%s of table '%.*s': token '%s' with the role %s is not for this table",
                           call->reader.method_name, (int)EMBD_NAME_MAX, table,
                           grant != NULL ? grant->name : "",
                           role_name(grant != NULL ? grant->role : ROLE_NONE));
}

int authorize_part(struct call *call, const struct op_part *part, uint32_t i, bool is_push)
{
    const struct grant *grant = call->request->session->grant;
    const embd_schema *schema = part->table != NULL ? &part->table->schema.s : NULL;
    char what[128];
    if (call->shard->access == NULL || schema == NULL)
        return EMBD_OK;
    if (!authorizes_table(call, schema->name)) {
        call->shard->counters.denied++;
        return check_is_known(NULL, &part->in, i, &call->error);
    }
    if (is_push || schema->create_on != EMBD_CREATE_ON_PULL || grant->role >= ROLE_TRAINER)
        return EMBD_OK;
    snprintf(what, sizeof what, "pull of table '%s', which creates rows on pulls,", schema->name);
    return deny_role(call, what, ROLE_TRAINER);
}

static bool covers(const void *grant, const char *name)
{
    return grant_covers(grant, name);
}

int authorize_job(struct call *call, const char *job)
{
    const struct grant *grant = call->request->session->grant;
    const struct jobs *jobs = &call->shard->engine.jobs;
    if (call->shard->access == NULL || (grant != NULL && grant_covers(grant, "")))
        return EMBD_OK;
    if (grant != NULL && grant_covers(grant, job))
        return jobs_beside(jobs, job, covers, grant) < JOBS_PER_TOKEN
                   ? EMBD_OK
                   : embd__error_set(&call->error, EMBD_FULL,
                                     "%s: job '%s': token '%s' has %u other jobs with live "
                                     "workers, the limit",
                                     call->reader.method_name, job, grant->name, JOBS_PER_TOKEN);
    call->shard->counters.denied++;
    return embd__error_set(&call->error, EMBD_DENIED,
                           "%s: job '%s' begins with no prefix of token '%s'; name it like the "
                           "tables that the token is for",
                           call->reader.method_name, job, grant != NULL ? grant->name : "");
}

/* ---- hello ---- */

static void set_grant(struct shard_session *session, struct access *access,
                      const struct grant *grant)
{
    access_share(access);
    access_drop(session->access);
    session->access = access;
    session->grant = grant;
}

int authorize_hello(struct call *call, const char *token)
{
    struct shard_session *session = call->request->session;
    struct access *access = call->shard->access;
    if (access == NULL || (token[0] == '\0' && session->grant != NULL))
        return EMBD_OK;
    const struct grant *grant = access_find(access, token);
    if (grant != NULL) {
        set_grant(session, access, grant);
        return EMBD_OK;
    }
    call->shard->counters.denied++;
    session->is_refused = true;
    return embd__error_set(&call->error, EMBD_DENIED,
                           token[0] == '\0'
                               ? "hello needs a token with the role reader, trainer or admin"
                               : "hello: the token is not known to this server");
}

/* ---- another list ---- */

void shard_set_access(struct shard *shard, struct access *access)
{
    access_drop(shard->access);
    shard->access = access_share(access);
}

void shard_session_review(struct shard *shard, struct shard_session *session)
{
    if (session->access == NULL)
        return;
    const struct grant *grant = access_find_again(shard->access, session->grant);
    if (grant != NULL)
        set_grant(session, shard->access, grant);
    else
        session->is_refused = true;
}

/* On a server without tokens the streams of everybody are left. */
bool authorize_is_gone(const void *arg, uint64_t principal)
{
    const struct access *access = arg;
    if (principal == PRINCIPAL_EVERYBODY)
        return access != NULL;
    return access == NULL || !access_has_principal(access, principal);
}
