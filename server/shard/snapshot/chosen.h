/* chosen.h - which snapshot of its data directory a process begins with.
 *
 * One for all its shards. It is opened before they are; chosen_find, on a thread of its own, reads
 * every byte of what might be taken while they replay their journals; they wait for its verdict. */
#ifndef EMBD_SHARD_CHOSEN_H
#define EMBD_SHARD_CHOSEN_H

#include "server/shard/snapshot/peers.h"
#include "server/shard/snapshot/snapshot.h"

struct chosen_config {
    const char *data_dir;
    const char *name;                       /* this one or none; NULL: the newest that verifies */
    bool is_off;                            /* none */
    uint32_t first_shard, shards, n_shards; /* of the process, of the cluster */
    const struct peer *peers;               /* [n_peers] the cluster's other processes */
    uint32_t n_peers;
};

enum chosen_state {
    CHOSEN_LOOKING,
    CHOSEN_NONE, /* there is none, or none that can be taken: the log said why */
    CHOSEN_ONE,
    CHOSEN_FAILED, /* the one that was named */
};

struct chosen;

/* Reads the list of snapshots. What cannot be read is passed over, with a line on standard error.
 * What the config points to outlives it. EMBD_IO, EMBD_NO_MEMORY. */
int chosen_open(const struct chosen_config *config, struct chosen **out, struct embd__error *e);
/* Comes to a verdict; once. Any thread. */
void chosen_find(struct chosen *chosen);
/* It ends soon, without one. Any thread. */
void chosen_stop(struct chosen *chosen);
/* chosen_find is over, and no shard is loading. NULL is allowed. */
void chosen_free(struct chosen *chosen);

/* All of these: any thread; `chosen` may be NULL where there is no data directory. */
enum chosen_state chosen_state(const struct chosen *chosen);
/* Of CHOSEN_FAILED. */
const struct embd__error *chosen_why(const struct chosen *chosen);
/* Of CHOSEN_ONE: the snapshot and what it is upon, each of one share, and it has a part of every
 * table for each shard of the process; the same until chosen_free. */
const struct dump_chain *chosen_chain(const struct chosen *chosen);
/* The snapshot that is looked at, or was chosen; "" where there is none. */
const char *chosen_name(const struct chosen *chosen);
/* Bytes of it that were compared, of all. */
void chosen_progress(const struct chosen *chosen, uint64_t *done_bytes_out,
                     uint64_t *total_bytes_out);
/* All there are, the newest first. */
const struct snapshot_list *chosen_list(const struct chosen *chosen);

#endif
