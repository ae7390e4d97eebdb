/* handle_move.c - what a coordinator asks of a shard to move keys: `move`, which begins it, reads
 * rows that leave and says when those that left are removed, and `move_load`, for rows that come.
 *
 * The happy path: `begin` brings the map; each `read` answers the next block of rows that leave by
 * that map, of one table after the other (moving_read.c), and the last of a round says so; the next
 * round has what has changed since. A round that is `final` is read under a hold, and has the keys
 * that wait for admission too, since their counts change with every sight. What can fail: the
 * tables are not to be frozen now (`waits`), tables came or went, a record cannot be written. */
#include <stdlib.h>

#include "proto/placement_wire.h"
#include "server/engine/check.h"
#include "server/identity/identity.h"
#include "server/service/move_members.h"
#include "server/snapshot/disk_phase.h"

enum { PHASE_BEGIN, PHASE_READ, PHASE_STATE, PHASE_STREAMS, PHASE_MARKS, PHASES };
static const char *const phase_names[PHASES] = {"begin", "read", "state", "streams", "marks"};

/* ---- begin ---- */

static int refuse(struct call *call, int status, const char *why)
{
    return embd__error_set(&call->error, status, "move: %s", why);
}

/* A later one of the same residues. */
static int check_map(struct call *call, const struct placement *next)
{
    const struct placement *own = call->shard->config.placement;
    uint32_t n = call->shard->config.n_shards;
    if (own == NULL || (n == 1 && next->n_shards == 1))
        return refuse(call, EMBD_UNSUPPORTED, "the cluster has one shard");
    if (shard_joins(call->shard))
        return move_check_joining(call, next);
    if (next->n_shards != n && move_check_members(call, next) != EMBD_OK)
        return call->error.status;
    uint64_t version = moving_next_version(call->shard);
    if (!moving_may_be_next(call->shard, next->version) || next->base != own->base)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "move: the placement is version %llu with base %u, and shard %u has "
                               "version %llu with base %u; the next version is %llu, and has the "
                               "same base",
                               (unsigned long long)next->version, next->base,
                               call->shard->config.index, (unsigned long long)own->version,
                               own->base, (unsigned long long)version);
    if (embd__placement_runs(next) > MOVE_RUNS_MAX)
        return embd__error_set(&call->error, EMBD_TOO_LARGE,
                               "move: the placement has %u runs, the limit is %u",
                               embd__placement_runs(next), MOVE_RUNS_MAX);
    return EMBD_OK;
}

/* A shard in doubt asks shard 0 which map holds. */
static int check_servers(struct call *call)
{
    const struct shard_config *config = &call->shard->config;
    bool is_alone = config->is_alone && !shard_joins(call->shard);
    if (is_alone || (config->identity != NULL && identity_can_ask(config->identity)))
        return EMBD_OK;
    return refuse(call, EMBD_UNSUPPORTED,
                  config->identity == NULL
                      ? "servers of a cluster need a data_dir for it, and this one has none"
                      : "servers cannot ask each other by TLS; set peer_ca");
}

static int check_free(struct call *call, const struct placement *next)
{
    const struct shard *shard = call->shard;
    if (moving_refuse_cut(shard, "move", &call->error) != EMBD_OK)
        return call->error.status;
    if (shard->engine.prepared.id != 0 || shard->engine.tables.n_joining > 0)
        return refuse(call, EMBD_BUSY, "tables are being replaced, or become durable; try again");
    if (shard->cut != NULL || shard->cut_read != NULL || disk_phase_has_cut(shard))
        return refuse(call, EMBD_BUSY, "a snapshot or dump is being written; try again");
    return moving_check_followers(shard, next, &call->error);
}

/* Vshards that leave. */
static uint32_t count_lost(const struct placement *own, const struct placement *next,
                           uint32_t shard)
{
    uint32_t n = 0;
    for (uint32_t v = 0; v < PLACEMENT_VSHARDS; v++)
        n += own->of_vshard[v] == shard && next->of_vshard[v] != shard;
    return n;
}

/* What leaves, if rows lie evenly among the shard's vshards. */
static void answer_begun(struct call *call, uint32_t n_lost)
{
    struct shard *shard = call->shard;
    const struct tables *tables = &shard->engine.tables;
    uint32_t n_own = embd__placement_count(shard->config.placement, shard->config.index);
    uint64_t rows = 0, bytes = 0;
    for (uint32_t i = 0; i < tables->n && n_lost > 0; i++) {
        struct store_stats stats;
        tables->ops->stats(tables->by_name[i]->store, &stats);
        uint64_t n = stats.rows / n_own * n_lost + stats.rows % n_own * n_lost / n_own;
        rows += n;
        bytes += n * embd__row_bytes(&tables->by_name[i]->schema.s);
    }
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 2);
    embd__msg_field_uint(call->answer, "rows", rows);
    embd__msg_field_uint(call->answer, "bytes", bytes);
}

