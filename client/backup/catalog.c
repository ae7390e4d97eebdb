/* catalog.c - see catalog.h.
 *
 * The happy path: list the files of the place; of each backup that has a backup.json read that, and
 * look whether its files were listed; put them in order; look whether each increment has its base.
 * What is not right with one backup is remembered with it, and does not hinder the others. */
#include "client/backup/catalog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "embd/embd.h"

#define JOB_PREFIX BACKUP_JOB "-"

/* ---- what is known of a place ---- */

struct backup_known {
    json_t *texts; /* of each backup.json that was read and is right, by the backup's name */
};

struct backup_known *backup_known_new(void)
{
    struct backup_known *known = calloc(1, sizeof *known);
    if (known != NULL)
        known->texts = json_object();
    if (known != NULL && known->texts != NULL)
        return known;
    free(known);
    return NULL;
}

void backup_known_free(struct backup_known *known)
{
    if (known != NULL)
        json_decref(known->texts);
    free(known);
}

/* ---- which there are ---- */

struct names {
    struct catalog *catalog;
    json_t *files; /* all that were listed, as members */
    struct embd__error *e;
};

static struct catalog_entry *find(const struct catalog *c, const char *name, size_t n)
{
    for (uint32_t i = c->n; i-- > 0;)
        if (strncmp(c->entries[i].name, name, n) == 0 && c->entries[i].name[n] == '\0')
            return &c->entries[i];
    return NULL;
}

static struct catalog_entry *add(struct names *names, const char *name, size_t n)
{
    struct catalog *c = names->catalog;
    struct catalog_entry *grown = realloc(c->entries, (c->n + 1) * sizeof *grown);
    if (grown == NULL) {
        embd__error_set(names->e, EMBD_NO_MEMORY, "no memory for the list of backups");
        return NULL;
    }
    c->entries = grown;
    grown[c->n] = (struct catalog_entry){.state = BACKUP_CUT_OFF};
    snprintf(grown[c->n].name, sizeof grown->name, "%.*s", (int)n, name);
    return &grown[c->n++];
}

static int note(void *arg, const char *file)
{
    struct names *names = arg;
    if (json_object_set_new(names->files, file, json_true()) == 0)
        return 0;
    return embd__error_set(names->e, EMBD_NO_MEMORY, "no memory for the list of backups");
}

static int see(void *arg, const char *file)
{
    struct names *names = arg;
    size_t n = strcspn(file, "/");
    bool is_backup = file[n] == '/' && n <= SNAPSHOT_NAME_MAX && memchr(file, '.', n) == NULL;
    if (!is_backup)
        return 0;
    struct catalog_entry *entry = find(names->catalog, file, n);
    if (entry == NULL)
        entry = add(names, file, n);
    if (entry == NULL)
        return names->e->status;
    entry->has_record = entry->has_record || strcmp(file + n + 1, RECORD_FILE) == 0;
    return note(names, file);
}

/* ---- what they are ---- */

/* A record that was moved here from another backup is of that one. */
static int read_text(struct catalog_entry *entry, const char *text, size_t bytes)
{
    struct embd__error *e = &entry->error;
    if (record_read(text, bytes, &entry->record, e) == EMBD_OK &&
        strcmp(entry->record.name, entry->name) != 0)
        embd__error_set(e, EMBD_CORRUPT, "its " RECORD_FILE " is of the backup '%s'",
                        entry->record.name);
    entry->state = e->status == EMBD_OK ? BACKUP_WHOLE : BACKUP_DAMAGED;
    return EMBD_OK;
}

static bool read_known(const struct place *place, struct catalog_entry *entry)
{
    const json_t *text =
        place->known == NULL ? NULL : json_object_get(place->known->texts, entry->name);
    if (text != NULL)
        read_text(entry, json_string_value(text), json_string_length(text));
    return text != NULL;
}

/* One that is not right is read again: it may have come since. */
static void remember(const struct place *place, const struct catalog_entry *entry, const char *text,
                     size_t bytes)
{
    if (place->known != NULL && entry->state == BACKUP_WHOLE)
        json_object_set_new(place->known->texts, entry->name, json_stringn(text, bytes));
}

static int read_entry(const struct catalog *c, struct catalog_entry *entry, struct embd__error *e)
{
    char path[PLACE_NAME_BYTES];
    size_t bytes = 0;
    if (!entry->has_record || !record_path(path, entry->name, RECORD_FILE) ||
        read_known(c->place, entry))
        return EMBD_OK;
    char *text = c->place->ops->read(c->place, path, &bytes, e);
    if (e->status == EMBD_CORRUPT) { /* it is not a file, or far too large */
        entry->error = *e;
        entry->state = BACKUP_DAMAGED;
        *e = (struct embd__error){0};
    }
    if (text != NULL) {
        read_text(entry, text, bytes);
        remember(c->place, entry, text, bytes);
    }
    free(text);
    return e->status;
}

