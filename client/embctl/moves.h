/* moves.h - what the commands that move keys share: rebalance.c and shardmove.c. */
#ifndef EMBCTL_MOVES_H
#define EMBCTL_MOVES_H

#include "client/embctl/embctl.h"
#include "embd/admin.h"

#define RATE_LEAST (1u << 20)
#define RATE_MOST  (UINT64_C(1) << 40)

/* The value of --rate: 0, or bytes a second. Exits on anything else. */
uint64_t parse_rate(struct argp_state *state, const char *arg);

/* embd_rebalance; on a terminal a line shows how far it is. */
int rebalance_watched(embd_client *client, const embd_rebalance_options *what,
                      embd_rebalance_report *out);

/* Bytes a second: the average so far, but no more than the limit is now. */
uint64_t move_speed(const embd_snapshot_report *report);
/* Of the copying, at the limit, or else at the average so far. Rows that change meanwhile are
 * copied again. */
uint64_t move_left_us(const embd_snapshot_report *report);

void rebalance_print(const embd_rebalance_report *report, bool is_plan);

#endif