static int begin(struct call *call, uint64_t id, const struct placement *next,
                 const struct added *added)
{
    struct shard *shard = call->shard;
    struct moving *moving = &shard->moving;
    if (check_map(call, next) != EMBD_OK || moving_check_tables(shard, &call->error) != EMBD_OK ||
        check_servers(call) != EMBD_OK || check_free(call, next) != EMBD_OK ||
        move_note_members(call, next, added) != EMBD_OK ||
        moving_begin_foreign(shard, &call->error) != EMBD_OK)
        return call->error.status;
    subscribers_end_each(shard);
    if (next->n_shards > shard->config.n_shards)
        replicated_note_servers(shard, next->n_shards);
    moving->mover = call->request->session;
    moving->id = id;
    moving->next = *next;
    uint32_t n_lost = count_lost(shard->config.placement, next, shard->config.index);
    moving->loses = n_lost > 0;
    moving->n_opened = shard->engine.tables.n_opened;
    moving->n_tables = shard->engine.tables.n;
    moving->table[0] = '\0';
    moving->is_read = moving->reads_all = false;
    moving->round = 0;
    answer_begun(call, n_lost);
    return EMBD_OK;
}

static int check_mover(struct call *call, uint64_t id)
{
    const struct moving *moving = &call->shard->moving;
    if (moving->mover == call->request->session && moving->id == id)
        return EMBD_OK;
    return refuse(call, EMBD_INVALID, "this connection has begun none of that id");
}

/* ---- read ---- */

static int read_rows(struct call *call, uint64_t id, bool is_final)
{
    if (check_mover(call, id) != EMBD_OK)
        return call->error.status;
    if (is_final && !call->request->session->holds)
        return refuse(call, EMBD_INVALID, "the last rows are read under a hold; hold comes first");
    return moving_read(call, is_final);
}

/* ---- state ---- */

static int tell_state(struct call *call)
{
    const struct moving *moving = &call->shard->moving;
    const struct placement *own = call->shard->config.placement;
    uint32_t n_unready =
        moving->mover != NULL ? moving_count_unready(call->shard, &moving->next) : 0;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 3u + (n_unready > 0));
    embd__msg_field_uint(call->answer, "version", own != NULL ? own->version : 1);
    embd__msg_field_bool(call->answer, "moving", moving_is_on(moving));
    embd__msg_field_uint(call->answer, "removed", moving->n_swept);
    if (n_unready > 0)
        embd__msg_field_uint(call->answer, "unready", n_unready);
    return EMBD_OK;
}

/* ---- what a shard that becomes a member has of the others ---- */

/* Positions of streams, under the hold. */
static int tell_streams(struct call *call, uint64_t id)
{
    const struct engine *engine = &call->shard->engine;
    const struct pushers *of[2] = {&engine->pushers, &engine->journaled_pushers};
    uint32_t n[2];
    if (check_mover(call, id) != EMBD_OK)
        return call->error.status;
    if (!call->request->session->holds)
        return refuse(call, EMBD_INVALID, "streams are read under a hold; hold comes first");
    struct push_stream *list = malloc((of[0]->n + of[1]->n + 1) * sizeof *list);
    if (list == NULL)
        return refuse(call, EMBD_NO_MEMORY, "no memory for the list of streams");
    call->work->memory = list;
    n[1] = pushers_list(of[1], list, NULL);
    n[0] = pushers_list(of[0], list + n[1], NULL);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 2);
    embd__msg_field_uint(call->answer, "journaled", n[1]);
    embd__msg_field_uint(call->answer, "other", n[0]);
    embd__msg_bin(call->answer, list, n[1] * sizeof *list);
    embd__msg_bin(call->answer, list + n[1], n[0] * sizeof *list);
    return EMBD_OK;
}

/* How far the clients had come when it was no member: it need not wait for these pushes, also when
 * it has started again, or a follower has its place. */