static bool is_listed(const struct names *names, const char *backup, const struct record_file *file)
{
    char path[PLACE_NAME_BYTES], name[PLACE_NAME_BYTES + 16];
    bool is_bucket = names->catalog->place->dir == NULL;
    uint32_t n = is_bucket ? place_pieces(file->bytes) : 1, found = 0;
    if (!record_path(path, backup, file->name))
        return false;
    if (n == 1)
        return json_object_get(names->files, path) != NULL;
    do
        snprintf(name, sizeof name, PLACE_PIECE_NAME, path, found);
    while (json_object_get(names->files, name) != NULL && ++found < n);
    return found == n;
}

/* NULL: none. */
static const struct record_file *lost_file(const struct names *names,
                                           const struct catalog_entry *entry)
{
    const struct record *r = &entry->record;
    for (uint32_t i = 0; entry->state == BACKUP_WHOLE && i < r->n_files; i++)
        if (!is_listed(names, entry->name, &r->files[i]))
            return &r->files[i];
    return NULL;
}

/* A backup whose record came while the place was listed has files that the list lacks, so what is
 * missing is looked for in a second list. */
static int check_files(struct names *names)
{
    struct catalog *c = names->catalog;
    bool is_new = false;
    for (uint32_t i = 0; i < c->n && names->e->status == EMBD_OK; i++) {
        struct catalog_entry *entry = &c->entries[i];
        const struct record_file *lost = lost_file(names, entry);
        if (lost != NULL && !is_new && c->place->ops->list(c->place, note, names, names->e) == 0) {
            is_new = true;
            lost = lost_file(names, entry);
        }
        if (lost == NULL || names->e->status != EMBD_OK)
            continue;
        entry->state = BACKUP_DAMAGED;
        embd__error_set(&entry->error, EMBD_CORRUPT, "its file %s is missing", lost->name);
    }
    return names->e->status;
}

