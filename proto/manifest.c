/* manifest.c - manifest.json, the last file a dump or snapshot writes: what was taken, from how
 * many shards, and each part file and blob with its checksum. Read strictly, since what it says
 * decides what a load does: every member typed and known, file names plain and different, names of
 * tables and blobs different.
 *
 * Its last member is the checksum of the text before, so that a flipped digit of a step or a rate
 * is found like one of a row. The text is hashed, not what it means: readers in other languages
 * need no rules of printing numbers. A manifest without the member is read too: earlier ones had
 * none, and who writes one by hand need not compute it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/placement_json.h"
#include "proto/json_values.h"
#include "proto/partfile.h"
#include "proto/scope_json.h"
#include "proto/seal.h"
#include "embd/admin.h"

/* The newest. 1 has no id and no writers; dumps are written so. 2 has no base and no changes. 4 may
 * have a sequence, and the steps of shards whose table was at different ones; its id and base may
 * be absent. 5 is of a job, or of some tables alone. */
#define MANIFEST_FORMAT 6
#define MANIFEST_PARTS  65536u /* of one table: far more than shards */

static bool is_name_of(const char *name, size_t max)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t n = strlen(name);
    return n >= 1 && n <= max && strspn(name, all) == n && *name != '_' && *name != '-';
}

bool embd__manifest_blob_file(char out[MANIFEST_BLOB_FILE], const char *name)
{
    bool is_name = is_name_of(name, EMBD_NAME_MAX);
    snprintf(out, MANIFEST_BLOB_FILE, "%s%s", is_name ? name : "", is_name ? ".blob" : "");
    return is_name;
}

/* ---- writing ---- */

/* The table's step holds for the parts that do not say theirs. */
static json_t *part_to_json(const struct manifest_table *table, const struct manifest_part *part)
{
    bool is_behind = part->step != table->step;
    bool has_id = part->table_id != 0;
    json_t *step = is_behind ? embd__json_u64(part->step) : NULL;
    json_t *id = has_id ? embd__json_u64(part->table_id) : NULL;
    if ((is_behind && step == NULL) || (has_id && id == NULL)) {
        json_decref(step);
        json_decref(id);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o*, s:o*, s:o*}", "file", part->file,
                     "shard", embd__json_u64(part->shard), "rows", embd__json_u64(part->rows),
                     "candidates", embd__json_u64(part->candidates), "bytes",
                     embd__json_u64(part->bytes), "xxh3", embd__json_hex(part->xxh3), "changes",
                     part->has_changes ? json_true() : NULL, "step", step, "table_id", id);
}

static json_t *table_to_json(const struct manifest_table *table)
{
    json_t *parts = json_array();
    int failed = parts == NULL;
    for (uint32_t i = 0; i < table->n_parts; i++)
        failed |= json_array_append_new(parts, part_to_json(table, &table->parts[i]));
    if (failed) {
        json_decref(parts);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:o}", "schema", embd__schema_to_json(&table->schema.s), "step",
                     embd__json_u64(table->step), "parts", parts);
}

/* NULL, without an error, if there are none. */
static json_t *blobs_to_json(const struct manifest *manifest, int *failed)
{
    json_t *blobs = manifest->n_blobs > 0 ? json_array() : NULL;
    for (uint32_t i = 0; i < manifest->n_blobs; i++) {
        const struct manifest_blob *blob = &manifest->blobs[i];
        *failed |= json_array_append_new(blobs, json_pack("{s:s, s:o, s:o}", "name", blob->name,
                                                          "bytes", embd__json_u64(blob->bytes),
                                                          "xxh3", embd__json_hex(blob->xxh3)));
    }
    return blobs;
}

/* Likewise. */
static json_t *streams_to_json(const struct manifest *manifest, int *failed)
{
    json_t *list = manifest->n_streams > 0 && manifest->id != 0 ? json_array() : NULL;
    for (uint32_t i = 0; list != NULL && i < manifest->n_streams; i++) {
        const struct manifest_streams *w = &manifest->streams[i];
        *failed |= json_array_append_new(
            list, json_pack("{s:o, s:o, s:o}", "shard", embd__json_u64(w->shard), "bytes",
                            embd__json_u64(w->bytes), "xxh3", embd__json_hex(w->xxh3)));
    }
    return list;
}

/* Likewise. */
static json_t *id_to_json(const struct manifest *manifest, int *failed)
{
    if (manifest->id == 0)
        return NULL;
    json_t *json = embd__json_hex(manifest->id);
    *failed |= json == NULL;
    return json;
}

