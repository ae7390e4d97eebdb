/* move_rows.h - rows on their way from the shards that lose them to those that get them, while keys
 * move (move_job.c): read block by block, divided by the map, and loaded.
 *
 * Owner: the job's thread. */
#ifndef EMBD_COORDINATOR_MOVE_ROWS_H
#define EMBD_COORDINATOR_MOVE_ROWS_H

#include "server/coordinator/job.h"

struct move_side;

/* Zeroed, but for `job`. */
struct move_rows {
    struct job *job;
    struct move_side *sides; /* [n_shards] malloc'd */
    uint64_t round_rows;     /* rows, candidates and keys that went, of the last round */
    uint64_t rows, bytes;    /* of all rounds */
    uint32_t n_rounds;
    bool is_paced; /* there was a rate */
};

int move_rows_init(struct move_rows *m);
void move_rows_fini(struct move_rows *m);

enum move_round {
    MOVE_PACED,   /* no faster than the job's rate */
    MOVE_UNPACED, /* as fast as it goes */
    MOVE_FINAL    /* likewise, under a hold, which is not kept for long */
};

/* One round: all rows that leave, or what has changed of them since the round before. One that is
 * not final goes on until a cancel. */
int move_rows_round(struct move_rows *m, enum move_round how);

#endif
