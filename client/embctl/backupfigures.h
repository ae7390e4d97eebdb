/* backupfigures.h - what came of the last backup, as a file for Prometheus (node_exporter's
 * textfile collector): embctl is gone when it is scraped. */
#ifndef EMBCTL_BACKUPFIGURES_H
#define EMBCTL_BACKUPFIGURES_H

#include "client/backup/backup.h"

/* Replaces the file `path`. `made` NULL: the backup failed; the time of the last success stays, if
 * the file has it. Returns an exit code. */
int backup_figures_write(const char *path, const char *place, const struct backup_made *made,
                         uint64_t elapsed_us);

#endif
