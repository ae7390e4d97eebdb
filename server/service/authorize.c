/* authorize.c - see authorize.h. A method that is not listed here is an admin's. */
#include "server/service/authorize.h"
#include "server/access/access.h"
#include "server/engine/check.h"
#include "server/engine/staged.h"

static const enum role least[METHOD_COUNT] = {
    [METHOD_PING] = ROLE_READER,          [METHOD_CLUSTER] = ROLE_READER,
    [METHOD_TABLES] = ROLE_READER,        [METHOD_TABLE_DESCRIBE] = ROLE_READER,
    [METHOD_PULL] = ROLE_READER,          [METHOD_STATS] = ROLE_READER,
    [METHOD_TABLE_CREATE] = ROLE_TRAINER, [METHOD_PUSH] = ROLE_TRAINER,
    [METHOD_ERASE] = ROLE_TRAINER,        [METHOD_TICK] = ROLE_TRAINER,
    [METHOD_WRITER] = ROLE_TRAINER,       [METHOD_STREAM_OPEN] = ROLE_TRAINER,
    [METHOD_IDENTITY] = ROLE_READER,      [METHOD_TABLE_SET] = ROLE_TRAINER,
    [METHOD_GET] = ROLE_READER,           [METHOD_PUT] = ROLE_TRAINER,
    [METHOD_KEYS] = ROLE_READER,          [METHOD_TABLE_DROP] = ROLE_TRAINER,
    [METHOD_SNAPSHOT] = ROLE_TRAINER,     [METHOD_TABLE_STAGE] = ROLE_TRAINER,
    [METHOD_LOAD] = ROLE_TRAINER,         [METHOD_SHARE] = ROLE_READER,
    [METHOD_DEVICE_OPEN] = ROLE_READER,   [METHOD_DEVICE_CLOSE] = ROLE_READER,
    [METHOD_DEVICE_PULL] = ROLE_READER,   [METHOD_DEVICE_PUSH] = ROLE_TRAINER,
    [METHOD_RING] = ROLE_READER,          [METHOD_CHANGES] = ROLE_READER,
    [METHOD_TRUNK] = ROLE_READER,
};

