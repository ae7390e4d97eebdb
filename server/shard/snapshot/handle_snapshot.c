/* handle_snapshot.c - the phases of a snapshot: begin makes a staged directory, every shard freezes
 * its tables under a hold and begins to write its parts into it (cut), and says when they are on
 * disk (write), the first one takes the trainer's blobs, commit writes the manifest and gives the
 * directory its name, abort removes it; keep, when all processes have committed, removes older ones.
 *
 * What is asked of commit is not believed: the parts have to be files of this cluster's tables with
 * the sizes told. Their checksums are; a reader will compare them. A request header holds some
 * thirty parts, so commit may come in several requests: all but the last say `more`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cut.h"
#include "part.h"
#include "snapshot.h"
#include "state.h"
#include "whole.h"

enum phase {
    PHASE_BEGIN,
    PHASE_CUT,
    PHASE_WRITE,
    PHASE_BLOB,
    PHASE_COMMIT,
    PHASE_ABORT,
    PHASE_KEEP,
    PHASES
};
static const char *const phase_names[PHASES] = {"begin",  "cut",   "write", "blob",
                                                "commit", "abort", "keep"};

/* ---- cut and write ---- */

static void read_cut(struct fields *f, struct snapshot_cut *out)
{
    out->id = embd__field_uint(f, "id", 0, UINT64_MAX, 0);
    out->since = embd__field_uint(f, "since", 0, UINT64_MAX, 0);
    out->base[0] = '\0';
    if (out->since != 0)
        embd__field_str(f, "base", out->base, sizeof out->base, NULL);
}

