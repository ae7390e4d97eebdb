/* handle_snapshot.c - the phases of a snapshot: begin makes a staged directory, every shard freezes
 * its tables under a hold and begins to write its parts into it (cut), and says when they are on
 * disk (write), the first one takes the trainer's blobs, commit writes the manifest and gives the
 * directory its name, abort removes it; keep, when all processes have committed, removes older
 * ones; fetch reads a complete one's files. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "server/snapshot/coordinate.h"
#include "server/snapshot/cut.h"
#include "server/snapshot/cut_read.h"
#include "server/snapshot/disk_phase.h"
#include "server/snapshot/snapshot.h"
#include "server/snapshot/snapshot_fetch.h"
#include "server/snapshot/snapshot_rights.h"
#include "server/snapshot/snapshot_scope.h"
#include "server/snapshot/snapshot_watch.h"
#include "server/service/authorize.h"
#include "server/service/state.h"
#include "server/snapshot/written.h"

enum phase {
    PHASE_BEGIN,
    PHASE_CUT,
    PHASE_WRITE,
    PHASE_BLOB,
    PHASE_COMMIT,
    PHASE_ABORT,
    PHASE_KEEP,
    PHASE_FETCH,
    PHASE_START, /* from here on: of the coordinator */
    PHASE_PROGRESS,
    PHASE_GO,
    PHASE_CANCEL,
    PHASE_RATE,
    PHASES
};
static const char *const phase_names[PHASES] = {"begin", "cut",    "write", "blob",  "commit",
                                                "abort", "keep",   "fetch", "start", "progress",
                                                "go",    "cancel", "rate"};

static void answer_nothing(struct call *call)
{
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
}

/* ---- cut and write ---- */

static void read_cut(struct fields *f, struct snapshot_cut *out)
{
    out->is_read = embd__field_bool(f, "read", false);
    embd__field_str(f, "table", out->table, sizeof out->table, "");
    out->id = embd__field_uint(f, "id", 0, UINT64_MAX, 0);
    out->since = embd__field_uint(f, "since", 0, UINT64_MAX, 0);
    out->base[0] = '\0';
    if (out->since != 0)
        embd__field_str(f, "base", out->base, sizeof out->base, NULL);
    embd__scope_read(f, &out->scope);
}

static int cut_shard(struct call *call, const char *name, const struct snapshot_cut *what)
{
    int status =
        what->is_read ? cut_read_begin(call, what->id, what->table) : cut_begin(call, name, what);
    if (status == EMBD_OK)
        answer_nothing(call);
    return call->error.status;
}

static int write_shard(struct call *call, const char *name)
{
    if (cut_is_of(call->shard, name))
        return cut_wait(call);
    return embd__error_set(
        &call->error, EMBD_INVALID,
        "snapshot write: shard %u has no cut of '%s'; cut comes first, under a hold",
        call->shard->config.index, name);
}

/* ---- blob ---- */

struct blob_fields {
    char name[128];
    struct snapshot_piece piece;
};

static void read_blob(struct call *call, struct fields *f, struct blob_fields *out)
{
    struct snapshot_piece *piece = &out->piece;
    embd__field_str(f, "blob", out->name, sizeof out->name, NULL);
    piece->blob = out->name;
    piece->offset = embd__field_uint(f, "offset", 0, UINT64_MAX, 0);
    piece->is_last = embd__field_has(f, "xxh3");
    piece->xxh3 = embd__field_uint(f, "xxh3", 0, UINT64_MAX, 0);
    piece->data = embd__read_bin_any(&call->reader, "blob", 1, LIMIT_FRAME_BYTES, &piece->bytes);
}

static void write_blob(struct disk_phase *phase)
{
    snapshot_blob_write(phase->in.dir, phase->in.file, &phase->in.piece, &phase->error);
}

static void on_blob(struct disk_phase *phase, struct msg *m)
{
    struct shard *shard = phase->shard;
    if (phase->error.status == EMBD_OK)
        snapshot_blob_end(&shard->snapshot, &phase->in.piece, &phase->error);
    coordinator_hear_files(shard->config.coordinator, phase->name, phase->in.piece.bytes);
    if (m != NULL)
        embd__msg_map(m, 0);
}

