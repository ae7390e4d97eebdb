/* identity_file.h - `identity.json`, which says whose a data directory is, and `identity.lock`,
 * which one server has at a time. */
#ifndef EMBD_IDENTITY_FILE_H
#define EMBD_IDENTITY_FILE_H

#include "proto/errors.h"
#include "proto/placement.h"
#include "proto/shard_entry.h"
#include "server/identity/judge.h"

#define IDENTITY_ACCEPTED_MAX 16u

struct identity_known {
    uint64_t epoch, start; /* 0: not met */
};

struct identity_acceptance {
    char when[32]; /* UTC */
    char why[256];
};

struct identity_file {
    bool is_there;
    struct identity_own own; /* has_journal is the directory's */
    char server[64];
    uint32_t first_shard, n_shards, cluster_shards;
    struct identity_known *known; /* [LIMIT_SHARDS], by a server's first shard; malloc'd */
    uint64_t history;             /* see identity_tell_history; 0: of an earlier version */
    bool has_placement;           /* else it is the even map, of version 1: */
    struct placement placement;
    /* Shards that were added while servers ran, and behind cluster_shards those that may be: the
     * configuration may not have them. */
    struct shard_entry *members; /* [n_members] of shard first_member and those behind; malloc'd */
    uint32_t first_member, n_members;
    uint32_t most_shards; /* that the cluster had before some left; 0: none have */
    bool joins;           /* it is no member of the cluster yet */
    bool has_left;        /* nor any more */
    bool is_moved;        /* keys were moved to it: the configuration's map is an earlier one */
    bool is_moving;       /* keys moved, and rows of other shards' keys may still be here */
    uint32_t n_accepted;  /* ever; the last of them are kept: */
    struct identity_acceptance accepted[IDENTITY_ACCEPTED_MAX];
};

/* *lock_out: closed, it is given up. EMBD_IO: another server has it, or it cannot be made. */
int identity_lock(int dir, const char *path, int *lock_out, struct embd__error *e);

/* is_there false if there is none; then `known` is NULL. EMBD_CORRUPT, EMBD_IO, EMBD_NO_MEMORY. */
int identity_file_read(int dir, const char *path, struct identity_file *out, struct embd__error *e);
void identity_file_fini(struct identity_file *file);
/* On disk when this returns EMBD_OK; as it was otherwise. EMBD_IO, EMBD_NO_MEMORY. */
int identity_file_write(int dir, const struct identity_file *file, struct embd__error *e);

/* Whether there are journals of a shard in the range, or of any other: then *other_out is one. */
int identity_find_journals(int dir, uint32_t first_shard, uint32_t n_shards, bool *own_out,
                           int64_t *other_out, struct embd__error *e);

#endif