static int cut_shard(struct call *call, const char *name, const struct snapshot_cut *what)
{
    if (cut_begin(call, name, what) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
    return EMBD_OK;
}

static int write_shard(struct call *call, const char *name)
{
    if (cut_is_of(call->shard, name))
        return cut_wait(call);
    return embd__error_set(&call->error, EMBD_INVALID,
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

static int take_blob(struct call *call, const char *name, const struct snapshot_piece *piece)
{
    int dir = snapshot_open(call->shard->data_dir, name, &call->error);
    if (dir < 0)
        return call->error.status;
    snapshot_blob(&call->shard->snapshot, dir, piece, &call->error);
    close(dir);
    return call->error.status;
}

/* ---- commit ---- */

void snapshot_forget(struct snapshot_parts *parts)
{
    for (uint32_t i = 0; i < parts->n_tables; i++)
        free(parts->tables[i].parts);
    free(parts->tables);
    free(parts->writers);
    XXH3_freeState(parts->blob_hash);
    *parts = (struct snapshot_parts){0};
}

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
    for (uint32_t i = 0; i < to->n_parts; i++)
        if (to->parts[i].shard == part->shard)
            return embd__error_set(&call->error, EMBD_INVALID, "snapshot part '%s' is told twice",
                                   part->file);
    to->parts[to->n_parts++] = *part;
    to->step = step > to->step ? step : to->step;
    return EMBD_OK;
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

static int read_part(struct call *call, int dir, const msgpack_object *item)
{
    struct fields f;
    struct manifest_part part = {.rows = 0};
    char name[EMBD_NAME_MAX + 1];
    embd__list_map(&call->reader, item, &f, "snapshot part");
    embd__field_str(&f, "table", name, sizeof name, NULL);
    embd__field_str(&f, "file", part.file, sizeof part.file, NULL);
    part.shard = (uint32_t)embd__field_uint(&f, "shard", 0, call->shard->config.n_shards - 1,
                                            FIELD_REQUIRED);
    part.rows = embd__field_uint(&f, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
    part.candidates = embd__field_uint(&f, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
    part.bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    part.xxh3 = embd__field_uint(&f, "xxh3", 0, UINT64_MAX, FIELD_REQUIRED);
    part.has_changes = embd__field_bool(&f, "changes", false);
    uint64_t step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    if (part.has_changes && call->shard->snapshot.base.id == 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot part '%s' has changes, and the snapshot has no base",
                               part.file);
    const struct table *table = tables_find(&call->shard->tables, name, &call->error);
    if (table == NULL || check_file(call, dir, name, &part) != EMBD_OK)
        return call->error.status;
    return add_part(call, table, &part, step);
}

static int read_writers(struct call *call, int dir, const msgpack_object *item)
{
    struct fields f;
    struct snapshot_parts *parts = &call->shard->snapshot;
    struct manifest_writers writers;
    struct stat st;
    char file[WRITERSFILE_NAME];
    embd__list_map(&call->reader, item, &f, "snapshot writers");
    writers.shard = (uint32_t)embd__field_uint(&f, "shard", 0, call->shard->config.n_shards - 1,
                                               FIELD_REQUIRED);
    writers.bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    writers.xxh3 = embd__field_uint(&f, "xxh3", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < parts->n_writers; i++)
        if (parts->writers[i].shard == writers.shard)
            return embd__error_set(&call->error, EMBD_INVALID,
                                   "snapshot writers of shard %u are told twice", writers.shard);
    embd__writersfile_name(file, writers.shard);
    if (fstatat(dir, file, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return embd__error_set(&call->error, EMBD_IO, "snapshot '%s': %s", file, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != writers.bytes)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot writers '%s' bytes: %llu, the file has %lld", file,
                               (unsigned long long)writers.bytes, (long long)st.st_size);
    struct manifest_writers *grown =
        realloc(parts->writers, (parts->n_writers + 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for the list of writers");
    parts->writers = grown;
    grown[parts->n_writers++] = writers;
    return EMBD_OK;
}

/* The schemas of the tables as they are now; while there is a cut none is dropped. */
static int fill_schemas(struct call *call, struct snapshot_parts *parts)
{
    for (uint32_t i = 0; i < parts->n_tables; i++) {
        const struct table *table =
            tables_find(&call->shard->tables, parts->names[i], &call->error);
        if (table == NULL)
            return call->error.status;
        parts->tables[i].schema = table->schema; /* lent for the moment of writing */
    }
    return EMBD_OK;
}

/* The base is what it was when the snapshot was begun. */
static int check_base(struct call *call)
{
    const struct manifest_base *base = &call->shard->snapshot.base;
    struct manifest_base found;
    if (base->id == 0)
        return EMBD_OK;
    if (snapshot_base(call->shard->data_dir, base->name, &found, &call->error) != EMBD_OK)
        return call->error.status;
    if (found.id == base->id && found.xxh3 == base->xxh3 && call->shard->snapshot.id != 0)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_INVALID,
                           "snapshot base '%s' is another one than when this was begun", base->name);
}

static int write_manifest(struct call *call, int dir)
{
    struct snapshot_parts *parts = &call->shard->snapshot;
    struct manifest manifest = {
        .kind = "snapshot",
        .embd_version = EMBD_VERSION,
        .n_shards = call->shard->config.n_shards,
        .id = parts->id,
        .base = parts->base,
        .tables = parts->tables,
        .n_tables = parts->n_tables,
        .blobs = parts->blobs,
        .n_blobs = parts->n_blobs,
        .writers = parts->writers,
        .n_writers = parts->n_writers,
    };
    if (check_base(call) != EMBD_OK ||
        snapshot_check_blobs(parts, dir, &call->error) != EMBD_OK ||
        fill_schemas(call, parts) != EMBD_OK)
        return call->error.status;
    char *text = embd__manifest_write(&manifest);
    if (text == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for the manifest");
    whole_write(dir, "manifest.json", text, strlen(text), &call->error);
    free(text);
    return call->error.status;
}

/* What one commit request tells. */
struct commit_fields {
    const msgpack_object *parts, *writers; /* [n_parts], [n_writers] */
    uint32_t n_parts, n_writers;
    uint64_t id;
    bool more;
};

static int commit_shard(struct call *call, const char *name, const struct commit_fields *fields)
{
    struct snapshot_parts *parts = &call->shard->snapshot;
    int dir = snapshot_open(call->shard->data_dir, name, &call->error);
    if (dir < 0)
        return call->error.status;
    parts->id = fields->id;
    for (uint32_t i = 0; i < fields->n_parts && call->error.status == EMBD_OK; i++)
        read_part(call, dir, &fields->parts[i]);
    for (uint32_t i = 0; i < fields->n_writers && call->error.status == EMBD_OK; i++)
        read_writers(call, dir, &fields->writers[i]);
    if (call->error.status == EMBD_OK && !fields->more && write_manifest(call, dir) == EMBD_OK &&
        snapshot_publish(call->shard->data_dir, name, &call->error) == EMBD_OK)
        call->shard->counters.snapshots++;
    close(dir);
    if (call->error.status != EMBD_OK || !fields->more) {
        snapshot_forget(parts);
        if (cut_is_of(call->shard, name))
            cut_end(call->shard, EMBD_CLOSED, "it was committed");
    }
    return call->error.status;
}

/* ---- all phases ---- */

static int check_place(struct call *call, enum phase phase)
{
    const struct shard_config *config = &call->shard->config;
    if (call->shard->data_dir < 0)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "snapshot: this server has no data directory; it is started with --data-dir");
    bool is_any = phase == PHASE_CUT || phase == PHASE_WRITE || phase == PHASE_ABORT;
    if (!is_any && !config->is_first)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot %s: shard %u is not the first of its process",
                               phase_names[phase], config->index);
    return EMBD_OK;
}

/* A new staged directory, for a snapshot upon another one where `base_name` is not "". */
static int begin_shard(struct call *call, const char *name, const char *base_name)
{
    struct manifest_base base = {.id = 0};
    int data_dir = call->shard->data_dir;
    if (base_name[0] != '\0' && snapshot_base(data_dir, base_name, &base, &call->error) != EMBD_OK)
        return call->error.status;
    if (snapshot_begin(data_dir, name, &call->error) != EMBD_OK)
        return call->error.status;
    snapshot_forget(&call->shard->snapshot);
    call->shard->snapshot.base = base;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, base.id != 0);
    if (base.id != 0)
        embd__msg_field_uint(call->answer, "base_id", base.id);
    return EMBD_OK;
}

/* The snapshot is complete, or there is none of that name: then nothing is removed. */
static int keep(struct call *call, const char *name, uint32_t n)
{
    struct stat st;
    uint32_t removed;
    if (fstatat(call->shard->data_dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot keep: there is no snapshot '%s'", name);
    if (snapshot_keep(call->shard->data_dir, name, n, &removed, &call->error) != EMBD_OK)
        return call->error.status;
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 1);
    embd__msg_field_uint(call->answer, "removed", removed);
    return EMBD_OK;
}

static void answer_nothing(struct call *call)
{
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
}

int handle_snapshot(struct call *call)
{
    struct embd__error *e = &call->error;
    struct fields f;
    char name[128];
    uint32_t n_kept = 0;
    struct commit_fields commit = {.n_parts = 0};
    struct blob_fields blob;
    struct snapshot_cut cut;
    char base[SNAPSHOT_NAME_MAX + 1] = "";
    embd__read_fields(&f, &call->reader, "snapshot");
    embd__field_str(&f, "name", name, sizeof name, NULL);
    enum phase phase = (enum phase)embd__field_enum(&f, "phase", phase_names, PHASES, -1);
    if (phase == PHASE_COMMIT) {
        commit.n_parts = embd__field_list(&f, "parts", LIMIT_ELEMENTS, &commit.parts);
        if (embd__field_has(&f, "writers"))
            commit.n_writers = embd__field_list(&f, "writers", LIMIT_ELEMENTS, &commit.writers);
        commit.id = embd__field_uint(&f, "id", 0, UINT64_MAX, 0);
        commit.more = embd__field_bool(&f, "more", false);
    }
    if (phase == PHASE_BLOB)
        read_blob(call, &f, &blob);
    if (phase == PHASE_CUT)
        read_cut(&f, &cut);
    if (phase == PHASE_BEGIN && embd__field_has(&f, "base"))
        embd__field_str(&f, "base", base, sizeof base, NULL);
    if (phase == PHASE_KEEP)
        n_kept = (uint32_t)embd__field_uint(&f, "keep", 1, UINT32_MAX, FIELD_REQUIRED);
    if (call_end(call, &f) != EMBD_OK || snapshot_check_name(name, e) != EMBD_OK ||
        check_place(call, phase) != EMBD_OK)
        return e->status;

    if (phase == PHASE_WRITE)
        return write_shard(call, name);
    if (phase == PHASE_CUT)
        return cut_shard(call, name, &cut);
    if (phase == PHASE_KEEP)
        return keep(call, name, n_kept);
    if (phase == PHASE_BEGIN)
        return begin_shard(call, name, base);
    if (phase == PHASE_ABORT && cut_is_of(call->shard, name))
        cut_end(call->shard, EMBD_CLOSED, "it was aborted");
    if (phase == PHASE_COMMIT)
        commit_shard(call, name, &commit);
    else if (phase == PHASE_BLOB)
        take_blob(call, name, &blob.piece);
    else if (call->shard->config.is_first)
        snapshot_remove(call->shard->data_dir, name, e);
    if (phase == PHASE_ABORT)
        snapshot_forget(&call->shard->snapshot);
    if (e->status == EMBD_OK)
        answer_nothing(call);
    return e->status;
}