/* Likewise. */
static json_t *base_to_json(const struct manifest *manifest, int *failed)
{
    const struct manifest_base *base = &manifest->base;
    if (base->id == 0)
        return NULL;
    json_t *json = json_pack("{s:s, s:o, s:o}", "name", base->name, "id", embd__json_hex(base->id),
                             "xxh3", embd__json_hex(base->xxh3));
    *failed |= json == NULL;
    return json;
}

static bool has_different_steps(const struct manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->n_tables; i++) {
        const struct manifest_table *table = &manifest->tables[i];
        for (uint32_t j = 0; j < table->n_parts; j++)
            if (table->parts[j].step != table->step)
                return true;
    }
    return false;
}

static bool is_uneven(const struct manifest *manifest)
{
    return manifest->placement != NULL && !manifest->placement->is_even;
}

/* The least that has a word for all of it. Versions that know the even map alone read no 6. */
static int format_of(const struct manifest *manifest)
{
    if (is_uneven(manifest))
        return 6;
    if (embd__scope_fields(&manifest->scope) > 0)
        return 5;
    if (manifest->sequence != 0 || has_different_steps(manifest))
        return 4;
    return manifest->base.id != 0 ? 3 : manifest->id != 0 ? 2 : 1;
}

static json_t *manifest_to_json(const struct manifest *manifest)
{
    json_t *tables = json_array();
    int failed = tables == NULL;
    for (uint32_t i = 0; i < manifest->n_tables; i++)
        failed |= json_array_append_new(tables, table_to_json(&manifest->tables[i]));
    json_t *blobs = blobs_to_json(manifest, &failed);
    json_t *streams = streams_to_json(manifest, &failed);
    json_t *id = id_to_json(manifest, &failed), *base = base_to_json(manifest, &failed);
    json_t *sequence = manifest->sequence != 0 ? embd__json_u64(manifest->sequence) : NULL;
    failed |= manifest->sequence != 0 && sequence == NULL;
    if (failed) {
        json_decref(sequence);
        json_decref(base);
        json_decref(id);
        json_decref(tables);
        json_decref(blobs);
        json_decref(streams);
        return NULL;
    }
    json_t *json = json_pack("{s:i, s:s, s:s, s:o*, s:o*, s:o*, s:o, s:o, s:o*, s:o*}", "format",
                             format_of(manifest), "kind", manifest->kind, "embd_version",
                             manifest->embd_version, "id", id, "sequence", sequence, "base", base,
                             "shards", embd__json_u64(manifest->n_shards), "tables", tables,
                             "writers", streams, "blobs", blobs);
    failed = json == NULL || embd__scope_to_json(&manifest->scope, json) != 0;
    if (!failed && is_uneven(manifest))
        failed =
            json_object_set_new(json, "placement", embd__placement_to_json(manifest->placement));
    if (!failed)
        return json;
    json_decref(json);
    return NULL;
}

char *embd__manifest_write(const struct manifest *manifest)
{
    return embd__seal(manifest_to_json(manifest));
}

/* ---- reading ---- */

static void read_file_name(struct members *m, struct manifest_part *part)
{
    embd__member_str(m, "file", part->file, sizeof part->file);
    bool is_plain = strcmp(part->file, ".") != 0 && strcmp(part->file, "..") != 0;
    for (const char *c = part->file; *c != '\0'; c++)
        is_plain = is_plain && *c > ' ' && *c <= '~' && *c != '/';
    if (!is_plain)
        embd__error_set(m->error, EMBD_CORRUPT, "%s 'file' is not a plain file name", m->what);
}

/* Not 0, which means none. */
static uint64_t read_id(struct members *m)
{
    uint64_t id = embd__member_hex(m, "id");
    if (id == 0)
        embd__error_set(m->error, EMBD_CORRUPT, "%s 'id' is 0; expected a number above 0", m->what);
    return id;
}

/* An error when `name` is in `seen` already. */
static void see(json_t *seen, const char *name, const char *what, struct embd__error *e)
{
    if (e->status != EMBD_OK)
        return;
    if (json_object_get(seen, name) != NULL)
        embd__error_set(e, EMBD_CORRUPT, "%s '%s' occurs twice", what, name);
    else if (json_object_set_new(seen, name, json_true()) != 0)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the names of a manifest");
}

static bool read_changes(struct members *m, const struct manifest *manifest)
{
    if (manifest->base.id == 0 || json_object_get(m->object, "changes") == NULL)
        return false;
    const json_t *value = embd__member(m, "changes", true);
    if (!json_is_true(value))
        embd__error_set(m->error, EMBD_CORRUPT, "%s 'changes' is not true", m->what);
    return true;
}

