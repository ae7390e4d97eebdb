/* snapshot_select.h - which snapshots of its data directory a process begins with.
 *
 * The same for all its shards. They are listed before the shards open; snapshot_select_find, on a
 * thread of its own, reads every byte of what might be taken while they replay their journals; they
 * wait for its verdict.
 *
 * A snapshot of all tables decides about every table; one of some tables decides about those that
 * it covers. The newest that covers a table and verifies decides: the table is as it is there, or
 * does not exist. So the choice ends with the newest snapshot of all tables. */
#ifndef EMBD_SNAPSHOT_SELECT_H
#define EMBD_SNAPSHOT_SELECT_H

#include "server/snapshot/peer_shares.h"
#include "server/snapshot/snapshot.h"

struct dump_chain;

struct snapshot_select_config {
    const char *data_dir;
    const char *name;                       /* this one first, or none; NULL: the newest first */
    bool is_off;                            /* none */
    uint32_t first_shard, shards, n_shards; /* of the process, of the cluster */
    const struct placement *placement;      /* which shard has which keys; NULL: the even map */
    const struct peer_share *peers;         /* [n_peers] the cluster's other processes */
    uint32_t n_peers;
};

enum snapshot_select_state {
    SNAPSHOT_SELECT_LOOKING,
    SNAPSHOT_SELECT_NONE, /* none, or none that can be used: the log said why */
    SNAPSHOT_SELECT_FOUND,
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
/* The snapshot being checked; "": none. */
const char *snapshot_select_name(const struct snapshot_select *chosen);
/* Bytes of it that were compared, of all. */
void snapshot_select_progress(const struct snapshot_select *chosen, uint64_t *done_bytes_out,
                              uint64_t *total_bytes_out);

/* After SNAPSHOT_SELECT_FOUND: the snapshots that were chosen. Of several, all but the last are of
 * some tables; what an earlier one covers, a later one does not decide about. */
uint32_t snapshot_select_count(const struct snapshot_select *chosen);
const char *snapshot_select_chosen(const struct snapshot_select *chosen, uint32_t i);
/* With its bases, each of one share, with a part of every table for each shard of the process;
 * valid until snapshot_select_free. */
const struct dump_chain *snapshot_select_chain(const struct snapshot_select *chosen, uint32_t i);
/* Whether number i decides about the table. */
bool snapshot_select_decides(const struct snapshot_select *chosen, uint32_t i, const char *table);
/* The id of the cut; of several, a number that no other choice has. */
uint64_t snapshot_select_cut(const struct snapshot_select *chosen);

/* All there are, the newest first. */
const struct snapshot_list *snapshot_select_list(const struct snapshot_select *chosen);

#endif
