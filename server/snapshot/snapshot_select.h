/* snapshot_select.h - which snapshot of its data directory a process begins with.
 *
 * One for all its shards. It is opened before they are; snapshot_select_find, on a thread of its
 * own, reads every byte of what might be taken while they replay their journals; they wait for its
 * verdict. */
#ifndef EMBD_SNAPSHOT_SELECT_H
#define EMBD_SNAPSHOT_SELECT_H

#include "server/snapshot/peer_shares.h"
#include "server/snapshot/snapshot.h"

struct dump_chain;

struct snapshot_select_config {
    const char *data_dir;
    const char *name;                       /* this one or none; NULL: the newest that verifies */
    bool is_off;                            /* none */
    uint32_t first_shard, shards, n_shards; /* of the process, of the cluster */
    const struct peer_share *peers;         /* [n_peers] the cluster's other processes */
    uint32_t n_peers;
};

enum snapshot_select_state {
    SNAPSHOT_SELECT_LOOKING,
    SNAPSHOT_SELECT_NONE, /* none, or none that can be used: the log said why */
    SNAPSHOT_SELECT_ONE,
    SNAPSHOT_SELECT_FAILED, /* the one that was named */
};

struct snapshot_select;

/* Reads the list of snapshots. What cannot be read is passed over, with a line in the log.
 * What the config points to outlives it. EMBD_IO, EMBD_NO_MEMORY. */
int snapshot_select_open(const struct snapshot_select_config *config, struct snapshot_select **out,
                         struct embd__error *e);
/* Comes to a verdict; once. Any thread. */
void snapshot_select_find(struct snapshot_select *chosen);
/* It ends soon, without one. Any thread. */
void snapshot_select_stop(struct snapshot_select *chosen);
/* snapshot_select_find is over, and no shard is loading. NULL is allowed. */
void snapshot_select_free(struct snapshot_select *chosen);

/* All of these: any thread; `chosen` may be NULL without a data directory. */
enum snapshot_select_state snapshot_select_state(const struct snapshot_select *chosen);
/* Of SNAPSHOT_SELECT_FAILED. */
const struct embd__error *snapshot_select_why(const struct snapshot_select *chosen);
/* After SNAPSHOT_SELECT_ONE: the snapshot and its bases, each of one share, with a part of every
 * table for each shard of the process; valid until snapshot_select_free. */
const struct dump_chain *snapshot_select_chain(const struct snapshot_select *chosen);
/* The snapshot being checked, or the chosen one; "": none. */
const char *snapshot_select_name(const struct snapshot_select *chosen);
/* Bytes of it that were compared, of all. */
void snapshot_select_progress(const struct snapshot_select *chosen, uint64_t *done_bytes_out,
                              uint64_t *total_bytes_out);
/* All there are, the newest first. */
const struct snapshot_list *snapshot_select_list(const struct snapshot_select *chosen);

#endif
