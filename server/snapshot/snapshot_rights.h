/* snapshot_rights.h - what a trainer's token may do with snapshots: those of a job under its
 * prefixes, of tables under its prefixes, called by a name under its prefixes. A server that makes
 * one for a token may do the rest of it, and no more; so each server checks what the coordinating
 * one has checked. Admins may do everything. All return EMBD_OK, or EMBD_DENIED naming what is not
 * covered. */
#ifndef EMBD_SNAPSHOT_RIGHTS_H
#define EMBD_SNAPSHOT_RIGHTS_H

#include "server/snapshot/snapshot.h"
#include "server/service/state.h"

/* Of a snapshot to be made, or a share of one: its names, its job and each of its tables. `base`:
 * "": none. */
int snapshot_check_rights(struct call *call, const char *name, const char *base,
                          const struct table_scope *scope);
/* Of a cut whose rows are fetched: an admin's dump. */
int snapshot_check_read(struct call *call);
/* Of files that are fetched: an admin's backup. */
int snapshot_check_fetch(struct call *call);
/* A phase that goes on with what was begun here as `name`. */
int snapshot_check_begun(struct call *call, const char *name);
/* A blob of the snapshot that is being made. */
int snapshot_check_blob(struct call *call, const char *name);
/* Only the newest of that job stay. */
int snapshot_check_keep(struct call *call, const char *name, const char *job);

/* " 'NAME'", where the peer may know of a snapshot of that name; else "". A NULL `call` is the
 * server's own. */
struct shown_name {
    char text[SNAPSHOT_NAME_MAX + 4];
};
struct shown_name snapshot_shown_name(const struct call *call, const char *name);

#endif
