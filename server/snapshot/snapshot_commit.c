/* snapshot_commit.c - the end of a snapshot: the request brings the parts and pushers of all shards
 * of the process, the manifest is written, and the directory gets its name.
 *
 * The request is not believed: it must have exactly what the shards of this process have written
 * (written.h), and the files must have those sizes. A request header has room for some thirty
 * parts, so commit may come in several requests: all but the last have `more`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/snapshot/cut.h"
#include "server/snapshot/disk_phase.h"
#include "server/files/part.h"
#include "server/log/log.h"
#include "server/snapshot/snapshot.h"
#include "server/snapshot/snapshot_watch.h"
#include "server/service/state.h"
#include "server/files/whole.h"
#include "server/snapshot/written.h"

void snapshot_forget(struct snapshot_parts *parts)
{
    for (uint32_t i = 0; i < parts->n_tables; i++)
        free(parts->tables[i].parts);
    free(parts->tables);
    free(parts->streams);
    free(parts->left_out);
    free(parts->base_tables.names);
    XXH3_freeState(parts->blob_hash);
    *parts = (struct snapshot_parts){0};
}

/* ---- the connection that began it is closed ---- */

void snapshot_leave(struct shard *shard, const struct shard_session *session)
{
    struct snapshot_parts *parts = &shard->snapshot;
    if (parts->name[0] == '\0' || parts->owner != session)
        return;
    parts->owner = NULL;
    bool is_told = parts->n_tables > 0 || parts->n_streams > 0;
    log_event(LOG_WARN, "snapshot_orphaned", "shard=%u snapshot=%s why=\"%s\"", shard->config.index,
              parts->name,
              is_told ? "the connection that began it ended; other servers may have committed it: "
                        "embctl snapshot --cancel removes it"
                      : "the connection that began it ended; it is removed");
    if (is_told)
        snapshot_forget(parts);
    else
        snapshot_remove_orphan(shard);
}

static void remove_staged(struct disk_phase *phase)
{
    snapshot_remove(phase->in.data_dir, phase->name, &phase->error);
}

/* Another shard of the process may still put a file in, for a moment: then it is tried again. */
static void on_removed(struct disk_phase *phase, struct msg *m)
{
    (void)m;
    if (phase->error.status == EMBD_OK)
        snapshot_forget(&phase->shard->snapshot);
}

void snapshot_remove_orphan(struct shard *shard)
{
    const struct snapshot_parts *parts = &shard->snapshot;
    const struct disk_phase_order order = {"removal", parts->name, remove_staged, on_removed};
    struct embd__error ignored = {.status = EMBD_OK};
    if (parts->name[0] == '\0' || parts->owner != NULL || cut_is_writing(shard) ||
        shard->disk_phase != NULL)
        return;
    struct disk_phase *phase = disk_phase_new(shard, NULL, &order, &ignored);
    if (phase != NULL)
        disk_phase_start(phase, &ignored);
}

/* ---- parts and pushers ---- */

/* The table's place in the manifest to be; added when it is new. */
static struct manifest_table *place(struct snapshot_parts *parts, const struct table *table)
{
    for (uint32_t i = 0; i < parts->n_tables; i++)
        if (strcmp(parts->names[i], table->schema.s.name) == 0)
            return &parts->tables[i];
    if (parts->tables == NULL)
        parts->tables = calloc(LIMIT_TABLES, sizeof *parts->tables);
    if (parts->tables == NULL)
        return NULL;
    struct manifest_table *added = &parts->tables[parts->n_tables];
    snprintf(parts->names[parts->n_tables++], sizeof parts->names[0], "%s", table->schema.s.name);
    return added;
}

