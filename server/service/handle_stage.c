/* handle_stage.c - tables that are loaded to replace others: each is made beside the one in its
 * place, with the positions of streams that come with them; or the set ends. */
#include <stdlib.h>
#include <string.h>

#include "server/access/access.h"
#include "server/engine/staged.h"
#include "server/service/authorize.h"
#include "server/service/state.h"
#include "server/service/token_use.h"

/* Of each kind: streams of both kinds may become one kind here. */
#define STREAMS_STAGED_MAX (2 * PUSHER_STREAMS_MAX)

static uint64_t principal_of(const struct call *call)
{
    const struct grant *bound = authorize_bound(call);
    return bound != NULL ? bound->principal : 0;
}

/* The peer's own set of another id is in the way, or that of another loader has this one. */
static int check_free(struct call *call, uint64_t id)
{
    struct staging *staging = &call->shard->staging;
    staging_forget_gone(call->shard);
    const struct staging_set *other = staging_find(staging, id);
    const uint64_t principal = principal_of(call);
    for (uint32_t i = 0; i < STAGED_SETS && other == NULL; i++)
        if (staging->sets[i].id != 0 && staging->sets[i].principal == principal)
            other = &staging->sets[i];
    if (other == NULL || (other->id == id && other->principal == principal))
        return EMBD_OK;
    return embd__error_set(
        &call->error, EMBD_BUSY, "table_stage: tables of another load wait to take their places%s",
        other->loader == NULL ? "; its loader has left, and they are being dropped: try again"
                              : ", among them the first; wait for it, or end it");
}

static struct staging_set *refuse_set(struct call *call, uint32_t limit, const char *whose)
{
    embd__error_set(&call->error, EMBD_BUSY,
                    "table_stage: %u loads%s have staged tables, the limit; try again", limit,
                    whose);
    return NULL;
}

/* The set that the tables belong to; NULL: there are too many. */
static struct staging_set *take_set(struct call *call, uint64_t id)
{
    struct staging *staging = &call->shard->staging;
    struct staging_set *set = staging_find(staging, id);
    const uint64_t principal = principal_of(call);
    if (set == NULL && principal != 0 && staging_of_trainers(staging) >= STAGED_BY_TRAINERS)
        return refuse_set(call, STAGED_BY_TRAINERS, " of trainers");
    if (set == NULL && (set = staging_find(staging, 0)) == NULL)
        return refuse_set(call, STAGED_SETS, "");
    if (set->id == 0)
        set->placement = moving_version(call->shard);
    set->id = id;
    set->principal = principal;
    return set;
}

static bool is_there(const struct call *call, uint64_t id)
{
    return staged_set(&call->shard->engine.tables, id) != NULL && authorizes_staged(call, id);
}

static int check_is_there(struct call *call, const struct staging_set *set, uint64_t id)
{
    if (set != NULL && is_there(call, id))
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "table_stage: there are no staged tables of the id %llu",
                           (unsigned long long)id);
}

/* ---- a table ---- */

/* How the table in its place is kept does not change. */
static int resolve_durability(struct call *call, embd_schema *schema)
{
    const struct table *old = tables_by_name(&call->shard->engine.tables, schema->name);
    bool is_pulled = schema->create_on == EMBD_CREATE_ON_PULL;
    bool can_be_kept = call->shard->data_dir >= 0 && !is_pulled;
    if (old != NULL && table_is_journaled(old) && is_pulled)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "schema field 'create_on' is 'pull', and table '%s' has durability "
                               "'%s', which needs 'push': drop it first",
                               schema->name, embd_durability_name(table_durability(old)));
    if (old != NULL) {
        schema->durability = table_durability(old);
        schema->changed |= old->schema.s.changed & embd__schema_bits("durability");
    } else if (schema->durability == EMBD_DURABILITY_AUTO) {
        schema->durability = can_be_kept ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT;
    } else if (!can_be_kept) {
        schema->durability = EMBD_DURABILITY_SNAPSHOT;
    }
    return EMBD_OK;
}

static void staged(const struct shard_work *work, struct msg *m)
{
    embd__msg_map(m, 1);
    embd__msg_field_bool(m, "journaled",
                         work->op.as.stage.schema.s.durability != EMBD_DURABILITY_SNAPSHOT);
}

