/* backup_restore.c - backup_restore: a backup into a cluster.
 *
 * The happy path: read what lies in the place; choose the backup and those below it, down to one
 * with all rows; compare each with its manifests; from a bucket, read the files into a staging
 * directory, comparing their checksums; load the directory, which is a chain of snapshots
 * (client/formats/load.c). What can fail: any of it. Nothing of the cluster changes before the load
 * has verified everything, and what the load changes it takes back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/backup/catalog.h"
#include "client/backup/contents.h"
#include "client/backup/staging.h"
#include "client/formats/table_copy.h"
#include "embd/embd.h"

struct restoring {
    embd_client *client;
    const struct restore_order *order;
    struct place *place;
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
            time_t seconds = timegm(&tm);
            *out = seconds > 0 ? (uint64_t)seconds : 0; /* 26-11-23 is in the year 26 */
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
    struct table_scope scope = {.n_names = 0};
    const struct catalog_entry *entry = o->at == NULL ? NULL : catalog_find(c, o->at);
    if (entry != NULL && entry->state != BACKUP_WHOLE) {
        refuse(r, entry);
        return NULL;
    }
    if (entry == NULL && o->at != NULL && !read_time(o->at, &until_s)) {
        embd__error_set(r->e, EMBD_INVALID,
                        "%s: has no backup '%.80s', and that is not a time either, as in "
                        "2026-11-23T18:00:00",
                        r->place->url, o->at);
        return NULL;
    }
    if (entry == NULL && catalog_set_job(&scope, o->job, r->e) == EMBD_OK)
        entry = catalog_newest(c, NULL, scope.job, until_s);
    if (entry == NULL && r->e->status == EMBD_OK)
        embd__error_set(r->e, EMBD_INVALID, "%s: has no whole backup of the job '%s'%s%s",
                        r->place->url, job, o->at ? " of that time or before: " : "",
                        o->at ? o->at : "");
    return entry;
}

/* The damaged ones that `choose` has passed over. The time of some cannot be read. */
static uint32_t n_passed_over(const struct restore_order *o, const struct catalog *c,
                              const struct catalog_entry *chosen)
{
    uint32_t n = 0;
    uint64_t until_s = UINT64_MAX;
    if (o->at != NULL && catalog_find(c, o->at) != NULL)
        return 0;
    if (o->at != NULL)
        read_time(o->at, &until_s);
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t time_s = c->entries[i].record.time_s;
        bool is_newer = time_s >= chosen->record.time_s && time_s <= until_s;
        n += c->entries[i].state == BACKUP_DAMAGED && (time_s == 0 || is_newer);
    }
    return n;
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
    struct staging staging;
    if (staging_make(r->order->staging, &staging, r->e) != EMBD_OK)
        return r->e->status;
    for (const struct catalog_entry *at = entry; at != NULL && r->e->status == EMBD_OK;
         at = catalog_base(c, at))
        staging_fill(&staging, r->order, &at->record, &r->ticker, r->e);
    if (r->e->status == EMBD_OK)
        load(r, staging.path, &entry->record, out);
    staging_remove(&staging);
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
        out->n_passed_over = n_passed_over(r->order, &c, entry);
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
