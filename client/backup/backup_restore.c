/* backup_restore.c - backup_restore: a backup into a cluster.
 *
 * The happy path: read what lies in the place; choose the backup and those below it, down to one
 * with all rows; compare each with its manifests; from a bucket, read the files into a staging
 * directory, comparing their checksums; load the directory, which is a chain of snapshots
 * (client/formats/load.c). What can fail: any of it. Nothing of the cluster changes before the load
 * has verified everything, and what the load changes it takes back. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "client/backup/catalog.h"
#include "client/backup/contents.h"
#include "client/formats/table_copy.h"
#include "embd/embd.h"

struct restoring {
    embd_client *client;
    const struct restore_order *order;
    struct place *place;
    struct place *staged; /* NULL: the place is a directory itself */
    struct embd__error *e;
    struct ticker ticker;
};

/* ---- which one ---- */

/* 2026-11-23, 2026-11-23T18:00, ...T18:00:30, with or without a Z; or @SECONDS. */
static bool read_time(const char *text, uint64_t *out)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
    char *end = NULL;
    if (text[0] == '@' && text[1] >= '0' && text[1] <= '9') {
        *out = strtoull(text + 1, &end, 10);
        return *end == '\0';
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm tm = {0};
        const char *rest = strptime(text, forms[i], &tm);
        if (rest != NULL && (*rest == '\0' || strcmp(rest, "Z") == 0)) {
            *out = (uint64_t)timegm(&tm);
            return true;
        }
    }
    return false;
}

static int refuse(struct restoring *r, const struct catalog_entry *entry)
{
    bool is_cut_off = entry->state == BACKUP_CUT_OFF;
    return embd__error_set(r->e, is_cut_off ? EMBD_CORRUPT : entry->error.status, "%s/%s: %.250s",
                           r->place->url, entry->name,
                           is_cut_off ? "has no backup.json: it is being made, or was cut off"
                                      : entry->error.text);
}

static const struct catalog_entry *choose(struct restoring *r, const struct catalog *c)
{
    const struct restore_order *o = r->order;
    const char *job = o->job != NULL ? o->job : BACKUP_JOB;
    uint64_t until_s = UINT64_MAX;
    const struct catalog_entry *entry = o->at == NULL ? NULL : catalog_find(c, o->at);
    if (entry != NULL && entry->state != BACKUP_WHOLE) {
        refuse(r, entry);
        return NULL;
    }
    if (entry == NULL && o->at != NULL && !read_time(o->at, &until_s)) {
        embd__error_set(r->e, EMBD_INVALID,
                        "%s: has no backup '%.80s', which is no time either, as in "
                        "2026-11-23T18:00:00",
                        r->place->url, o->at);
        return NULL;
    }
    if (entry == NULL)
        entry = catalog_newest(c, NULL, job, until_s);
    if (entry == NULL)
        embd__error_set(r->e, EMBD_INVALID, "%s: has no whole backup of the job '%s'%s%s",
                        r->place->url, job, o->at ? " of that time or before: " : "",
                        o->at ? o->at : "");
    return entry;
}

/* ---- from a bucket ---- */

struct copying {
    struct restoring *r;
    char path[PLACE_NAME_BYTES];
};

static int put(void *arg, uint32_t piece, bool is_last, const void *data, size_t bytes)
{
    struct copying *c = arg;
    struct place *to = c->r->staged;
    return to->ops->put(to, c->path, piece, is_last, data, bytes, c->r->e);
}

/* Parts of tables that are not restored stay where they are. */
static bool is_wanted(const struct restore_order *o, const char *file)
{
    const char *name = strchr(file, '/') + 1;
    size_t n = strlen(name);
    bool is_part = n > 5 && strcmp(name + n - 5, ".part") == 0, wanted = !is_part || !o->n_tables;
    for (uint32_t i = 0; i < o->n_tables; i++) {
        size_t n_table = strlen(o->tables[i]);
        wanted = wanted || (strncmp(name, o->tables[i], n_table) == 0 && name[n_table] == '.');
    }
    return wanted;
}

