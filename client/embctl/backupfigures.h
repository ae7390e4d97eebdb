/* backupfigures.h - what came of the last backup, as a file for Prometheus (node_exporter's
 * textfile collector): embctl is gone when it is scraped, or serves nobody. */
#ifndef EMBCTL_BACKUPFIGURES_H
#define EMBCTL_BACKUPFIGURES_H

#include "client/backup/backup.h"

struct backup_figures {
    const char *place;
    const struct backup_made *made; /* NULL: it failed */
    uint64_t elapsed_us;
    uint32_t n_failed;   /* since the last one that was complete */
    double every_s;      /* 0: it is not one of a sequence */
    bool has_records;    /* records between backups are kept, */
    uint64_t records_ms; /* and those of before are there; 0: none yet */
    bool is_again;       /* the backup was told before: what is new is `records_ms` */
};

/* Replaces the file `path`. Where the backup failed, what the file has of the last complete one
 * stays. Returns an exit code. */
int backup_figures_write(const char *path, const struct backup_figures *figures);

#endif
