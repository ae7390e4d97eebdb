/* handle_replace.c - staged tables take the places of others, under a hold of all shards: `check`
 * on every shard, then `apply` on every shard. What `check` has found stays so until `apply`, for
 * nothing changes tables under the hold, and no other connection can begin one. */
#include "server/engine/staged.h"
#include "server/log/log.h"
#include "server/service/authorize.h"
#include "server/access/access.h"
#include "server/service/state.h"
#include "server/snapshot/disk_phase.h"

enum { REPLACE_CHECK, REPLACE_APPLY, REPLACE_PHASES };
static const char *const phase_names[REPLACE_PHASES] = {"check", "apply"};

static struct op *begin(struct call *call, uint64_t id)
{
    const struct staging_set *set = staging_find(&call->shard->staging, id);
    struct op *op = work_op(call->work, OP_REPLACE);
    op->as.replace = (struct op_replace){.id = id};
    for (int kind = 0; kind < 2 && set != NULL; kind++)
        op->as.replace.back[kind] = (struct rollback){.list = set->streams[kind],
                                                      .n = set->n_streams[kind],
                                                      .brings_unknown = set->brings_unknown};
    return op;
}

static void answer_nothing(struct call *call)
{
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
}

/* ---- check ---- */

static int check_alone(struct call *call)
{
    const struct shard *shard = call->shard;
    const struct shard_session *session = call->request->session;
    if (!session->holds)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace: this connection holds nothing; hold comes first");
    if (shard->hold.holders != session || session->next_holder != NULL)
        return embd__error_set(&call->error, EMBD_BUSY,
                               "table_replace: another connection holds too");
    if (shard->cut != NULL || shard->cut_read != NULL || disk_phase_has_cut(shard))
        return embd__error_set(&call->error, EMBD_BUSY,
                               "table_replace: a snapshot or dump is being written");
    return EMBD_OK;
}

static int check(struct call *call, uint64_t id, uint32_t n)
{
    struct shard *shard = call->shard;
    const struct staged *staged = staged_set(&shard->engine.tables, id);
    if (check_alone(call) != EMBD_OK)
        return call->error.status;
    if (!authorizes_staged(call, id))
        return embd__error_set(&call->error, EMBD_DENIED,
                               "table_replace: a staged table is not for token '%s'",
                               call->request->session->grant->name);
    if (staged != NULL && staged->n != n)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace field 'tables' is %u, %u are staged", n, staged->n);
    struct op *op = begin(call, id);
    if (engine_admit(op) != EMBD_OK) {
        call->error = op->error;
        return call->error.status;
    }
    shard->staging.replacer = call->request->session;
    shard->staging.checked = id;
    answer_nothing(call);
    return EMBD_OK;
}

/* ---- apply ---- */

static void applied(const struct shard_work *work, struct msg *m)
{
    struct staging *staging = &work->shard->staging;
    struct staging_set *set = staging_find(staging, work->op.as.replace.id);
    staging->done = work->op.as.replace.id;
    staging->replacer = NULL;
    if (set != NULL)
        staging_forget(set);
    log_event(LOG_INFO, "tables_replaced", "shard=%u id=%016llx", work->shard->config.index,
              (unsigned long long)staging->done);
    embd__msg_map(m, 0);
}

static int apply(struct call *call, uint64_t id)
{
    const struct staging *staging = &call->shard->staging;
    if (staging->done == id) {
        answer_nothing(call);
        return EMBD_OK;
    }
    if (staging->replacer != call->request->session || staging->checked != id ||
        check_alone(call) != EMBD_OK)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace: `apply` comes behind `check` on its connection, "
                               "under the same hold");
    begin(call, id);
    return submit(call, applied);
}

int handle_table_replace(struct call *call)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "table_replace");
    uint64_t id = embd__field_uint(&f, "id", 1, UINT64_MAX, FIELD_REQUIRED);
    int phase = embd__field_enum(&f, "phase", phase_names, REPLACE_PHASES, -1);
    uint32_t n = phase == REPLACE_CHECK
                     ? (uint32_t)embd__field_uint(&f, "tables", 1, LIMIT_TABLES, FIELD_REQUIRED)
                     : 0;
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    return phase == REPLACE_CHECK ? check(call, id, n) : apply(call, id);
}
