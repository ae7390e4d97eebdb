/* handle_replace.c - staged tables take the places of others, under a hold of all shards: `check`
 * on every shard, then `apply` on every shard. What `check` has found stays so until `apply`, for
 * nothing changes tables under the hold, and no other connection can begin one.
 *
 * On several shards `prepare` comes between, on all but shard 0: from then on the shard waits for
 * what shard 0 decides, whatever becomes of the coordinator (doubt.c).
 *
 * The map of a move (moving.h) comes to all shards in the same way, in the place of tables. */
#include "server/engine/staged.h"
#include "server/log/log.h"
#include "server/service/authorize.h"
#include "server/access/access.h"
#include "server/service/state.h"
#include "server/snapshot/disk_phase.h"

enum { PHASE_CHECK, PHASE_PREPARE, PHASE_APPLY, PHASES };
static const char *const phase_names[PHASES] = {"check", "prepare", "apply"};

struct replace_request {
    uint64_t id, decision; /* decision 0: the coordinator is alone, or of an earlier version */
    uint32_t n;            /* tables, of a check */
    bool is_place;         /* the map of the move with that id; a shard that joins has tables too */
};

/* Positions of streams are the loader's, or what the shard keeps since it has prepared. */
static struct op *begin(struct call *call, const struct replace_request *r, enum op_kind kind)
{
    const struct prepared *prepared = &call->shard->engine.prepared;
    const struct staging_set *set = staging_find(&call->shard->staging, r->id);
    struct op *op = work_op(call->work, kind);
    struct op_replace *replace = &op->as.replace;
    *replace = (struct op_replace){.id = r->id,
                                   .decision = r->decision,
                                   .step = kind == OP_REPLACE ? REPLACE_DONE : REPLACE_PREPARED,
                                   .place = r->is_place ? &call->shard->moving.next : NULL};
    for (int of = 0; of < 2 && set != NULL; of++)
        replace->back[of] = (struct rollback){.list = set->streams[of],
                                              .n = set->n_streams[of],
                                              .brings_unknown = set->brings_unknown};
    for (int of = 0; of < 2 && prepared->id == r->id; of++)
        replace->back[of] = prepared->back[of];
    return op;
}

static int answer_nothing(struct call *call)
{
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
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

/* Whether this attempt may begin at all. A table that fails to become durable behind the check
 * would not fit any more. */
static int check_decision(struct call *call, const struct replace_request *r)
{
    if (call->shard->engine.prepared.id != 0)
        return embd__error_set(&call->error, EMBD_BUSY,
                               "table_replace: an earlier replacement of tables, or a move of "
                               "keys, waits for the decision of shard 0; try again");
    if (r->decision != 0 && call->shard->engine.tables.n_joining > 0)
        return embd__error_set(&call->error, EMBD_BUSY,
                               "table_replace: a table is about to become durable; try again");
    if (r->decision != 0 && r->decision == call->shard->staging.refused)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace field 'decision': shard 0 has refused that one");
    return EMBD_OK;
}

/* Tables that came or went since the move began may have lost rows on their way. */
static int check_move(struct call *call, const struct replace_request *r)
{
    const struct moving *moving = &call->shard->moving;
    if (!r->is_place)
        return EMBD_OK;
    if (moving->mover != call->request->session || moving->id != r->id)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace: this connection moves no keys with id %llu",
                               (unsigned long long)r->id);
    if (moving_lost_tables(call->shard) && !shard_joins(call->shard))
        return embd__error_set(&call->error, EMBD_BUSY,
                               "tables were created, dropped or replaced while keys were moved: "
                               "move them again");
    if (moving_check_tables(call->shard, &call->error) != EMBD_OK ||
        moving_check_pushes(call->shard, &call->error) != EMBD_OK)
        return call->error.status;
    if (moving_check_followers(call->shard, &moving->next, &call->error) != EMBD_OK)
        return call->error.status;
    return moving_check_ready(call->shard, &moving->next, &call->error);
}

/* Rows of staged tables do not move: they lie where the map had them when they were loaded. */
static int check_placed(struct call *call, uint64_t id)
{
    const struct staging_set *set = staging_find(&call->shard->staging, id);
    if (set == NULL || set->placement == moving_version(call->shard))
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_BUSY,
                           "table_replace: keys have moved between shards since the tables were "
                           "staged: load them again");
}