/* The methods that a server calls when it makes a snapshot for a trainer. */
static const bool coordinates[METHOD_COUNT] = {
    [METHOD_PING] = true,    [METHOD_CLUSTER] = true,  [METHOD_HOLD] = true,
    [METHOD_RELEASE] = true, [METHOD_SNAPSHOT] = true, [METHOD_TABLE_REPLACE] = true,
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

static int deny_server(struct call *call, const char *what)
{
    const struct shard_session *session = call->request->session;
    call->shard->counters.denied++;
    return embd__error_set(&call->error, EMBD_DENIED,
                           "%s is not for a server that makes a snapshot for token '%s'", what,
                           session->grant->name);
}

int authorize_method(struct call *call)
{
    const struct shard_session *session = call->request->session;
    const struct grant *grant = session->grant;
    int method = call->reader.method;
    if (method == METHOD_HELLO)
        return EMBD_OK;
    if (session->server != NULL)
        return coordinates[method] ? EMBD_OK : deny_server(call, call->reader.method_name);
    if (grant != NULL && grant->role >= least_role(method))
        return EMBD_OK;
    return deny_role(call, call->reader.method_name, least_role(method));
}

bool authorizes_table(const struct call *call, const char *table)
{
    const struct grant *grant = call->request->session->grant;
    return call->shard->access == NULL || (grant != NULL && grant_covers(grant, table));
}

const struct grant *authorize_bound(const struct call *call)
{
    const struct grant *grant = call->request->session->grant;
    return call->shard->access != NULL && grant->role < ROLE_ADMIN ? grant : NULL;
}

int authorize_name(struct call *call, const char *what, const char *name)
{
    const struct grant *bound = authorize_bound(call);
    if (bound == NULL || grant_covers(bound, name))
        return EMBD_OK;
    call->shard->counters.denied++;
    return embd__error_set(&call->error, EMBD_DENIED,
                           "%s: %s '%.80s' begins with no prefix of token '%s' with the role %s",
                           call->reader.method_name, what, name, bound->name,
                           role_name(bound->role));
}

int authorize_coordinator(struct call *call, const char *what)
{
    if (authorize_bound(call) == NULL || call->request->session->server != NULL)
        return EMBD_OK;
    return deny_role(call, what, ROLE_ADMIN);
}

struct table *authorized_table(struct call *call, const char *name)
{
    if (authorizes_table(call, name))
        return tables_find(&call->shard->engine.tables, name, &call->error);
    call->shard->counters.denied++;
    embd__error_set(&call->error, EMBD_UNKNOWN_TABLE, "there is no table '%s'", name);
    return NULL;
}

bool authorizes_staged(const struct call *call, uint64_t id)
{
    const struct staged *staged = staged_set(&call->shard->engine.tables, id);
    for (uint32_t i = 0; staged != NULL && i < staged->n; i++)
        if (!authorizes_table(call, staged->list[i]->schema.s.name))
            return false;
    return true;
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
                      const struct grant *grant, const struct grant *server)
{
    access_share(access);
    access_drop(session->access);
    session->access = access;
    session->grant = grant;
    session->server = server;
}

static int refuse_hello(struct call *call, const char *why, const char *name)
{
    call->shard->counters.denied++;
    call->request->session->is_refused = true;
    return embd__error_set(&call->error, EMBD_DENIED, why, name);
}

/* `by`: whose token the peer has shown. */
static int act_for(struct call *call, const struct grant *by, const char *name)
{
    struct access *access = call->shard->access;
    const struct grant *grant = access_named(access, name);
    if (by != &grant_of_owner && by->role != ROLE_SERVER)
        return refuse_hello(call, "hello field 'for' needs the role server; token '%s' has another",
                            by->name);
    if (grant == NULL || grant->role != ROLE_TRAINER)
        return refuse_hello(call,
                            "hello field 'for' is '%.63s', and this server's list of tokens has no "
                            "trainer of that name: give all servers the same list",
                            name);
    set_grant(call->request->session, access, grant, by);
    return EMBD_OK;
}

/* ---- hello of trainers on the admin listener ---- */

void authorize_leave(struct shard *shard, const struct shard_session *session)
{
    struct shard_session **at = &shard->trainers;
    while (*at != NULL && *at != session)
        at = &(*at)->next_trainer;
    if (*at != NULL)
        *at = session->next_trainer;
}

/* Its connection ends with the answer. */
static int refuse_room(struct call *call, const struct grant *grant, uint32_t n_own, uint32_t n)
{
    call->request->session->is_refused = true;
    return embd__error_set(&call->error, EMBD_BUSY,
                           "hello: token '%s' has %u other connections to this admin listener, the "
                           "limit is %u; trainers and readers have %u, the limit is %u: try again",
                           grant->name, n_own, ADMIN_CONNECTIONS_OF_TOKEN, n,
                           ADMIN_CONNECTIONS_OF_TRAINERS);
}

static int take_room(struct call *call, const struct grant *grant)
{
    struct shard *shard = call->shard;
    struct shard_session *session = call->request->session;
    uint32_t n = 0, n_own = 0;
    authorize_leave(shard, session);
    if (!session->is_admin || grant->role >= ROLE_ADMIN)
        return EMBD_OK;
    for (const struct shard_session *at = shard->trainers; at != NULL; at = at->next_trainer) {
        n++;
        n_own += at->grant->principal == grant->principal;
    }
    if (n_own >= ADMIN_CONNECTIONS_OF_TOKEN || n >= ADMIN_CONNECTIONS_OF_TRAINERS)
        return refuse_room(call, grant, n_own, n);
    session->next_trainer = shard->trainers;
    shard->trainers = session;
    return EMBD_OK;
}

/* Who says hello; NULL: the token is not known. */
static const struct grant *find_greeter(const struct shard_session *session,
                                        const struct access *access, const char *token)
{
    if (token[0] != '\0' || session->grant == NULL)
        return access_find(access, token);
    return session->server != NULL ? session->server : session->grant;
}

int authorize_hello(struct call *call, const char *token, const char *acts_for)
{
    struct shard_session *session = call->request->session;
    struct access *access = call->shard->access;
    if (access == NULL || (token[0] == '\0' && acts_for[0] == '\0' && session->grant != NULL))
        return EMBD_OK;
    const struct grant *grant = find_greeter(session, access, token);
    if (grant == NULL)
        return refuse_hello(call,
                            token[0] == '\0'
                                ? "hello needs a token with the role reader, trainer or admin%s"
                                : "hello: the token is not known to this server%s",
                            "");
    if (acts_for[0] != '\0')
        return act_for(call, grant, acts_for);
    if (grant->role == ROLE_SERVER)
        return refuse_hello(call,
                            "hello: token '%s' has the role server: it needs the field 'for', the "
                            "name of a trainer's token",
                            grant->name);
    if (take_room(call, grant) == EMBD_OK)
        set_grant(session, access, grant, NULL);
    return call->error.status;
}

/* ---- another list ---- */

void shard_set_access(struct shard *shard, struct access *access)
{
    access_drop(shard->access);
    shard->access = access_share(access);
}

/* NULL: its token has gone, or there is no server. */
static const struct grant *server_again(const struct access *access, const struct grant *server)
{
    bool is_listed = server != NULL && server != &grant_of_owner;
    return is_listed ? access_find_again(access, server) : server;
}

void shard_session_review(struct shard *shard, struct shard_session *session)
{
    if (session->access == NULL)
        return;
    const struct grant *grant = access_find_again(shard->access, session->grant);
    const struct grant *server = server_again(shard->access, session->server);
    if (grant != NULL && (session->server == NULL || server != NULL))
        set_grant(session, shard->access, grant, server);
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
