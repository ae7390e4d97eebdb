/* backup_list.c - backup_list and backup_is_place: what lies in a place. */
#include <dirent.h>
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

bool backup_is_place(const char *url)
{
    char path[4096];
    if (strstr(url, "://") != NULL)
        return true;
    DIR *list = opendir(url);
    bool is = false;
    for (struct dirent *entry; list != NULL && !is && (entry = readdir(list)) != NULL;) {
        int n = snprintf(path, sizeof path, "%s/%s/" RECORD_FILE, url, entry->d_name);
        is = entry->d_name[0] != '.' && n < (int)sizeof path && access(path, F_OK) == 0;
    }
    if (list != NULL)
        closedir(list);
    return is;
}
