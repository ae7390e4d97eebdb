/* archive.h - backups for embctl backup: one, or one every so often (--every). */
#ifndef EMBCTL_ARCHIVE_H
#define EMBCTL_ARCHIVE_H

#include "client/backup/backup.h"

/* Makes one. An error is told on stderr; returns an exit code. */
int archive_make(const struct backup_order *order, struct backup_made *made,
                 uint64_t *elapsed_us_out);
void archive_print(const char *place, const struct backup_made *made, uint64_t elapsed_us);

/* Until a signal ends it. `figures`: a file, written after each; NULL: none. Returns an exit code.
 */
int archive_run(struct backup_order *order, double every_s, const char *figures);

#endif