static int by_age(const void *a, const void *b)
{
    const struct catalog_entry *x = a, *y = b;
    if (x->record.time_s != y->record.time_s)
        return x->record.time_s < y->record.time_s ? -1 : 1;
    if (x->record.sequence != y->record.sequence)
        return x->record.sequence < y->record.sequence ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* A base is as whole as its own base; in the order of age it comes before. */
static void check_base(const struct catalog *c, struct catalog_entry *entry)
{
    const struct record *r = &entry->record;
    if (entry->state != BACKUP_WHOLE || r->base_id == 0)
        return;
    const struct catalog_entry *base = catalog_find(c, r->base);
    bool has = base != NULL && base < entry && base->state == BACKUP_WHOLE &&
               base->record.id == r->base_id && embd__scope_is_same(&base->record.scope, &r->scope);
    if (has)
        return;
    entry->state = BACKUP_DAMAGED;
    embd__error_set(&entry->error, EMBD_CORRUPT,
                    "it needs its base, the backup '%s' of the cut %016" PRIx64
                    ", which is not here or not whole",
                    r->base, r->base_id);
}

int catalog_read(struct place *place, struct catalog *out, struct embd__error *e)
{
    struct names names = {out, json_object(), e};
    *out = (struct catalog){.place = place};
    place->ops->list(place, see, &names, e);
    for (uint32_t i = 0; i < out->n && e->status == EMBD_OK; i++)
        read_entry(out, &out->entries[i], e);
    if (e->status == EMBD_OK)
        check_files(&names);
    json_decref(names.files);
    if (e->status != EMBD_OK) {
        catalog_fini(out);
        return e->status;
    }
    if (out->n > 0)
        qsort(out->entries, out->n, sizeof *out->entries, by_age);
    for (uint32_t i = 0; i < out->n; i++)
        check_base(out, &out->entries[i]);
    return EMBD_OK;
}

void catalog_fini(struct catalog *catalog)
{
    for (uint32_t i = 0; i < catalog->n; i++)
        record_fini(&catalog->entries[i].record);
    free(catalog->entries);
    *catalog = (struct catalog){.n = 0};
}

/* ---- choosing ---- */

int catalog_set_job(struct table_scope *scope, const char *job, struct embd__error *e)
{
    char own[EMBD_NAME_MAX + sizeof JOB_PREFIX];
    bool has_own = job != NULL && strcmp(job, BACKUP_JOB) != 0;
    if (embd__scope_set_job(scope, job ? job : BACKUP_JOB, strlen(job ? job : BACKUP_JOB), e) ||
        !has_own)
        return e->status;
    int n = snprintf(own, sizeof own, JOB_PREFIX "%s", job);
    return embd__scope_set_job(scope, own, (size_t)n, e);
}

const char *catalog_job(const struct record *record)
{
    const char *job = record->scope.job;
    size_t n = strlen(JOB_PREFIX);
    return strncmp(job, JOB_PREFIX, n) == 0 ? job + n : job;
}

const struct catalog_entry *catalog_find(const struct catalog *catalog, const char *name)
{
    return find(catalog, name, strlen(name));
}

const struct catalog_entry *catalog_newest(const struct catalog *catalog,
                                           const struct table_scope *scope, const char *job,
                                           uint64_t until_s)
{
    for (uint32_t i = catalog->n; i-- > 0;) {
        const struct catalog_entry *entry = &catalog->entries[i];
        const struct table_scope *own = &entry->record.scope;
        bool is_of = scope != NULL ? embd__scope_is_same(own, scope) : strcmp(own->job, job) == 0;
        if (entry->state == BACKUP_WHOLE && is_of && entry->record.time_s <= until_s)
            return entry;
    }
    return NULL;
}

const struct catalog_entry *catalog_base(const struct catalog *catalog,
                                         const struct catalog_entry *entry)
{
    /* it comes before what is upon it, and not far */
    for (const struct catalog_entry *base = entry; base-- > catalog->entries;)
        if (entry->record.base_id != 0 && strcmp(base->name, entry->record.base) == 0)
            return base;
    return NULL;
}

/* The one with all rows, which it may be itself. */
const struct catalog_entry *catalog_root(const struct catalog *catalog,
                                         const struct catalog_entry *entry)
{
    for (const struct catalog_entry *base; (base = catalog_base(catalog, entry)) != NULL;)
        entry = base;
    return entry;
}

uint64_t catalog_cluster(const struct catalog *catalog, const char **name_out)
{
    for (uint32_t i = catalog->n; i-- > 0;) {
        const struct catalog_entry *entry = &catalog->entries[i];
        *name_out = entry->name;
        if (entry->state == BACKUP_WHOLE && entry->record.cluster != 0)
            return entry->record.cluster;
    }
    return 0;
}

/* ---- removing ---- */

struct removal {
    const char *name;
    json_t *files; /* names */
};

static int collect(void *arg, const char *file)
{
    struct removal *r = arg;
    size_t n = strlen(r->name);
    if (strncmp(file, r->name, n) != 0 || file[n] != '/')
        return 0;
    return json_array_append_new(r->files, json_string(file)) != 0 ? EMBD_NO_MEMORY : 0;
}

int catalog_remove(struct place *place, const char *name, struct embd__error *e)
{
    struct removal r = {name, json_array()};
    char record[PLACE_NAME_BYTES];
    record_path(record, name, RECORD_FILE);
    if (place->known != NULL)
        json_object_del(place->known->texts, name);
    if (r.files == NULL || place->ops->remove(place, record, e) != EMBD_OK ||
        place->ops->list(place, collect, &r, e) != 0)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to remove the backup '%s'", name);
    for (size_t i = 0; e->status == EMBD_OK && i < json_array_size(r.files); i++)
        place->ops->remove(place, json_string_value(json_array_get(r.files, i)), e);
    json_decref(r.files);
    return e->status;
}

/* The n-th newest base of that job and tables; NULL: there are fewer. */
static const struct catalog_entry *oldest_kept(const struct catalog *c,
                                               const struct table_scope *scope, uint32_t n)
{
    for (uint32_t i = c->n; i-- > 0;) {
        const struct catalog_entry *entry = &c->entries[i];
        bool is_base = entry->state == BACKUP_WHOLE && entry->record.base_id == 0 &&
                       embd__scope_is_same(&entry->record.scope, scope);
        if (is_base && --n == 0)
            return entry;
    }
    return NULL;
}

/* Increments are newer than their bases, so from the newest on no base goes before them. */
static int remove_older(const struct catalog *c, const struct catalog_entry *oldest,
                        uint32_t *n_out, struct embd__error *e)
{
    for (uint32_t i = c->n; oldest != NULL && i-- > 0 && e->status == EMBD_OK;) {
        const struct catalog_entry *entry = &c->entries[i];
        bool goes = entry->state == BACKUP_WHOLE &&
                    embd__scope_is_same(&entry->record.scope, &oldest->record.scope) &&
                    catalog_root(c, entry) < oldest;
        if (goes && catalog_remove(c->place, entry->name, e) == EMBD_OK)
            ++*n_out;
    }
    return e->status;
}

int catalog_keep(struct place *place, const char *made, uint32_t n, uint32_t *n_out,
                 struct embd__error *e)
{
    struct catalog c;
    *n_out = 0;
    if (catalog_read(place, &c, e) != EMBD_OK)
        return e->status;
    const struct catalog_entry *newest = catalog_find(&c, made);
    if (newest != NULL && newest->state == BACKUP_WHOLE)
        remove_older(&c, oldest_kept(&c, &newest->record.scope, n), n_out, e);
    catalog_fini(&c);
    return e->status;
}
