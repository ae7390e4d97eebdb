/* cuts_known.h - the cuts of a shard since which its stores note what changes: those that a
 * snapshot may be upon. Of snapshots of one job and list of tables the last CUTS_KNOWN, as each
 * store keeps them; a job's snapshots do not make others forgotten. */
#ifndef EMBD_SNAPSHOT_CUTS_KNOWN_H
#define EMBD_SNAPSHOT_CUTS_KNOWN_H

#include "proto/scope.h"

#define CUTS_KNOWN  7u /* a store keeps this many, and one that is being made */
#define CUTS_LISTED 64u

/* Zeroed: none. */
struct cuts_known {
    uint32_t n;
    struct {
        uint64_t id, scope;
    } list[CUTS_LISTED]; /* [n], the last one last */
};

/* Id 0, and one that is there, add nothing. */
void cuts_known_add(struct cuts_known *cuts, uint64_t id, const struct table_scope *scope);
bool cuts_known_has(const struct cuts_known *cuts, uint64_t id);

#endif