static uint64_t read_part_step(struct members *m, const struct manifest *manifest, uint64_t table)
{
    if (manifest->format < 4 || json_object_get(m->object, "step") == NULL)
        return table;
    return embd__member_u64(m, "step", table);
}

static uint32_t read_table_id(struct members *m)
{
    bool is_there = json_object_get(m->object, "table_id") != NULL;
    return is_there ? (uint32_t)embd__member_u64(m, "table_id", UINT32_MAX) : 0;
}

static void read_part(const json_t *object, const char *what, const struct manifest *manifest,
                      uint64_t table_step, struct manifest_part *part, struct embd__error *e)
{
    struct members m;
    embd__members_open(&m, object, what, e);
    read_file_name(&m, part);
    part->shard = (uint32_t)embd__member_u64(&m, "shard", manifest->n_shards - 1);
    part->rows = embd__member_u64(&m, "rows", UINT64_MAX);
    part->candidates = embd__member_u64(&m, "candidates", UINT64_MAX);
    part->bytes = embd__member_u64(&m, "bytes", UINT64_MAX);
    part->xxh3 = embd__member_hex(&m, "xxh3");
    part->has_changes = read_changes(&m, manifest);
    part->step = read_part_step(&m, manifest, table_step);
    part->table_id = read_table_id(&m);
    embd__members_end(&m);
}

static void read_parts(struct members *m, struct manifest_table *table,
                       const struct manifest *manifest, json_t *seen_files)
{
    size_t n;
    char what[160];
    const json_t *list = embd__member_array(m, "parts", MANIFEST_PARTS, &n);
    if (list == NULL)
        return;
    table->parts = calloc(n ? n : 1, sizeof *table->parts);
    if (table->parts == NULL) {
        embd__error_set(m->error, EMBD_NO_MEMORY, "no memory for %zu parts of a manifest", n);
        return;
    }
    table->n_parts = (uint32_t)n;
    for (size_t i = 0; i < n && m->error->status == EMBD_OK; i++) {
        snprintf(what, sizeof what, "%s parts[%zu]", m->what, i);
        read_part(json_array_get(list, i), what, manifest, table->step, &table->parts[i], m->error);
        see(seen_files, table->parts[i].file, "manifest file", m->error);
    }
}

static void read_table(const json_t *object, uint32_t i, struct manifest *out, json_t *seen_files,
                       struct embd__error *e)
{
    struct members m;
    char what[32], schema_what[48];
    struct manifest_table *table = &out->tables[i];
    snprintf(what, sizeof what, "manifest tables[%u]", i);
    snprintf(schema_what, sizeof schema_what, "%s schema", what);
    embd__members_open(&m, object, what, e);
    const json_t *schema = embd__member(&m, "schema", true);
    if (e->status == EMBD_OK)
        embd__schema_from_json(schema, schema_what, &table->schema, e);
    table->step = embd__member_u64(&m, "step", UINT64_MAX);
    read_parts(&m, table, out, seen_files);
    embd__members_end(&m);
}

static void read_tables(struct members *m, struct manifest *out)
{
    size_t n;
    const json_t *list = embd__member_array(m, "tables", LIMIT_TABLES, &n);
    if (list == NULL)
        return;
    json_t *seen_names = json_object(), *seen_files = json_object();
    out->tables = calloc(n ? n : 1, sizeof *out->tables);
    if (out->tables == NULL || seen_names == NULL || seen_files == NULL)
        embd__error_set(m->error, EMBD_NO_MEMORY, "no memory for %zu tables of a manifest", n);
    else
        out->n_tables = (uint32_t)n;
    for (uint32_t i = 0; i < n && m->error->status == EMBD_OK; i++) {
        read_table(json_array_get(list, i), i, out, seen_files, m->error);
        see(seen_names, out->tables[i].schema.s.name, "manifest table", m->error);
    }
    json_decref(seen_names);
    json_decref(seen_files);
}

static void read_blob(const json_t *object, uint32_t i, struct manifest_blob *blob, json_t *seen,
                      struct embd__error *e)
{
    struct members m;
    char what[32], file[MANIFEST_BLOB_FILE];
    snprintf(what, sizeof what, "manifest blobs[%u]", i);
    embd__members_open(&m, object, what, e);
    embd__member_str(&m, "name", blob->name, sizeof blob->name);
    if (e->status == EMBD_OK && !embd__manifest_blob_file(file, blob->name))
        embd__error_set(e, EMBD_CORRUPT, "%s 'name' is not of the form [a-z0-9][a-z0-9_-]{0,62}",
                        what);
    blob->bytes = embd__member_u64(&m, "bytes", EMBD_BLOB_BYTES_MAX);
    blob->xxh3 = embd__member_hex(&m, "xxh3");
    embd__members_end(&m);
    see(seen, blob->name, "manifest blob", e);
}