static int take_blob(struct call *call, const char *name, const struct snapshot_piece *piece)
{
    struct shard *shard = call->shard;
    const struct disk_phase_order order = {phase_names[PHASE_BLOB], name, write_blob, on_blob};
    struct disk_phase *phase = disk_phase_new(shard, call, &order, &call->error);
    if (phase == NULL)
        return call->error.status;
    phase->in.piece = *piece;
    memcpy(phase->in.blob, piece->blob, strlen(piece->blob));
    phase->in.piece.blob = phase->in.blob;
    phase->in.dir = snapshot_open(shard->data_dir, name, &phase->error);
    if (phase->in.dir >= 0)
        snapshot_blob_begin(&shard->snapshot, &phase->in.piece, phase->in.file, &phase->error);
    return disk_phase_start(phase, &call->error);
}

/* ---- all phases ---- */

static int check_place(struct call *call, enum phase phase, bool is_read)
{
    const struct shard_config *config = &call->shard->config;
    if (phase == PHASE_CUT && is_read)
        return EMBD_OK;
    if (call->shard->data_dir < 0)
        return embd__error_set(
            &call->error, EMBD_UNSUPPORTED,
            "snapshot: this server has no data directory; start it with --data-dir");
    bool is_any = phase == PHASE_CUT || phase == PHASE_WRITE || phase == PHASE_ABORT;
    if (!is_any && !config->is_first)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot %s: shard %u is not the first of its process",
                               phase_names[phase], config->index);
    return EMBD_OK;
}

/* ---- begin ---- */

static void make_staged(struct disk_phase *phase)
{
    struct embd__error *e = &phase->error;
    int data_dir = phase->in.data_dir;
    char base_name[SNAPSHOT_NAME_MAX + 1];
    strcpy(base_name, phase->in.base.name);
    if ((!phase->in.is_bound ||
         snapshot_quota_begin(data_dir, &phase->in.bound, &phase->in.quota, e) == EMBD_OK) &&
        (base_name[0] == '\0' ||
         snapshot_base(data_dir, base_name, &phase->in.scope, &phase->in.base,
                       &phase->in.base_tables, e) == EMBD_OK) &&
        snapshot_next_sequence(data_dir, &phase->in.use, &phase->in.sequence, e) == EMBD_OK)
        snapshot_begin(data_dir, phase->name, e);
}

/* If the connection is closed by now, the next tick removes NAME.tmp. */
static void on_staged(struct disk_phase *phase, struct msg *m)
{
    struct shard *shard = phase->shard;
    const struct manifest_base *base = &phase->in.base;
    if (phase->error.status != EMBD_OK)
        return;
    snapshot_forget(&shard->snapshot);
    if (shard->config.written != NULL)
        written_forget(shard->config.written);
    shard->snapshot.base = *base;
    shard->snapshot.base_tables = phase->in.base_tables;
    phase->in.base_tables.names = NULL;
    shard->snapshot.scope = phase->in.scope;
    shard->snapshot.quota = phase->in.quota;
    shard->snapshot.owner = phase->session;
    strcpy(shard->snapshot.name, phase->name);
    if (m == NULL)
        return;
    embd__msg_map(m, 1 + (base->id != 0));
    embd__msg_field_uint(m, "sequence", phase->in.sequence);
    if (base->id != 0)
        embd__msg_field_uint(m, "base_id", base->id);
}

/* Another coordinator's snapshot goes to its end first: its parts would get lost. Coordinators come
 * to shard 0 before all others, so that who waits there has begun nowhere. */
static int check_free(struct call *call, const char *name)
{
    const struct snapshot_parts *other = &call->shard->snapshot;
    if (other->name[0] == '\0' || other->owner == NULL || other->owner == call->request->session)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_BUSY,
                           "snapshot begin '%s': another snapshot%s is being made by another "
                           "coordinator; try again",
                           name, snapshot_shown_name(call, other->name).text);
}

