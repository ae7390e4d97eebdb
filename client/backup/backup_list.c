/* backup_list.c - backup_list and backup_is_place: what lies in a place. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/backup/catalog.h"
#include "embd/embd.h"

int backup_list(const struct backup_where *where,
                int (*visit)(void *arg, const struct backup_seen *seen), void *arg,
                struct backup_why *why)
{
    struct embd__error e = {0};
    struct place *place = NULL;
    struct catalog c = {.n = 0};
    int stop = 0;
    if (place_open(where, false, &place, &e) == EMBD_OK)
        catalog_read(place, &c, &e);
    for (uint32_t i = 0; i < c.n && !stop; i++) {
        const struct catalog_entry *entry = &c.entries[i];
        const struct record *r = &entry->record;
        const struct backup_seen seen = {entry->name,     r->base,     catalog_job(r),
                                         entry->state,    r->time_s,   r->rows,
                                         record_bytes(r), r->n_shards, entry->error.text};
        stop = visit(arg, &seen);
    }
    catalog_fini(&c);
    place_close(place);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status ? e.status : stop;
}

/* Whether the entry of the directory is a backup. */
static bool is_backup(const char *url, const struct dirent *entry)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s/" RECORD_FILE, url, entry->d_name);
    return entry->d_name[0] != '.' && n < (int)sizeof path && access(path, F_OK) == 0;
}

/* No directory, no place: the check of a dump says so. */
static int find_backup(const char *url, bool *is_out, struct embd__error *e)
{
    struct dirent *entry = NULL;
    errno = 0;
    DIR *list = opendir(url);
    for (; list != NULL && !*is_out && (entry = readdir(list)) != NULL; errno = 0)
        *is_out = is_backup(url, entry);
    if (entry == NULL && errno != 0 && errno != ENOENT && errno != ENOTDIR)
        embd__error_set(e, EMBD_IO, "%s: cannot read the directory: %s", url, strerror(errno));
    if (list != NULL)
        closedir(list);
    return e->status;
}

int backup_is_place(const char *url, bool *is_out, struct backup_why *why)
{
    struct embd__error e = {0};
    *is_out = strstr(url, "://") != NULL;
    if (!*is_out)
        find_backup(url, is_out, &e);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status;
}
