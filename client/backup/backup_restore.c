/* backup_restore.c - backup_restore: a backup into a cluster.
 *
 * The happy path: read what lies in the place; choose the backup and those below it, down to one
 * with all rows; compare each with its manifests; from a bucket, read the files into a staging
 * directory, comparing their checksums; where records go on behind the backup, have a server of
 * this machine replay them (rebuild.h); load the directory, which is a chain of snapshots
 * (client/formats/load.c). What can fail: any of it. Nothing of the cluster changes before the load
 * has verified everything, and what the load changes it takes back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/backup/catalog.h"
#include "client/backup/contents.h"
#include "client/backup/moment.h"
#include "client/backup/rebuild.h"
#include "client/backup/staging.h"
#include "client/backup/when.h"
#include "client/formats/table_copy.h"
#include "embd/embd.h"

struct restoring {
    embd_client *client;
    const struct restore_order *order;
    struct place *place;
    struct embd__error *e;
    struct ticker ticker;
    struct when when;       /* order->at, where that is no name */
    struct staging staging; /* path "": none yet */
};

/* ---- which one ---- */

static int refuse(struct restoring *r, const struct catalog_entry *entry)
{
    bool is_cut_off = entry->state == BACKUP_CUT_OFF;
    return embd__error_set(r->e, is_cut_off ? EMBD_CORRUPT : entry->error.status, "%s/%s: %.250s",
                           r->place->url, entry->name,
                           is_cut_off ? "has no backup.json: it is being made, or was cut off"
                                      : entry->error.text);
}

/* The newest one that is not behind the positions, as far as shard 0 tells. */
static const struct catalog_entry *choose_by_positions(struct restoring *r, const struct catalog *c,
                                                       const char *job)
{
    for (const struct catalog_entry *entry = c->entries + c->n; entry-- > c->entries;) {
        struct records_place places[LIMIT_SHARDS];
        if (entry->state != BACKUP_WHOLE || strcmp(entry->record.scope.job, job) != 0)
            continue;
        if (shelf_cut(r->place, &entry->record, places, r->e) != EMBD_OK)
            return NULL;
        if (places[0].position <= r->when.positions[0])
            return entry;
    }
    return NULL;
}

static const struct catalog_entry *choose_by_when(struct restoring *r, const struct catalog *c)
{
    const struct restore_order *o = r->order;
    struct table_scope scope = {.n_names = 0};
    const struct catalog_entry *entry = NULL;
    if (catalog_set_job(&scope, o->job, r->e) != EMBD_OK)
        return NULL;
    if (r->when.n_positions > 0)
        entry = choose_by_positions(r, c, scope.job);
    else
        entry = catalog_newest(c, NULL, scope.job, when_seconds(&r->when));
    if (entry == NULL && r->e->status == EMBD_OK)
        embd__error_set(r->e, EMBD_INVALID, "%s: has no whole backup of the job '%s'%s%s",
                        r->place->url, o->job != NULL ? o->job : BACKUP_JOB,
                        o->at ? " of that time or before: " : "", o->at ? o->at : "");
    return entry;
}

static const struct catalog_entry *choose(struct restoring *r, const struct catalog *c)
{
    const struct restore_order *o = r->order;
    const struct catalog_entry *entry = o->at == NULL ? NULL : catalog_find(c, o->at);
    r->when = (struct when){.ms = UINT64_MAX, .is_name = entry != NULL};
    if (entry != NULL && entry->state != BACKUP_WHOLE) {
        refuse(r, entry);
        return NULL;
    }
    if (entry == NULL && o->at != NULL && !when_read(o->at, &r->when)) {
        embd__error_set(r->e, EMBD_INVALID,
                        "%s: has no backup '%.80s', and that is not a time either, as in "
                        "2026-11-23T18:00:00",
                        r->place->url, o->at);
        return NULL;
    }
    return entry != NULL ? entry : choose_by_when(r, c);
}

/* The damaged ones that `choose` has passed over. The time of some cannot be read. */
static uint32_t n_passed_over(const struct restoring *r, const struct catalog *c,
                              const struct catalog_entry *chosen)
{
    uint32_t n = 0;
    uint64_t until_s = when_seconds(&r->when);
    if (r->when.is_name)
        return 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t time_s = c->entries[i].record.time_s;
        bool is_newer = time_s >= chosen->record.time_s && time_s <= until_s;
        n += c->entries[i].state == BACKUP_DAMAGED && (time_s == 0 || is_newer);
    }
    return n;
}

/* ---- all of it ---- */