/* A new staged directory; an increment of the snapshot `base_name` unless that is "". */
static int begin_shard(struct call *call, const char *name, const char *base_name,
                       const struct table_scope *scope)
{
    const struct disk_phase_order order = {phase_names[PHASE_BEGIN], name, make_staged, on_staged};
    if (snapshot_check_scope(call->shard, scope, &call->error) != EMBD_OK ||
        check_free(call, name) != EMBD_OK)
        return call->error.status;
    struct disk_phase *phase = disk_phase_new(call->shard, call, &order, &call->error);
    if (phase == NULL)
        return call->error.status;
    strcpy(phase->in.base.name, base_name);
    phase->in.scope = *scope;
    const struct grant *bound = authorize_bound(call);
    phase->in.is_bound = bound != NULL;
    if (bound != NULL)
        phase->in.bound = *bound;
    return disk_phase_start(phase, &call->error);
}

/* ---- abort ---- */

static void end_and_remove(struct disk_phase *phase)
{
    if (phase->in.cut != NULL)
        cut_wait_written(phase->in.cut);
    if (phase->in.removes)
        snapshot_remove(phase->in.data_dir, phase->name, &phase->error);
}

/* Another snapshot may have begun: then this one was of remains. */
static void on_aborted(struct disk_phase *phase, struct msg *m)
{
    struct snapshot_parts *begun = &phase->shard->snapshot;
    cut_discard(phase->in.cut);
    if (strcmp(begun->name, phase->name) == 0)
        snapshot_forget(begun);
    if (m != NULL)
        embd__msg_map(m, 0);
}

static int abort_shard(struct call *call, const char *name)
{
    struct shard *shard = call->shard;
    const struct disk_phase_order order = {phase_names[PHASE_ABORT], name, end_and_remove,
                                           on_aborted};
    if (cut_is_ending(shard, name))
        return embd__error_set(&call->error, EMBD_BUSY, "snapshot abort: '%s' is being ended",
                               name);
    struct disk_phase *phase = disk_phase_new(shard, call, &order, &call->error);
    if (phase == NULL)
        return call->error.status;
    phase->in.removes = shard->config.is_first;
    if (cut_is_of(shard, name))
        phase->in.cut = cut_detach(shard, EMBD_CLOSED, "it was aborted");
    return disk_phase_start(phase, &call->error);
}

/* ---- keep ---- */

/* The snapshot is complete, or does not exist: then nothing is removed. */
static void remove_older(struct disk_phase *phase)
{
    struct stat st;
    if (fstatat(phase->in.data_dir, phase->name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode))
        embd__error_set(&phase->error, EMBD_INVALID, "snapshot keep: there is no snapshot '%s'",
                        phase->name);
    else
        snapshot_keep(phase->in.data_dir, phase->name, phase->in.job, phase->in.n_kept,
                      &phase->in.use, &phase->in.n_removed, &phase->error);
}

static void on_kept(struct disk_phase *phase, struct msg *m)
{
    if (m == NULL)
        return;
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "removed", phase->in.n_removed);
}

static int keep(struct call *call, const char *name, const char *job, uint32_t n)
{
    const struct disk_phase_order order = {phase_names[PHASE_KEEP], name, remove_older, on_kept};
    struct disk_phase *phase = disk_phase_new(call->shard, call, &order, &call->error);
    if (phase == NULL)
        return call->error.status;
    phase->in.n_kept = n;
    strcpy(phase->in.job, job);
    return disk_phase_start(phase, &call->error);
}

/* ---- all of them ---- */

static int commit(struct call *call, const char *name, const struct snapshot_told *told)
{
    int status = snapshot_commit(call, name, told);
    if (status == EMBD_OK)
        answer_nothing(call);
    return status;
}

/* The fields of a request, by phase. */
struct phase_fields {
    char name[128], base[SNAPSHOT_NAME_MAX + 1], job[EMBD_NAME_MAX + 1];
    struct snapshot_told told;
    struct blob_fields blob;
    struct snapshot_cut cut;
    struct table_scope scope; /* begin */
    struct coordinate_request asked;
    uint32_t n_kept;
    char file[FETCH_FILE_MAX + 1]; /* fetch */
    uint64_t offset;
};

