/* rebuild.h - the tables of a moment between two backups, as a snapshot: a server of this machine
 * starts from the backup, replays the records behind it (moment.h), and writes what it has then.
 *
 * The server is one of `inproc:`, in a process of its own: it listens nowhere, and its memory is
 * gone with it. Its tables have to find room in this machine's memory, and three times in its
 * directory. */
#ifndef EMBD_BACKUP_REBUILD_H
#define EMBD_BACKUP_REBUILD_H

#include "client/backup/catalog.h"
#include "proto/stored/ticker.h"

#define REBUILD_NAME "moment" /* of the snapshot that it writes */

struct rebuild {
    char dir[4096 + 16];         /* the server's data directory */
    char placement[8192];        /* its map of keys, as a setting; "": the even one */
    const struct record *record; /* the backup, */
    uint32_t n_kept;             /* shards of it that the server has; */
    uint32_t n_shards;           /* of the moment: those behind n_kept have all in their records */
};

/* Makes `out->dir` below `path`; the caller sets the backup and the shards. EMBD_IO. */
int rebuild_begin(const char *path, struct rebuild *out, struct embd__error *e);

/* One backup of the chain, whose files are in FROM/NAME/SHARE, becomes a snapshot there; those
 * below it come before it. EMBD_IO, EMBD_CORRUPT, EMBD_NO_MEMORY. */
int rebuild_add(struct rebuild *rebuild, const char *from, const struct record *record,
                struct embd__error *e);

/* Runs the server, whose snapshot is DIR/REBUILD_NAME then. `ticker`: asked whether to stop. */
int rebuild_run(const struct rebuild *rebuild, struct ticker *ticker, struct embd__error *e);

/* Removes the directory. */
void rebuild_remove(const struct rebuild *rebuild);

#endif
