/* snapshot_watch.h - how a shard's snapshots go, for who watches: their age is a figure of the
 * first shard of its process, which commits them; a phase that fails is counted, and said in the
 * log. */
#ifndef EMBD_SNAPSHOT_WATCH_H
#define EMBD_SNAPSHOT_WATCH_H

#include <stdint.h>

#include "proto/errors.h"

struct shard;

/* Of the snapshots that exist when the shard is opened, the newest. */
void snapshot_watch_begin(struct shard *shard);
void snapshot_watch_committed(struct shard *shard);
void snapshot_watch_failed(struct shard *shard, const char *phase, const char *name,
                           const struct embd__error *why);
/* Snapshots of the cluster that this process coordinated and that failed; the first shard of the
 * process tells them. */
uint64_t snapshot_watch_jobs_failed(const struct shard *shard);
/* 0: none. */
uint64_t snapshot_watch_age_us(const struct shard *shard);

#endif