static enum phase read_phase(struct call *call, struct fields *f, struct phase_fields *out)
{
    out->base[0] = out->job[0] = '\0';
    out->cut.is_read = false;
    embd__field_str(f, "name", out->name, sizeof out->name, NULL);
    enum phase phase = (enum phase)embd__field_enum(f, "phase", phase_names, PHASES, -1);
    if (phase == PHASE_COMMIT)
        snapshot_read_commit(f, &out->told);
    if (phase == PHASE_BLOB)
        read_blob(call, f, &out->blob);
    if (phase == PHASE_CUT)
        read_cut(f, &out->cut);
    if (phase >= PHASE_START)
        coordinate_read(call, f, (enum coordinate)(phase - PHASE_START), &out->asked);
    if (phase == PHASE_BEGIN && embd__field_has(f, "base"))
        embd__field_str(f, "base", out->base, sizeof out->base, NULL);
    if (phase == PHASE_BEGIN)
        embd__scope_read(f, &out->scope);
    if (phase == PHASE_KEEP) {
        out->n_kept = (uint32_t)embd__field_uint(f, "keep", 1, UINT32_MAX, FIELD_REQUIRED);
        embd__field_str(f, "job", out->job, sizeof out->job, "");
    }
    if (phase == PHASE_FETCH) {
        embd__field_str(f, "file", out->file, sizeof out->file, NULL);
        out->offset = embd__field_uint(f, "offset", 0, UINT64_MAX, 0);
    }
    return phase;
}

static int authorize(struct call *call, enum phase phase, const struct phase_fields *what)
{
    if (phase == PHASE_BLOB)
        return snapshot_check_blob(call, what->name);
    if (authorize_coordinator(call, "this phase of snapshot") != EMBD_OK)
        return call->error.status;
    if (phase == PHASE_BEGIN)
        return snapshot_check_rights(call, what->name, what->base, &what->scope);
    if (phase == PHASE_CUT)
        return what->cut.is_read
                   ? snapshot_check_read(call)
                   : snapshot_check_rights(call, what->name, what->cut.base, &what->cut.scope);
    if (phase == PHASE_FETCH)
        return snapshot_check_fetch(call);
    return phase == PHASE_KEEP ? snapshot_check_keep(call, what->name, what->job)
                               : snapshot_check_begun(call, what->name);
}

static int do_phase(struct call *call, enum phase phase, const struct phase_fields *what)
{
    const char *name = what->name;
    switch (phase) {
    case PHASE_BEGIN:
        return begin_shard(call, name, what->base, &what->scope);
    case PHASE_CUT:
        return cut_shard(call, name, &what->cut);
    case PHASE_WRITE:
        return write_shard(call, name);
    case PHASE_BLOB:
        return take_blob(call, name, &what->blob.piece);
    case PHASE_COMMIT:
        return commit(call, name, &what->told);
    case PHASE_KEEP:
        return keep(call, name, what->job, what->n_kept);
    case PHASE_FETCH:
        return snapshot_fetch(call, name, what->file, what->offset);
    default:
        return abort_shard(call, name);
    }
}

/* A malformed request, or one for another shard, does not count as a failed snapshot. */
int handle_snapshot(struct call *call)
{
    struct fields f;
    struct phase_fields what;
    embd__read_fields(&f, &call->reader, "snapshot");
    enum phase phase = read_phase(call, &f, &what);
    if (phase >= PHASE_START && phase < PHASES)
        return coordinate(call, &f, (enum coordinate)(phase - PHASE_START), what.name, &what.asked);
    if (call_end(call, &f) != EMBD_OK || snapshot_check_name(what.name, &call->error) != EMBD_OK ||
        authorize(call, phase, &what) != EMBD_OK ||
        check_place(call, phase, what.cut.is_read) != EMBD_OK)
        return call->error.status;
    int status = do_phase(call, phase, &what);
    bool is_again = (phase == PHASE_ABORT || phase == PHASE_BEGIN) && status == EMBD_BUSY;
    if (status != EMBD_OK && status != CALL_LATER && !is_again && phase != PHASE_FETCH)
        snapshot_watch_failed(call->shard, phase_names[phase], what.name, &call->error);
    return status;
}