static int take_marks(struct call *call, uint64_t id, uint32_t n)
{
    struct op_streams *streams = &work_op(call->work, OP_STREAMS)->as.streams;
    *streams =
        (struct op_streams){.n_clients = n, .is_journaled = call->shard->commit.journal != NULL};
    streams->clients = embd__read_bin(&call->reader, "clients", n * sizeof *streams->clients);
    streams->places = embd__read_bin(&call->reader, "pushed", n * sizeof *streams->places);
    if (embd__reader_end(&call->reader) != EMBD_OK || check_mover(call, id) != EMBD_OK)
        return call->error.status;
    if (!shard_joins(call->shard))
        return refuse(call, EMBD_INVALID, "marks are for a shard that becomes a member");
    for (uint32_t i = 0; i < n; i++)
        if (streams->clients[i] == 0)
            return refuse(call, EMBD_INVALID, "a client of the marks has the number 0");
    return submit(call, submit_result_empty);
}

/* Servers of earlier versions do not know `retires`, and refuse it: they would keep their map. */
static void read_begin(struct call *call, struct fields *f, struct placement *next,
                       struct added *added)
{
    const msgpack_object *items = NULL;
    uint32_t own = call->shard->config.n_shards;
    uint32_t n = (uint32_t)embd__field_uint(f, "shards", 1, LIMIT_SHARDS, own);
    if (embd__field_bool(f, "retires", false) != (n < own))
        embd__error_set(&call->error, EMBD_INVALID,
                        "move: 'shards' is %u, and the cluster has %u: 'retires' goes with fewer, "
                        "and with these alone",
                        n, own);
    embd__placement_read(f, n, next);
    added->n = embd__field_list(f, "members", LIMIT_SHARDS, &items);
    added->list = calloc(added->n + 1u, sizeof *added->list);
    if (added->list == NULL)
        refuse(call, EMBD_NO_MEMORY, "no memory for the list of members");
    for (uint32_t i = 0; i < added->n && call->error.status == EMBD_OK; i++)
        embd__shard_entry_read(&call->reader, &items[i], &added->list[i]);
}

static int begin_read(struct call *call, struct fields *f, uint64_t id)
{
    struct placement next;
    struct added added = {.n = 0};
    read_begin(call, f, &next, &added);
    if (call_end(call, f) == EMBD_OK)
        begin(call, id, &next, &added);
    free(added.list);
    return call->error.status;
}

int handle_move(struct call *call)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "move");
    int phase = embd__field_enum(&f, "phase", phase_names, PHASES, -1);
    uint64_t id = 0;
    bool is_final = false;
    if (phase != PHASE_STATE)
        id = embd__field_uint(&f, "id", 1, UINT64_MAX, FIELD_REQUIRED);
    if (phase != PHASE_STATE && shard_has_left(call->shard))
        return shard_refuse_left(call);
    if (phase == PHASE_BEGIN)
        return begin_read(call, &f, id);
    if (phase == PHASE_MARKS) {
        uint32_t n = (uint32_t)embd__field_uint(&f, "clients", 0, SOURCES_MAX, FIELD_REQUIRED);
        return embd__fields_end(&f) == EMBD_OK ? take_marks(call, id, n) : call->error.status;
    }
    if (phase == PHASE_READ)
        is_final = embd__field_bool(&f, "final", false);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (phase == PHASE_STREAMS)
        return tell_streams(call, id);
    return phase == PHASE_READ ? read_rows(call, id, is_final) : tell_state(call);
}

/* ---- rows that come ---- */

static int read_fields(struct call *call, struct load_fields *out, uint64_t *id_out)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "move_load");
    *id_out = embd__field_uint(&f, "id", 1, UINT64_MAX, FIELD_REQUIRED);
    embd__field_str(&f, "table", out->table, sizeof out->table, NULL);
    out->n_rows = (uint32_t)embd__field_uint(&f, "rows", 0, LIMIT_ROWS, FIELD_REQUIRED);
    out->n_candidates = (uint32_t)embd__field_uint(&f, "candidates", 0, LIMIT_ROWS, FIELD_REQUIRED);
    out->is_gone = embd__field_bool(&f, "gone", false);
    return embd__fields_end(&f);
}

int handle_move_load(struct call *call)
{
    struct op_load *load = &work_op(call->work, OP_LOAD)->as.load;
    struct routed_place place = shard_place(call->shard);
    struct load_fields *fields = &load->fields;
    uint64_t id;
    place.placement = &call->shard->moving.next;
    *fields = (struct load_fields){.n_rows = 0};
    call->work->op.is_unnamed = call->request->goes_beside;
    if (read_fields(call, fields, &id) != EMBD_OK || check_mover(call, id) != EMBD_OK)
        return call->error.status;
    load->table = tables_find(&call->shard->engine.tables, fields->table, &call->error);
    if (load_read_block(call, load, &place) != EMBD_OK)
        return call->error.status;
    return submit(call, submit_result_empty);
}