static int stage(struct call *call, struct fields *f, uint64_t id)
{
    struct op *op = work_op(call->work, OP_STAGE);
    struct op_stage *stage = &op->as.stage;
    struct fields map;
    *stage = (struct op_stage){.id = id};
    embd__field_map(f, "schema", &map, "schema");
    if (embd__schema_read(&map, &stage->schema) != EMBD_OK || call_end(call, f) != EMBD_OK ||
        authorize_table(call, stage->schema.s.name) != EMBD_OK ||
        token_use_check_new(call, stage->schema.s.name) != EMBD_OK ||
        check_free(call, id) != EMBD_OK || resolve_durability(call, &stage->schema.s) != EMBD_OK)
        return call->error.status;
    struct staging_set *set = take_set(call, id);
    if (set == NULL)
        return call->error.status;
    set->loader = call->request->session;
    int status = submit(call, staged);
    if (status < EMBD_OK && staged_set(&call->shard->engine.tables, id) == NULL)
        staging_forget(set);
    return status;
}

/* ---- streams ---- */

static void answer_nothing(struct call *call)
{
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
}

/* A trainer sets positions of its own streams alone: others' stay, or are forgotten, as if the list
 * did not have them. Returns how many are left. */
static uint64_t keep_own(const struct call *call, bool is_journaled, struct push_stream *list,
                         uint64_t n)
{
    const struct engine *engine = &call->shard->engine;
    const struct pushers *pushers = is_journaled ? &engine->journaled_pushers : &engine->pushers;
    const struct grant *bound = authorize_bound(call);
    uint64_t n_own = 0;
    for (uint64_t i = 0; i < n && list != NULL; i++)
        if (bound == NULL || pushers_are_of(pushers, &list[i], bound->principal))
            list[n_own++] = list[i];
    return n_own;
}

static int add_streams(const struct call *call, struct staging_set *set, bool is_journaled,
                       const uint8_t *bytes, uint64_t n, struct embd__error *e)
{
    uint32_t *n_here = &set->n_streams[is_journaled];
    struct push_stream *list = embd__streams_take(bytes, n, true, e),
                       *grown =
                           realloc(set->streams[is_journaled], (*n_here + n + 1) * sizeof *grown);
    if (grown == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu streams", (unsigned long long)n);
    else
        set->streams[is_journaled] = grown;
    n = keep_own(call, is_journaled, list, n);
    if (list != NULL && grown != NULL) {
        memcpy(grown + *n_here, list, n * sizeof *list);
        *n_here += (uint32_t)n;
    }
    free(list);
    return e->status;
}

/* They take effect with the tables. */
static int take_streams(struct call *call, struct fields *f, uint64_t id)
{
    struct staging_set *set = staging_find(&call->shard->staging, id);
    uint64_t n = embd__field_uint(f, "writers", 0, PUSHER_STREAMS_MAX, FIELD_REQUIRED);
    bool is_journaled = embd__field_bool(f, "journaled", true);
    bool is_all = embd__field_bool(f, "all", false);
    if (embd__fields_end(f) != EMBD_OK)
        return call->error.status;
    const uint8_t *bytes = embd__read_bin(&call->reader, "writers", n * STREAM_BYTES);
    if (embd__reader_end(&call->reader) != EMBD_OK || check_is_there(call, set, id) != EMBD_OK)
        return call->error.status;
    if (is_all && authorize_coordinator(call, "table_stage with 'all'") != EMBD_OK)
        return call->error.status;
    if (set->n_streams[is_journaled] + n > STREAMS_STAGED_MAX)
        return embd__error_set(
            &call->error, EMBD_TOO_LARGE, "table_stage: %llu streams more than %u, the limit is %u",
            (unsigned long long)n, set->n_streams[is_journaled], STREAMS_STAGED_MAX);
    if (add_streams(call, set, is_journaled, bytes, n, &call->error) != EMBD_OK)
        return call->error.status;
    set->brings_unknown = is_all;
    answer_nothing(call);
    return EMBD_OK;
}

/* ---- the end ---- */

static int unstage(struct call *call, struct fields *f, uint64_t id)
{
    struct staging_set *set = staging_find(&call->shard->staging, id);
    struct op *op = work_op(call->work, OP_UNSTAGE);
    op->as.unstaged = id;
    if (call_end(call, f) != EMBD_OK)
        return call->error.status;
    if (set != NULL && set->principal == principal_of(call) &&
        staged_set(&call->shard->engine.tables, id) == NULL)
        staging_forget(set); /* its first table was refused */
    if (!is_there(call, id)) {
        answer_nothing(call);
        return EMBD_OK;
    }
    if (staging_is_checked(&call->shard->staging, id))
        return embd__error_set(&call->error, EMBD_BUSY,
                               "table_stage: the tables are about to take their places");
    if (set != NULL)
        staging_forget(set);
    return submit(call, submit_result_empty);
}

int handle_table_stage(struct call *call)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "table_stage");
    uint64_t id = embd__field_uint(&f, "id", 1, UINT64_MAX, FIELD_REQUIRED);
    if (embd__field_bool(&f, "drop", false))
        return unstage(call, &f, id);
    if (embd__field_has(&f, "writers"))
        return take_streams(call, &f, id);
    return stage(call, &f, id);
}
