/* parts.h - the parts that shards wrote for a snapshot, as the coordinator passes them on. */
#ifndef EMBD_COORDINATOR_PARTS_H
#define EMBD_COORDINATOR_PARTS_H

#include "server/coordinator/job.h"
#include "proto/partfile.h"

struct written_part {
    char table[EMBD_NAME_MAX + 1];
    struct manifest_part part;
    uint64_t step;
    bool is_left_out; /* of a table that is on some shards only */
};

/* Marks the parts of tables that are on some shards only: their creation has not come to the
 * others, or one of them has lost them. With such a table a snapshot could not be loaded. Of a
 * snapshot of all tables they are left out, and the log says so: nobody who makes a table on one
 * shard keeps others from having snapshots. EMBD_INVALID: the snapshot is of tables that were
 * named; EMBD_NO_MEMORY. */
int parts_leave_out(struct written_part *parts, uint32_t n, const struct job *job,
                    struct embd__error *e);

#endif