static int check(struct call *call, const struct replace_request *r)
{
    struct shard *shard = call->shard;
    const struct staged *staged = staged_set(&shard->engine.tables, r->id);
    if (check_alone(call) != EMBD_OK || check_decision(call, r) != EMBD_OK ||
        check_move(call, r) != EMBD_OK || check_placed(call, r->id) != EMBD_OK)
        return call->error.status;
    if (!authorizes_staged(call, r->id))
        return embd__error_set(&call->error, EMBD_DENIED,
                               "table_replace: a staged table is not for token '%s'",
                               call->request->session->grant->name);
    if ((staged != NULL ? staged->n : 0) != r->n && (staged != NULL || r->is_place))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace field 'tables' is %u, %u are staged", r->n,
                               staged != NULL ? staged->n : 0);
    struct op *op = begin(call, r, OP_REPLACE);
    if (engine_admit(op) != EMBD_OK) {
        call->error = op->error;
        return call->error.status;
    }
    shard->staging.replacer = call->request->session;
    shard->staging.checked = r->id;
    shard->staging.decision = r->decision;
    shard->staging.is_place = r->is_place;
    if (shard->staging.done == r->id)
        shard->staging.done = 0; /* of an earlier load that drew the same id */
    return answer_nothing(call);
}

static int check_checked(struct call *call, const struct replace_request *r)
{
    const struct staging *staging = &call->shard->staging;
    if (staging->replacer != call->request->session || staging->checked != r->id ||
        staging->decision != r->decision || staging->is_place != r->is_place ||
        check_alone(call) != EMBD_OK)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace: `prepare` and `apply` come behind `check` on its "
                               "connection, under the same hold");
    return EMBD_OK;
}

/* ---- prepare ---- */

static void prepared(const struct shard_work *work, struct msg *m)
{
    staging_lock(work->shard);
    embd__msg_map(m, 0);
}

static int prepare(struct call *call, const struct replace_request *r)
{
    const struct prepared *before = &call->shard->engine.prepared;
    if (check_checked(call, r) != EMBD_OK)
        return call->error.status;
    if (call->shard->config.index == 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "table_replace: shard 0 decides; it is not asked to prepare");
    if (before->id == r->id && before->decision == r->decision)
        return answer_nothing(call);
    begin(call, r, OP_PREPARE);
    return submit(call, prepared);
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
    staging_lock(work->shard);
    if (work->op.as.replace.place == NULL)
        log_event(LOG_INFO, "tables_replaced", "shard=%u id=%016llx", work->shard->config.index,
                  (unsigned long long)staging->done);
    embd__msg_map(m, 0);
}

/* Its coordinator says that shard 0 has decided: its hold here may be over. */
static bool is_decided(const struct call *call, const struct replace_request *r)
{
    const struct prepared *before = &call->shard->engine.prepared;
    return before->id == r->id && before->decision == r->decision &&
           (before->place != NULL) == r->is_place &&
           call->shard->staging.replacer == call->request->session &&
           !call->shard->staging.is_settling;
}

static int apply(struct call *call, const struct replace_request *r)
{
    struct staging *staging = &call->shard->staging;
    if (staging->done == r->id)
        return answer_nothing(call);
    if (!is_decided(call, r) && check_checked(call, r) != EMBD_OK)
        return call->error.status;
    begin(call, r, OP_REPLACE);
    staging->deciding = r->decision;
    return submit(call, applied);
}

int handle_table_replace(struct call *call)
{
    struct fields f;
    struct replace_request r = {.n = 0};
    embd__read_fields(&f, &call->reader, "table_replace");
    r.id = embd__field_uint(&f, "id", 1, UINT64_MAX, FIELD_REQUIRED);
    int phase = embd__field_enum(&f, "phase", phase_names, PHASES, -1);
    r.decision = embd__field_uint(&f, "decision", 1, UINT64_MAX,
                                  phase == PHASE_PREPARE ? FIELD_REQUIRED : 0);
    r.is_place = embd__field_bool(&f, "placement", false);
    if (phase == PHASE_CHECK)
        r.n = (uint32_t)embd__field_uint(&f, "tables", r.is_place ? 0 : 1, LIMIT_TABLES,
                                         r.is_place ? 0 : FIELD_REQUIRED);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (phase == PHASE_PREPARE)
        return prepare(call, &r);
    return phase == PHASE_CHECK ? check(call, &r) : apply(call, &r);
}