static int add_part(struct call *call, const struct table *table, const struct manifest_part *part,
                    uint64_t step)
{
    struct manifest_table *to = place(&call->shard->snapshot, table);
    struct manifest_part *grown =
        to == NULL ? NULL : realloc(to->parts, (to->n_parts + 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for the list of parts");
    to->parts = grown;
    to->parts[to->n_parts] = *part;
    to->parts[to->n_parts++].step = step;
    to->step = step > to->step ? step : to->step;
    return EMBD_OK;
}

/* Its file goes before the snapshot gets its name. */
static int leave_out(struct call *call, const struct written_part *told)
{
    struct snapshot_parts *parts = &call->shard->snapshot;
    struct written_part *grown = realloc(parts->left_out, (parts->n_left_out + 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for the list of parts");
    parts->left_out = grown;
    grown[parts->n_left_out++] = *told;
    return EMBD_OK;
}

/* A table that the base does not have cannot have changed since: snapshots leave out tables that
 * are on some shards only. */
static int check_changes(struct call *call, const struct written_part *told, bool is_left_out)
{
    const struct snapshot_parts *parts = &call->shard->snapshot;
    if (!told->part.has_changes || is_left_out)
        return EMBD_OK;
    if (parts->base.id == 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot part '%s' has changes, and the snapshot has no base",
                               told->part.file);
    if (base_tables_has(&parts->base_tables, told->table))
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "snapshot base '%s' has no table '%s', which was on some shards only: "
                           "make a snapshot of all rows",
                           parts->base.name, told->table);
}

/* A part is in the manifest or left out, and once. */
static int check_once(struct call *call, const struct written_part *told)
{
    if (!written_tells_part(&call->shard->snapshot, told->table, told->part.shard))
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID, "snapshot part '%s' is named twice",
                           told->part.file);
}

static int check_file(struct call *call, int dir, const char *table,
                      const struct manifest_part *part)
{
    char expected[sizeof part->file];
    struct stat st;
    part_name(expected, table, part->shard);
    if (strcmp(part->file, expected) != 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot part file: '%s', expected '%s'", part->file, expected);
    if (fstatat(dir, part->file, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return embd__error_set(&call->error, EMBD_IO, "snapshot '%s': %s", part->file,
                               strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != part->bytes)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot part '%s' bytes: %llu, the file has %lld", part->file,
                               (unsigned long long)part->bytes, (long long)st.st_size);
    return EMBD_OK;
}

/* Where it is not known what was written, it is believed. */
static int check_written(struct call *call, const char *name, const struct written_part *told)
{
    struct written *written = call->shard->config.written;
    return written == NULL ? EMBD_OK : written_check_part(written, name, told, &call->error);
}

static int read_part(struct call *call, const char *name, int dir, const msgpack_object *item)
{
    struct fields f;
    struct written_part told = {.step = 0};
    struct manifest_part *part = &told.part;
    embd__list_map(&call->reader, item, &f, "snapshot part");
    embd__field_str(&f, "table", told.table, sizeof told.table, NULL);
    embd__field_str(&f, "file", part->file, sizeof part->file, NULL);
    part->shard = (uint32_t)embd__field_uint(&f, "shard", 0, call->shard->config.n_shards - 1,
                                             FIELD_REQUIRED);
    part->rows = embd__field_uint(&f, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
    part->candidates = embd__field_uint(&f, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
    part->bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    part->xxh3 = embd__field_uint(&f, "xxh3", 0, UINT64_MAX, FIELD_REQUIRED);
    part->has_changes = embd__field_bool(&f, "changes", false);
    part->table_id = (uint32_t)embd__field_uint(&f, "table_id", 0, UINT32_MAX, 0);
    told.step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    bool is_left_out = embd__field_bool(&f, "left_out", false);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    if (!embd__scope_covers(&call->shard->snapshot.scope, told.table))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot part '%s' is of table '%s', which begin did not name",
                               part->file, told.table);
    const struct table *table =
        is_left_out ? NULL : tables_find(&call->shard->engine.tables, told.table, &call->error);
    if (call->error.status != EMBD_OK || check_changes(call, &told, is_left_out) != EMBD_OK ||
        check_file(call, dir, told.table, part) != EMBD_OK ||
        check_written(call, name, &told) != EMBD_OK || check_once(call, &told) != EMBD_OK)
        return call->error.status;
    return is_left_out ? leave_out(call, &told) : add_part(call, table, part, told.step);
}

static int read_streams(struct call *call, const char *name, int dir, const msgpack_object *item)
{
    struct fields f;
    struct snapshot_parts *parts = &call->shard->snapshot;
    struct manifest_streams streams;
    struct stat st;
    char file[STREAMSFILE_NAME];
    embd__list_map(&call->reader, item, &f, "snapshot writers");
    streams.shard = (uint32_t)embd__field_uint(&f, "shard", 0, call->shard->config.n_shards - 1,
                                               FIELD_REQUIRED);
    streams.bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    streams.xxh3 = embd__field_uint(&f, "xxh3", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < parts->n_streams; i++)
        if (parts->streams[i].shard == streams.shard)
            return embd__error_set(&call->error, EMBD_INVALID,
                                   "snapshot writers of shard %u are named twice", streams.shard);
    embd__streamsfile_name(file, streams.shard);
    if (fstatat(dir, file, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return embd__error_set(&call->error, EMBD_IO, "snapshot '%s': %s", file, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != streams.bytes)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot writers '%s' bytes: %llu, the file has %lld", file,
                               (unsigned long long)streams.bytes, (long long)st.st_size);
    struct written *written = call->shard->config.written;
    if (written != NULL && written_check_streams(written, name, &streams, &call->error) != EMBD_OK)
        return call->error.status;
    struct manifest_streams *grown =
        realloc(parts->streams, (parts->n_streams + 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for the list of pushers");
    parts->streams = grown;
    grown[parts->n_streams++] = streams;
    return EMBD_OK;
}

/* ---- the manifest ---- */

/* The schemas of the tables at the cut, or as they are now where the cut is not this shard's; while
 * there is a cut none is dropped. */
static int fill_schemas(struct call *call, struct snapshot_parts *parts)
{
    for (uint32_t i = 0; i < parts->n_tables; i++) {
        const struct table *table =
            tables_find(&call->shard->engine.tables, parts->names[i], &call->error);
        if (table == NULL)
            return call->error.status;
        parts->tables[i].schema = table->schema; /* lent for the moment of writing */
        const embd_schema *as_cut = cut_schema(call->shard, parts->name, table);
        if (as_cut != NULL)
            parts->tables[i].schema.s = *as_cut;
    }
    return EMBD_OK;
}

/* The base is the same as when the snapshot was begun. */
static int check_base(struct call *call)
{
    const struct manifest_base *base = &call->shard->snapshot.base;
    struct manifest_base found;
    if (base->id == 0)
        return EMBD_OK;
    const struct table_scope *scope = &call->shard->snapshot.scope;
    if (snapshot_base(call->shard->data_dir, base->name, scope, &found, NULL, &call->error) !=
        EMBD_OK)
        return call->error.status;
    if (found.id == base->id && found.xxh3 == base->xxh3 && call->shard->snapshot.id != 0)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "snapshot base '%s' was replaced since this snapshot began", base->name);
}

/* The coordinator's, or this process's own; greater than all there are, also where another one came
 * between. */
static int number(struct call *call, struct snapshot_parts *parts)
{
    uint64_t least;
    if (parts->sequence == 0)
        return snapshot_next_sequence(call->shard->data_dir, NULL, &parts->sequence, &call->error);
    if (snapshot_least_sequence(call->shard->data_dir, &least, &call->error) != EMBD_OK ||
        parts->sequence >= least)
        return call->error.status;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "snapshot commit sequence: %llu, below the minimum of %llu, which "
                           "follows from the existing snapshots",
                           (unsigned long long)parts->sequence, (unsigned long long)least);
}

/* The manifest's text, malloc'd; NULL: e->status. */
static char *make_manifest(struct call *call, const char *name, int dir)
{
    struct snapshot_parts *parts = &call->shard->snapshot;
    struct written *written = call->shard->config.written;
    if (number(call, parts) != EMBD_OK)
        return NULL;
    struct manifest manifest = {
        .kind = "snapshot",
        .embd_version = EMBD_VERSION,
        .n_shards = call->shard->config.n_shards,
        .placement = call->shard->config.placement,
        .id = parts->id,
        .sequence = parts->sequence,
        .base = parts->base,
        .scope = parts->scope,
        .tables = parts->tables,
        .n_tables = parts->n_tables,
        .blobs = parts->blobs,
        .n_blobs = parts->n_blobs,
        .streams = parts->streams,
        .n_streams = parts->n_streams,
    };
    if ((written != NULL && written_check_all(written, name, parts, &call->error) != EMBD_OK) ||
        check_base(call) != EMBD_OK || snapshot_check_blobs(parts, dir, &call->error) != EMBD_OK ||
        fill_schemas(call, parts) != EMBD_OK)
        return NULL;
    char *text = embd__manifest_write(&manifest);
    if (text == NULL)
        embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for the manifest");
    return text;
}

/* ---- the request ---- */

void snapshot_read_commit(struct fields *f, struct snapshot_told *out)
{
    *out = (struct snapshot_told){.n_parts = 0};
    out->n_parts = embd__field_list_required(f, "parts", LIMIT_ELEMENTS, &out->parts);
    if (embd__field_has(f, "writers"))
        out->n_streams = embd__field_list(f, "writers", LIMIT_ELEMENTS, &out->streams);
    out->id = embd__field_uint(f, "id", 0, UINT64_MAX, 0);
    out->sequence = embd__field_uint(f, "sequence", 0, UINT64_MAX, 0);
    out->more = embd__field_bool(f, "more", false);
}

/* The earlier requests are of no use any more. */
static void end_told(struct shard *shard, const char *name)
{
    snapshot_forget(&shard->snapshot);
    if (cut_is_of(shard, name))
        cut_end(shard, EMBD_CLOSED, "it was committed");
}

static int remove_left_out(const struct snapshot_parts *parts, int dir, struct embd__error *e)
{
    for (uint32_t i = 0; i < parts->n_left_out; i++)
        if (unlinkat(dir, parts->left_out[i].part.file, 0) != 0)
            return embd__error_set(e, EMBD_IO, "snapshot '%s': %s", parts->left_out[i].part.file,
                                   strerror(errno));
    return EMBD_OK;
}

static void publish(struct disk_phase *phase)
{
    const char *text = phase->in.text;
    struct embd__error *e = &phase->error;
    if (remove_left_out(&phase->shard->snapshot, phase->in.dir, e) == EMBD_OK &&
        whole_write(phase->in.dir, "manifest.json", text, strlen(text), e) == EMBD_OK)
        snapshot_publish(phase->in.data_dir, phase->name, e);
}

static void note_committed(struct shard *shard)
{
    const struct snapshot_parts *parts = &shard->snapshot;
    snapshot_watch_committed(shard);
    snapshot_use_add(&shard->snapshot_use, parts->scope.job, snapshot_quota_own(parts));
}

static void on_published(struct disk_phase *phase, struct msg *m)
{
    if (phase->error.status == EMBD_OK)
        note_committed(phase->shard);
    end_told(phase->shard, phase->name);
    if (m != NULL)
        embd__msg_map(m, 0);
}

/* Takes `dir`. */
static int commit_told(struct call *call, const char *name, int dir)
{
    const struct disk_phase_order order = {"commit", name, publish, on_published};
    char *text = make_manifest(call, name, dir);
    struct disk_phase *phase =
        text != NULL ? disk_phase_new(call->shard, call, &order, &call->error) : NULL;
    if (phase == NULL) {
        free(text);
        close(dir);
        end_told(call->shard, name);
        return call->error.status;
    }
    phase->in.text = text;
    phase->in.dir = dir;
    return disk_phase_start(phase, &call->error);
}

int snapshot_commit(struct call *call, const char *name, const struct snapshot_told *told)
{
    struct snapshot_parts *parts = &call->shard->snapshot;
    int dir = snapshot_open(call->shard->data_dir, name, &call->error);
    if (dir < 0)
        return call->error.status;
    parts->id = told->id;
    parts->sequence = told->sequence;
    for (uint32_t i = 0; i < told->n_parts && call->error.status == EMBD_OK; i++)
        read_part(call, name, dir, &told->parts[i]);
    for (uint32_t i = 0; i < told->n_streams && call->error.status == EMBD_OK; i++)
        read_streams(call, name, dir, &told->streams[i]);
    if (call->error.status == EMBD_OK)
        snapshot_quota_check(parts, 0, &call->error);
    if (call->error.status == EMBD_OK && !told->more)
        return commit_told(call, name, dir);
    close(dir);
    if (call->error.status != EMBD_OK)
        end_told(call->shard, name);
    return call->error.status;
}