static void read_blobs(struct members *m, struct manifest *out)
{
    size_t n;
    if (json_object_get(m->object, "blobs") == NULL)
        return;
    const json_t *list = embd__member_array(m, "blobs", EMBD_BLOBS_MAX, &n);
    if (list == NULL)
        return;
    json_t *seen = json_object();
    out->blobs = calloc(n ? n : 1, sizeof *out->blobs);
    if (out->blobs == NULL || seen == NULL)
        embd__error_set(m->error, EMBD_NO_MEMORY, "no memory for %zu blobs of a manifest", n);
    else
        out->n_blobs = (uint32_t)n;
    for (uint32_t i = 0; i < out->n_blobs && m->error->status == EMBD_OK; i++)
        read_blob(json_array_get(list, i), i, &out->blobs[i], seen, m->error);
    json_decref(seen);
}

static void read_one_streams(const json_t *object, uint32_t i, struct manifest *out, json_t *seen,
                             struct embd__error *e)
{
    struct members m;
    char what[32], shard[16];
    struct manifest_streams *w = &out->streams[i];
    snprintf(what, sizeof what, "manifest writers[%u]", i);
    embd__members_open(&m, object, what, e);
    w->shard = (uint32_t)embd__member_u64(&m, "shard", out->n_shards - 1);
    w->bytes = embd__member_u64(&m, "bytes", UINT32_MAX);
    w->xxh3 = embd__member_hex(&m, "xxh3");
    embd__members_end(&m);
    snprintf(shard, sizeof shard, "%u", w->shard);
    see(seen, shard, "manifest writers of shard", e);
}

static void read_streams(struct members *m, struct manifest *out)
{
    size_t n;
    if (json_object_get(m->object, "writers") == NULL)
        return;
    const json_t *list = embd__member_array(m, "writers", LIMIT_SHARDS, &n);
    if (list == NULL || m->error->status != EMBD_OK)
        return;
    json_t *seen = json_object();
    out->streams = calloc(n ? n : 1, sizeof *out->streams);
    if (out->streams == NULL || seen == NULL)
        embd__error_set(m->error, EMBD_NO_MEMORY, "no memory for %zu writers of a manifest", n);
    else
        out->n_streams = (uint32_t)n;
    for (uint32_t i = 0; i < out->n_streams && m->error->status == EMBD_OK; i++)
        read_one_streams(json_array_get(list, i), i, out, seen, m->error);
    json_decref(seen);
}

static void read_base(struct members *m, struct manifest *out)
{
    struct members base;
    struct manifest_base *b = &out->base;
    embd__members_open(&base, embd__member(m, "base", true), "manifest base", m->error);
    embd__member_str(&base, "name", b->name, sizeof b->name);
    if (m->error->status == EMBD_OK && !is_name_of(b->name, SNAPSHOT_NAME_MAX))
        embd__error_set(m->error, EMBD_CORRUPT,
                        "manifest base 'name' is not of the form [a-z0-9][a-z0-9_-]{0,63}");
    b->id = read_id(&base);
    b->xxh3 = embd__member_hex(&base, "xxh3");
    embd__members_end(&base);
}

static void check_seal(struct members *m, bool is_sealed)
{
    if (embd__member(m, "xxh3", is_sealed) != NULL && !is_sealed)
        embd__error_set(m->error, EMBD_CORRUPT,
                        "the manifest's last member is not 'xxh3' with 16 hexadecimal digits");
}

/* Whether the manifest is to have it: formats from `least` on had to, and 4 says where it has it.
 */
static bool has_member(const struct members *m, uint64_t format, uint64_t least, const char *name)
{
    return format < 4 ? format >= least : json_object_get(m->object, name) != NULL;
}

/* Not 0, which means none. */
static uint64_t read_sequence(struct members *m)
{
    uint64_t sequence = embd__member_u64(m, "sequence", UINT64_MAX);
    if (m->error->status == EMBD_OK && sequence == 0)
        embd__error_set(m->error, EMBD_CORRUPT, "%s 'sequence' is 0, below the minimum of 1",
                        m->what);
    return sequence;
}

static void read_placement(struct members *m, struct manifest *out)
{
    const json_t *value = out->format < 6 ? NULL : embd__member(m, "placement", true);
    if (value == NULL)
        return;
    struct placement *placement = malloc(sizeof *placement);
    out->placement = placement;
    if (placement == NULL)
        embd__error_set(m->error, EMBD_NO_MEMORY, "no memory for the placement of a manifest");
    else
        embd__placement_from_json(value, out->n_shards, placement, m->error);
}

