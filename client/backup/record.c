/* record.c - see record.h. */
#include "client/backup/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embd/embd.h"
#include "proto/json_values.h"
#include "proto/scope_json.h"
#include "proto/seal.h"

#define RECORD_FORMAT    2 /* 1 has no `cluster` */
#define RECORD_FILES_MAX (1u << 20)

int record_add(struct record *r, const char *name, uint64_t bytes, uint64_t xxh3,
               struct embd__error *e)
{
    struct record_file *grown = r->files;
    if ((r->n_files & (r->n_files - 1)) == 0)
        grown = realloc(r->files, (r->n_files ? 2 * (size_t)r->n_files : 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the files of a backup");
    r->files = grown;
    grown[r->n_files] = (struct record_file){.bytes = bytes, .xxh3 = xxh3};
    snprintf(grown[r->n_files++].name, sizeof grown->name, "%s", name);
    return EMBD_OK;
}

uint64_t record_bytes(const struct record *r)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->n_files; i++)
        bytes += r->files[i].bytes;
    return bytes;
}

bool record_path(char out[PLACE_NAME_BYTES], const char *backup, const char *file)
{
    int n = snprintf(out, PLACE_NAME_BYTES, "%s/%s", backup, file);
    return n >= 0 && n < (int)PLACE_NAME_BYTES;
}

void record_fini(struct record *r)
{
    free(r->files);
    *r = (struct record){.n_files = 0};
}

/* ---- writing ---- */

static json_t *files_to_json(const struct record *r)
{
    json_t *files = json_array();
    int failed = files == NULL;
    for (uint32_t i = 0; i < r->n_files; i++)
        failed |=
            json_array_append_new(files, json_pack("{s:s, s:o, s:o}", "name", r->files[i].name,
                                                   "bytes", embd__json_u64(r->files[i].bytes),
                                                   "xxh3", embd__json_hex(r->files[i].xxh3)));
    if (!failed)
        return files;
    json_decref(files);
    return NULL;
}

static json_t *to_json(const struct record *r)
{
    json_t *base = NULL;
    if (r->base_id != 0)
        base = json_pack("{s:s, s:o}", "name", r->base, "id", embd__json_hex(r->base_id));
    json_t *json = json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o*, s:o, s:o, s:o}", "format",
                             RECORD_FORMAT, "embd_version", embd_version(), "name", r->name, "time",
                             embd__json_u64(r->time_s), "cluster", embd__json_hex(r->cluster), "id",
                             embd__json_hex(r->id), "sequence", embd__json_u64(r->sequence), "base",
                             base, "shards", embd__json_u64(r->n_shards), "rows",
                             embd__json_u64(r->rows), "files", files_to_json(r));
    if (json == NULL || embd__scope_to_json(&r->scope, json) == 0)
        return json;
    json_decref(json);
    return NULL;
}

char *record_write(const struct record *r)
{
    return embd__seal(to_json(r));
}

/* ---- reading ---- */

static void read_name(struct members *m, const char *member, char out[SNAPSHOT_NAME_MAX + 1])
{
    embd__member_str(m, member, out, SNAPSHOT_NAME_MAX + 1);
    if (m->error->status == EMBD_OK && (!place_is_name(out) || strpbrk(out, "./") != NULL))
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is not of the form [a-z0-9][a-z0-9_-]*",
                        m->what, member);
}

static void read_base(struct members *m, struct record *out)
{
    struct members base;
    if (json_object_get(m->object, "base") == NULL)
        return;
    embd__members_open(&base, embd__member(m, "base", true), "backup base", m->error);
    read_name(&base, "name", out->base);
    out->base_id = embd__member_hex(&base, "id");
    if (m->error->status == EMBD_OK && out->base_id == 0)
        embd__error_set(m->error, EMBD_CORRUPT, "backup base 'id' is 0");
    embd__members_end(&base);
}

/* SHARD/FILE: so no file lies outside of its backup, or where backup.json does. */
static bool is_file_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return place_is_name(name) && slash != NULL && strchr(slash + 1, '/') == NULL &&
           strspn(name, "0123456789") == (size_t)(slash - name);
}

static void read_file(const json_t *object, uint32_t i, struct record *out, json_t *seen,
                      struct embd__error *e)
{
    char what[32], name[PLACE_NAME_BYTES];
    struct members m;
    snprintf(what, sizeof what, "files[%u]", i);
    embd__members_open(&m, object, what, e);
    embd__member_str(&m, "name", name, sizeof name);
    uint64_t bytes = embd__member_u64(&m, "bytes", (uint64_t)PLACE_PIECE_BYTES << 20);
    uint64_t xxh3 = embd__member_hex(&m, "xxh3");
    if (embd__members_end(&m) != EMBD_OK)
        return;
    if (!is_file_name(name) || json_object_get(seen, name) != NULL)
        embd__error_set(e, EMBD_CORRUPT, "%s 'name' %s", what,
                        is_file_name(name) ? "occurs twice" : "is not of the form SHARD/FILE");
    else if (json_object_set_new(seen, name, json_true()) != 0)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the files of a backup");
    else
        record_add(out, name, bytes, xxh3, e);
}

static void read_files(struct members *m, struct record *out)
{
    size_t n = 0;
    const json_t *files = embd__member_array(m, "files", RECORD_FILES_MAX, &n);
    json_t *seen = json_object();
    for (uint32_t i = 0; files != NULL && i < n && m->error->status == EMBD_OK; i++)
        read_file(json_array_get(files, i), i, out, seen, m->error);
    json_decref(seen);
}

static void read_members(const json_t *root, struct record *out, struct embd__error *e)
{
    struct members m;
    char version[64];
    embd__members_open(&m, root, "backup", e);
    uint64_t format = embd__member_u64(&m, "format", UINT64_MAX);
    if (e->status == EMBD_OK && (format == 0 || format > RECORD_FORMAT))
        embd__error_set(e, EMBD_UNSUPPORTED,
                        "backup 'format' is %" PRIu64 ", the newest known one is %d", format,
                        RECORD_FORMAT);
    embd__member_str(&m, "embd_version", version, sizeof version);
    read_name(&m, "name", out->name);
    out->time_s = embd__member_u64(&m, "time", UINT32_MAX);
    out->cluster = format >= 2 ? embd__member_hex(&m, "cluster") : 0;
    out->id = embd__member_hex(&m, "id");
    out->sequence = embd__member_u64(&m, "sequence", UINT64_MAX);
    read_base(&m, out);
    out->n_shards = (uint32_t)embd__member_u64(&m, "shards", LIMIT_SHARDS);
    out->rows = embd__member_u64(&m, "rows", UINT64_MAX);
    embd__scope_from_json(&m, &out->scope);
    read_files(&m, out);
    embd__member(&m, "xxh3", true);
    embd__members_end(&m);
}

int record_read(const char *text, size_t bytes, struct record *out, struct embd__error *e)
{
    json_error_t why;
    *out = (struct record){.n_files = 0};
    if (!embd__is_sealed(text, bytes, "backup.json", e))
        return embd__error_set(e, EMBD_CORRUPT, "backup.json has no checksum: it is cut off");
    if (e->status != EMBD_OK)
        return e->status;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL)
        return embd__error_set(e, EMBD_CORRUPT, "backup.json is not JSON: line %d: %s", why.line,
                               why.text);
    read_members(root, out, e);
    json_decref(root);
    if (e->status != EMBD_OK)
        record_fini(out);
    return e->status;
}
