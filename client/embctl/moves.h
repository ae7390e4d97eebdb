/* moves.h - what the commands that move keys share: rebalance.c and shardmove.c. */
#ifndef EMBCTL_MOVES_H
#define EMBCTL_MOVES_H

#include "client/embctl/embctl.h"
#include "embd/admin.h"

#define RATE_LEAST (1u << 20)
#define RATE_MOST  (UINT64_C(1) << 40)

/* The value of --rate: 0, or bytes a second. Exits on anything else. */
uint64_t parse_rate(struct argp_state *state, const char *arg);

void rebalance_print(const embd_rebalance_report *report, bool is_plan);

#endif