static int load(struct restoring *r, const char *directory, const char *name, struct restored *out)
{
    char path[8192];
    const struct restore_order *o = r->order;
    const embd_load_options options =
        EMBD_LOAD_OPTIONS(.tables = o->tables, .n_tables = o->n_tables, .replace = o->replaces,
                          .progress = r->ticker.progress, .arg = r->ticker.arg);
    snprintf(path, sizeof path, "%s/%s", directory, name);
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

static int stage(struct restoring *r)
{
    return r->staging.path[0] ? EMBD_OK : staging_make(r->order->staging, &r->staging, r->e);
}

/* Where the files of the chain lie, which is the place or the staging directory. NULL: r->e. */
static const char *fetch(struct restoring *r, const struct catalog *c,
                         const struct catalog_entry *entry, bool has_all)
{
    struct restore_order all = *r->order;
    all.n_tables = has_all ? 0 : all.n_tables;
    if (check_chain(r, c, entry) != EMBD_OK)
        return NULL;
    if (r->place->dir != NULL)
        return r->place->dir;
    if (stage(r) != EMBD_OK)
        return NULL;
    for (; entry != NULL && r->e->status == EMBD_OK; entry = catalog_base(c, entry))
        staging_fill(&r->staging, &all, &entry->record, &r->ticker, r->e);
    return r->e->status == EMBD_OK ? r->staging.path : NULL;
}

/* ---- with the records behind it ---- */

/* Bases before what is upon them. */
static int add_chain(struct restoring *r, const struct catalog *c,
                     const struct catalog_entry *entry, const char *from, struct rebuild *rebuild)
{
    const struct catalog_entry *base = catalog_base(c, entry);
    if (base != NULL && add_chain(r, c, base, from, rebuild) != EMBD_OK)
        return r->e->status;
    return rebuild_add(rebuild, from, &entry->record, r->e);
}

/* The server has refused the chain, or the records: what is damaged in the place is told by its
 * name there. */
static int name_damage(struct restoring *r, const struct catalog *c,
                       const struct catalog_entry *entry)
{
    struct embd__error found = {0};
    for (; entry != NULL && found.status == EMBD_OK; entry = catalog_base(c, entry))
        for (uint32_t i = 0; i < entry->record.n_files && found.status == EMBD_OK; i++)
            contents_read(r->place, &entry->record, &entry->record.files[i], NULL, NULL, NULL,
                          &found);
    if (found.status == EMBD_CORRUPT)
        *r->e = found;
    return r->e->status;
}

static int replay(struct restoring *r, const struct catalog *c, const struct catalog_entry *entry,
                  struct rebuild *rebuild, struct restored *out)
{
    const char *from = fetch(r, c, entry, true);
    if (from == NULL || add_chain(r, c, entry, from, rebuild) != EMBD_OK)
        return r->e->status;
    if (rebuild_run(rebuild, &r->ticker, r->e) != EMBD_OK)
        return name_damage(r, c, entry);
    return load(r, rebuild->dir, REBUILD_NAME, out);
}

/* Whether there are records for it; they are of all tables. */
static bool wants_records(const struct restoring *r, const struct catalog_entry *entry,
                          const struct shelf *shelf)
{
    return !r->when.is_name && shelf->n > 0 && embd__scope_is_all(&entry->record.scope);
}

/* The whole one of the same tables before it; NULL: none. */
static const struct catalog_entry *older(const struct catalog *c, const struct catalog_entry *entry)
{
    for (const struct catalog_entry *at = entry; at-- > c->entries;)
        if (at->state == BACKUP_WHOLE &&
            embd__scope_is_same(&at->record.scope, &entry->record.scope))
            return at;
    return NULL;
}

/* A backup whose cut was made behind the moment does not do: *entry is the one that does, or the
 * oldest there is. */
static int write_moment(struct restoring *r, const struct catalog *c,
                        const struct catalog_entry **entry, const struct shelf *shelf,
                        const char *dir, struct moment *out)
{
    const struct moment_ask ask = {.until_ms = r->when.ms,
                                   .positions = r->when.positions,
                                   .n_positions = r->when.n_positions,
                                   .goes_back = r->order->at == NULL};
    const struct catalog_entry *next = *entry;
    do {
        *entry = next;
        moment_write(shelf, &next->record, &ask, dir, out, r->e);
        next = out->is_late && r->e->status == EMBD_OK ? older(c, next) : NULL;
    } while (next != NULL);
    if (out->is_late && ask.n_positions > 0)
        embd__error_set(r->e, EMBD_INVALID, "%s: has no whole backup before these records: %s",
                        r->place->url, r->order->at);
    return r->e->status;
}

/* *is_done_out false: there are no records behind the backup. */
static int load_moment(struct restoring *r, const struct catalog *c,
                       const struct catalog_entry **entry, const struct shelf *shelf,
                       struct restored *out, bool *is_done_out)
{
    struct rebuild rebuild;
    struct moment moment;
    *is_done_out = false;
    if (stage(r) != EMBD_OK || rebuild_begin(r->staging.path, &rebuild, r->e) != EMBD_OK)
        return r->e->status;
    write_moment(r, c, entry, shelf, rebuild.dir, &moment);
    rebuild.record = &(*entry)->record;
    rebuild.n_shards = moment.n_shards;
    rebuild.n_kept = moment.n_kept;
    *is_done_out = r->e->status == EMBD_OK && moment.n_records > 0;
    out->n_records = moment.n_records;
    out->n_left_out = moment.n_left_out;
    out->records_ms = moment.ms;
    out->went_back = moment.went_back;
    if (*is_done_out)
        replay(r, c, *entry, &rebuild, out);
    rebuild_remove(&rebuild);
    return r->e->status;
}

static int load_chosen(struct restoring *r, const struct catalog *c,
                       const struct catalog_entry *entry, struct restored *out)
{
    struct shelf shelf;
    bool is_done = false;
    if (shelf_read(r->place, &shelf, r->e) != EMBD_OK)
        return r->e->status;
    if (wants_records(r, entry, &shelf))
        load_moment(r, c, &entry, &shelf, out, &is_done);
    shelf_fini(&shelf);
    const char *from = r->e->status == EMBD_OK && !is_done ? fetch(r, c, entry, false) : NULL;
    if (from != NULL)
        load(r, from, entry->name, out);
    memcpy(out->name, entry->name, sizeof out->name);
    return r->e->status;
}

static int restore(struct restoring *r, struct restored *out)
{
    struct catalog c;
    if (catalog_read(r->place, &c, r->e) != EMBD_OK)
        return r->e->status;
    const struct catalog_entry *entry = choose(r, &c);
    if (entry != NULL) {
        out->n_passed_over = n_passed_over(r, &c, entry);
        r->ticker.rows_total = entry->record.rows;
        load_chosen(r, &c, entry, out);
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
    if (r.staging.path[0] != '\0')
        staging_remove(&r.staging);
    place_close(r.place);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status;
}
