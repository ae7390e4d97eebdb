/* when.h - the moment that a restore names. Pure functions. */
#ifndef EMBD_BACKUP_WHEN_H
#define EMBD_BACKUP_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/limit.h"

struct when {
    bool is_name;                     /* it is that of a backup */
    uint64_t ms;                      /* since 1970; UINT64_MAX: the newest */
    uint64_t positions[LIMIT_SHARDS]; /* [n_positions] records of each shard; 0: it is a time */
    uint32_t n_positions;
};

/* 2026-11-23, 2026-11-23T18:00, ...T18:00:30, ...T18:00:30.250, with or without a Z; @SECONDS,
 * @SECONDS.250; or records:POSITION,POSITION,... of all shards. */
bool when_read(const char *text, struct when *out);

/* The whole seconds before it. */
uint64_t when_seconds(const struct when *when);

#endif