static int copy_backup(struct restoring *r, const struct record *record)
{
    struct copying c = {.r = r};
    for (uint32_t i = 0; i < record->n_files && r->e->status == EMBD_OK; i++) {
        const struct record_file *file = &record->files[i];
        if (!is_wanted(r->order, file->name))
            continue;
        record_path(c.path, record->name, file->name);
        contents_read(r->place, record, file, put, &c, &r->ticker, r->e);
    }
    return r->e->status;
}

/* A new directory, which its owner alone may read. */
static int stage(struct restoring *r, char *path, size_t path_bytes)
{
    const char *tmp = getenv("TMPDIR"), *in = r->order->staging;
    if (in == NULL)
        in = tmp != NULL && *tmp ? tmp : "/tmp";
    int n = snprintf(path, path_bytes, "%s/embd-restore-XXXXXX", in);
    if (n >= (int)path_bytes || mkdtemp(path) == NULL)
        return embd__error_set(r->e, EMBD_IO, "%s: cannot create a directory there: %s", in,
                               strerror(errno));
    return place_open_directory(path, false, &r->staged, r->e);
}

static int note(void *arg, const char *name)
{
    return json_array_append_new(arg, json_string(name));
}

static void unstage(struct restoring *r, const char *path)
{
    struct embd__error ignored = {0};
    json_t *names = json_array();
    r->staged->ops->list(r->staged, note, names, &ignored);
    for (size_t i = 0; i < json_array_size(names); i++)
        r->staged->ops->remove(r->staged, json_string_value(json_array_get(names, i)), &ignored);
    json_decref(names);
    r->staged->ops->close(r->staged);
    rmdir(path);
}

/* ---- all of it ---- */

static int load(struct restoring *r, const char *directory, const struct record *record,
                struct restored *out)
{
    char path[8192];
    const struct restore_order *o = r->order;
    const embd_load_options options =
        EMBD_LOAD_OPTIONS(.tables = o->tables, .n_tables = o->n_tables, .replace = o->replaces,
                          .progress = r->ticker.progress, .arg = r->ticker.arg);
    snprintf(path, sizeof path, "%s/%s", directory, record->name);
    int status = embd_load_tables(r->client, path, &options, &out->report);
    const struct embd__error *theirs = embd__copy_error(r->client);
    if (status != EMBD_OK)
        embd__error_set(r->e, status, "%s", theirs->status ? theirs->text : embd_error_text());
    return r->e->status;
}

static int check_chain(struct restoring *r, const struct catalog *c,
                       const struct catalog_entry *entry)
{
    for (; entry != NULL && r->e->status == EMBD_OK; entry = catalog_base(c, entry))
        contents_check(r->place, &entry->record, r->e);
    return r->e->status;
}

static int load_staged(struct restoring *r, const struct catalog *c,
                       const struct catalog_entry *entry, struct restored *out)
{
    char path[4096];
    if (stage(r, path, sizeof path) != EMBD_OK)
        return r->e->status;
    for (const struct catalog_entry *at = entry; at != NULL && r->e->status == EMBD_OK;
         at = catalog_base(c, at))
        copy_backup(r, &at->record);
    if (r->e->status == EMBD_OK)
        load(r, path, &entry->record, out);
    unstage(r, path);
    return r->e->status;
}

static int restore(struct restoring *r, struct restored *out)
{
    struct catalog c;
    if (catalog_read(r->place, &c, r->e) != EMBD_OK)
        return r->e->status;
    const struct catalog_entry *entry = choose(r, &c);
    if (entry != NULL && check_chain(r, &c, entry) == EMBD_OK) {
        memcpy(out->name, entry->name, sizeof out->name);
        r->ticker.rows_total = entry->record.rows;
        if (r->place->dir != NULL)
            load(r, r->place->dir, &entry->record, out);
        else
            load_staged(r, &c, entry, out);
    }
    catalog_fini(&c);
    return r->e->status;
}

int backup_restore(embd_client *client, const struct restore_order *order, embd_progress *progress,
                   void *arg, struct restored *out, struct backup_why *why)
{
    struct embd__error e = {0};
    struct restoring r = {.client = client, .order = order, .e = &e};
    *out = (struct restored){.name = ""};
    embd__ticker_begin(&r.ticker, progress, arg, 0);
    if (place_open(&order->from, false, &r.place, &e) == EMBD_OK)
        restore(&r, out);
    place_close(r.place);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status;
}
