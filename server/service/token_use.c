/* token_use.c - see token_use.h. */
#include "server/service/token_use.h"

#include <string.h>

#include "server/access/access.h"
#include "server/service/state.h"

/* Another prefix of the token covers all that its i-th does. */
static bool is_within_another(const struct grant *grant, uint32_t i)
{
    for (uint32_t j = 0; j < grant->n_prefixes; j++) {
        const char *other = grant->prefixes[j];
        bool is_wider = strlen(other) < strlen(grant->prefixes[i]) ||
                        (j < i && strcmp(other, grant->prefixes[i]) == 0);
        if (is_wider && strncmp(grant->prefixes[i], other, strlen(other)) == 0)
            return true;
    }
    return false;
}

/* Tables are in the order of their names, so those of a prefix stand together. */
static void count(const struct tables *tables, const char *prefix, struct token_use *use)
{
    size_t n = strlen(prefix);
    for (uint32_t i = tables_from(tables, prefix); i < tables->n; i++) {
        const struct table *table = tables->by_name[i];
        if (strncmp(table->schema.s.name, prefix, n) != 0)
            return;
        use->tables++;
        use->row_bytes += table->counted_bytes;
    }
}

struct token_use token_use_of(const struct tables *tables, const struct grant *grant)
{
    struct token_use use = {.most_tables = grant->most_tables,
                            .most_row_bytes = grant->most_row_bytes,
                            .snapshots = GRANT_UNLIMITED,
                            .snapshot_bytes = GRANT_UNLIMITED,
                            .most_snapshots = GRANT_UNLIMITED,
                            .most_snapshot_bytes = GRANT_UNLIMITED};
    memcpy(use.name, grant->name, sizeof use.name);
    for (uint32_t i = 0; i < grant->n_prefixes; i++)
        if (!is_within_another(grant, i))
            count(tables, grant->prefixes[i], &use);
    return use;
}

static bool is_limited(const struct grant *grant)
{
    return grant->most_tables != GRANT_UNLIMITED || grant->most_row_bytes != GRANT_UNLIMITED ||
           grant->most_snapshots != GRANT_UNLIMITED ||
           grant->most_snapshot_bytes != GRANT_UNLIMITED;
}

static void add_snapshots(const struct shard *shard, const struct grant *grant,
                          struct token_use *use)
{
    if (!shard->config.is_first || !shard->snapshot_use.is_known)
        return;
    snapshot_use_of(&shard->snapshot_use, grant, &use->snapshots, &use->snapshot_bytes);
    use->most_snapshots = grant->most_snapshots;
    use->most_snapshot_bytes = grant->most_snapshot_bytes;
}

uint32_t token_use_list(const struct shard *shard, const struct grant *only, struct token_use *out,
                        uint32_t most)
{
    const struct access *access = shard->access;
    uint32_t n = 0, n_grants = access != NULL ? access_count(access) : 0;
    for (uint32_t i = 0; i < n_grants && n < most; i++) {
        const struct grant *grant = access_at(access, i);
        bool is_wanted = only == NULL || grant->principal == only->principal;
        if (!is_wanted || !is_limited(grant))
            continue;
        out[n] = token_use_of(&shard->engine.tables, grant);
        add_snapshots(shard, grant, &out[n++]);
    }
    return n;
}

/* Staged tables of the token that take nobody's place. */
static uint64_t n_staged_new(const struct tables *tables, const struct grant *grant)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < STAGED_SETS; i++) {
        const struct staged *set = tables->staged[i];
        for (uint32_t k = 0; set != NULL && k < set->n; k++) {
            const char *name = set->list[k]->schema.s.name;
            n += grant_covers(grant, name) && tables_by_name(tables, name) == NULL;
        }
    }
    return n;
}

int token_use_check_new(struct call *call, const char *table)
{
    const struct grant *grant = call->request->session->grant;
    const struct tables *tables = &call->shard->engine.tables;
    if (call->shard->access == NULL || grant->most_tables == GRANT_UNLIMITED ||
        tables_by_name(tables, table) != NULL)
        return EMBD_OK;
    uint64_t n = token_use_of(tables, grant).tables + n_staged_new(tables, grant);
    if (n < grant->most_tables)
        return EMBD_OK;
    return embd__error_set(
        &call->error, EMBD_FULL,
        "%s of table '%s': there are %llu tables under the prefixes of token '%s', the "
        "limit is %llu (tables in the list of tokens): drop a table or raise the limit",
        call->reader.method_name, table, (unsigned long long)n, grant->name,
        (unsigned long long)grant->most_tables);
}

static uint64_t room(const struct op_quota *quota)
{
    return quota->limit > quota->used ? quota->limit - quota->used : 0;
}

/* Bytes that a set adds to the token's when it takes its places. Two sets may have the same tables:
 * the bytes that one of them frees count where it is loaded alone. */
static uint64_t bytes_of_set(const struct tables *tables, const struct staged *set,
                             const struct grant *grant, bool is_loaded)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const char *name = set->list[i]->schema.s.name;
        const struct table *old = tables_by_name(tables, name);
        const uint64_t before = old != NULL ? old->counted_bytes : 0;
        if (grant_covers(grant, name) && (is_loaded || set->list[i]->counted_bytes > before))
            bytes += set->list[i]->counted_bytes - before;
    }
    return bytes;
}

/* Of the token's tables, as it will be when the staged ones have taken their places; `id`: the set
 * that is loaded. */
static uint64_t bytes_after_replace(const struct tables *tables, const struct grant *grant,
                                    uint64_t id)
{
    uint64_t bytes = token_use_of(tables, grant).row_bytes;
    for (uint32_t i = 0; i < STAGED_SETS; i++)
        if (tables->staged[i] != NULL)
            bytes += bytes_of_set(tables, tables->staged[i], grant, tables->staged[i]->id == id);
    return bytes;
}

void token_use_bound_staged(struct op *op, const struct shard_session *session)
{
    const struct grant *grant = session->grant;
    struct tables *tables = &op->engine->tables;
    if (session->access == NULL || grant->most_row_bytes == GRANT_UNLIMITED)
        return;
    tables_count(tables, op->as.load.table);
    op->quota =
        (struct op_quota){.who = grant->name,
                          .used = bytes_after_replace(tables, grant, op->as.load.fields.staged),
                          .limit = grant->most_row_bytes};
}

void token_use_bound(struct op *op, const struct shard_session *session)
{
    const struct grant *grant = session->grant;
    if (session->access == NULL || grant->most_row_bytes == GRANT_UNLIMITED)
        return;
    const struct op_quota own = {.who = grant->name,
                                 .used = token_use_of(&op->engine->tables, grant).row_bytes,
                                 .limit = grant->most_row_bytes};
    if (op->quota.who == NULL || room(&own) < room(&op->quota))
        op->quota = own;
}
