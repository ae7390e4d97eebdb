/* shares.h - the manifests of all processes that a backup has, as one: what a server with all of
 * their shards starts from. */
#ifndef EMBD_BACKUP_SHARES_H
#define EMBD_BACKUP_SHARES_H

#include "client/backup/record.h"

#define SHARES_MANIFEST "manifest.json"

/* Text, malloc'd, of the manifests FROM/NAME/SHARE/manifest.json; its base is the one that was made
 * so before, in DIR. `n_kept`: of its shards these alone, with the even map of keys, unless it is
 * record->n_shards. `placement`: the cluster's map as a setting, "" for the even one. NULL:
 * EMBD_IO, EMBD_CORRUPT, EMBD_NO_MEMORY. */
char *shares_join(const char *dir, const char *from, const struct record *record, uint32_t n_kept,
                  char *placement, size_t placement_bytes, struct embd__error *e);

#endif
