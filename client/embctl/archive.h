/* archive.h - backups for embctl backup: one, or one every so often (--every). */
#ifndef EMBCTL_ARCHIVE_H
#define EMBCTL_ARCHIVE_H

#include <sys/types.h>

#include "client/backup/backup.h"

/* Makes one. An error is told on stderr; returns an exit code. */
int archive_make(const struct backup_order *order, struct backup_made *made,
                 uint64_t *elapsed_us_out);
void archive_print(const char *place, const struct backup_made *made, uint64_t elapsed_us);

struct archive_options {
    double every_s;
    double records_s;    /* between two files of records that come between backups; 0: none */
    const char *figures; /* a file, written after each backup; NULL: none */
    pid_t parent;        /* it ends with this process, which has started it; 0: it does not */
};

/* Until a signal ends it. Returns an exit code. */
int archive_run(struct backup_order *order, const struct archive_options *options);

#endif
