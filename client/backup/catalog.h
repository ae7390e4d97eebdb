/* catalog.h - the backups that lie in a place. */
#ifndef EMBD_BACKUP_CATALOG_H
#define EMBD_BACKUP_CATALOG_H

#include "client/backup/record.h"

struct catalog_entry {
    char name[SNAPSHOT_NAME_MAX + 1];
    bool has_record; /* backup.json exists */
    enum backup_state state;
    struct record record;     /* WHOLE; of one that lacks its base too */
    struct embd__error error; /* DAMAGED: why */
};

struct catalog {
    struct place *place;
    struct catalog_entry *entries; /* [n], the oldest first; those without a record before */
    uint32_t n;
};

/* Reads every backup.json. EMBD_IO, EMBD_NO_MEMORY: of the place; *out is zero then. */
int catalog_read(struct place *place, struct catalog *out, struct embd__error *e);
void catalog_fini(struct catalog *catalog);

/* The job of snapshots for backups of `job` (NULL: BACKUP_JOB). EMBD_INVALID: it is not a name. */
int catalog_set_job(struct table_scope *scope, const char *job, struct embd__error *e);
/* The job that catalog_set_job was given; BACKUP_JOB for NULL. */
const char *catalog_job(const struct record *record);

/* NULL: there is none. */
const struct catalog_entry *catalog_find(const struct catalog *catalog, const char *name);
/* The newest whole one of the same job and tables, or of `job` (scope NULL), that is not later than
 * `until_s`. */
const struct catalog_entry *catalog_newest(const struct catalog *catalog,
                                           const struct table_scope *scope, const char *job,
                                           uint64_t until_s);
/* Of a whole one; NULL: it has all rows. */
const struct catalog_entry *catalog_base(const struct catalog *catalog,
                                         const struct catalog_entry *entry);
/* The one with all rows, which it may be itself. */
const struct catalog_entry *catalog_root(const struct catalog *catalog,
                                         const struct catalog_entry *entry);

/* The cluster of the newest whole one that tells it, whatever its scope; 0: none does. *name_out:
 * that one. */
uint64_t catalog_cluster(const struct catalog *catalog, const char **name_out);

/* Removes every file of `name`: backup.json first, so that it does not count as a backup from then
 * on. */
int catalog_remove(struct place *place, const char *name, struct embd__error *e);

/* After `made`: of its job and tables only the `n` newest bases stay, and their increments. *n_out:
 * backups that went. What was cut off stays: another program may be making it. */
int catalog_keep(struct place *place, const char *made, uint32_t n, uint32_t *n_out,
                 struct embd__error *e);

#endif