/* Every table is one that it is of. */
static void read_scope(struct members *m, struct manifest *out)
{
    if (out->format < 5)
        return;
    embd__scope_from_json(m, &out->scope);
    for (uint32_t i = 0; i < out->n_tables && m->error->status == EMBD_OK; i++)
        if (!embd__scope_covers(&out->scope, out->tables[i].schema.s.name))
            embd__error_set(m->error, EMBD_CORRUPT, "%s 'scope' does not cover table '%s'", m->what,
                            out->tables[i].schema.s.name);
}

static void read_manifest(const json_t *json, bool is_sealed, struct manifest *out,
                          struct embd__error *e)
{
    struct members m;
    embd__members_open(&m, json, "the manifest", e);
    uint64_t format = embd__member_u64(&m, "format", UINT64_MAX);
    if (e->status == EMBD_OK && (format == 0 || format > MANIFEST_FORMAT))
        embd__error_set(e, EMBD_UNSUPPORTED,
                        "the manifest's 'format' is %llu, this version reads 1 to %d",
                        (unsigned long long)format, MANIFEST_FORMAT);
    embd__member_str(&m, "kind", out->kind, sizeof out->kind);
    if (e->status == EMBD_OK && strcmp(out->kind, "dump") != 0 &&
        strcmp(out->kind, "snapshot") != 0)
        embd__error_set(e, EMBD_CORRUPT, "the manifest's 'kind' is '%s', expected dump or snapshot",
                        out->kind);
    embd__member_str(&m, "embd_version", out->embd_version, sizeof out->embd_version);
    out->format = (uint32_t)format;
    if (e->status == EMBD_OK && has_member(&m, format, 3, "base"))
        read_base(&m, out);
    if (e->status == EMBD_OK && has_member(&m, format, UINT64_MAX, "sequence"))
        out->sequence = read_sequence(&m);
    out->n_shards = (uint32_t)embd__member_u64(&m, "shards", LIMIT_SHARDS);
    if (e->status == EMBD_OK && out->n_shards == 0)
        embd__error_set(e, EMBD_CORRUPT, "the manifest's 'shards' is 0, below the minimum of 1");
    read_placement(&m, out);
    read_tables(&m, out);
    read_scope(&m, out);
    if (e->status == EMBD_OK && (out->base.id != 0 || has_member(&m, format, 2, "id"))) {
        out->id = read_id(&m);
        read_streams(&m, out);
    }
    read_blobs(&m, out);
    check_seal(&m, is_sealed);
    embd__members_end(&m);
}

int embd__manifest_read(const char *json, size_t bytes, struct manifest *out, struct embd__error *e)
{
    json_error_t why;
    memset(out, 0, sizeof *out);
    bool sealed = embd__is_sealed(json, bytes, "the manifest", e);
    if (e->status != EMBD_OK)
        return e->status;
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL)
        return embd__error_set(e, EMBD_CORRUPT, "the manifest is not JSON: line %d, column %d: %s",
                               why.line, why.column, why.text);
    read_manifest(root, sealed, out, e);
    const char *seal = sealed ? json_string_value(json_object_get(root, "xxh3")) : NULL;
    out->xxh3 = seal == NULL ? 0 : strtoull(seal, NULL, 16);
    json_decref(root);
    if (e->status != EMBD_OK)
        embd__manifest_fini(out);
    return e->status;
}

void embd__manifest_placement(const struct manifest *manifest, struct placement *out)
{
    if (manifest->placement != NULL)
        *out = *manifest->placement;
    else
        embd__placement_even(out, 1, manifest->n_shards);
}

bool embd__manifest_has_shard(const struct manifest *manifest, uint32_t shard)
{
    for (uint32_t i = 0; i < manifest->n_streams; i++)
        if (manifest->streams[i].shard == shard)
            return true;
    return false;
}

bool embd__manifest_is_placed(const struct manifest *manifest, const struct placement *here)
{
    struct placement there;
    embd__manifest_placement(manifest, &there);
    return embd__placement_is_same(&there, here);
}

void embd__manifest_fini(struct manifest *manifest)
{
    free((void *)(uintptr_t)manifest->placement);
    for (uint32_t i = 0; i < manifest->n_tables; i++) {
        embd__schema_fini(&manifest->tables[i].schema);
        free(manifest->tables[i].parts);
    }
    free(manifest->tables);
    free(manifest->streams);
    free(manifest->blobs);
    memset(manifest, 0, sizeof *manifest);
}
