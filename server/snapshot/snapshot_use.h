/* snapshot_use.h - the complete snapshots of jobs in the data directory, as they were when it was
 * last looked at: at the start, and by each phase that makes or removes some. For figures alone:
 * limits are checked with what is on the disk (snapshot_quota.h). */
#ifndef EMBD_SNAPSHOT_USE_H
#define EMBD_SNAPSHOT_USE_H

#include <stdbool.h>

#include "embd/embd.h"

struct grant;
struct snapshot_list;

struct snapshot_use {
    struct {
        char job[EMBD_NAME_MAX + 1]; /* never "" */
        uint64_t bytes;
    } * list; /* [n], malloc'd */
    uint32_t n;
    bool is_known;
};

void snapshot_use_fini(struct snapshot_use *use);
/* Replaces *use; without memory, by nothing known. */
void snapshot_use_take(struct snapshot_use *use, const struct snapshot_list *all);
/* One more is complete, of that job ("": of none). */
void snapshot_use_add(struct snapshot_use *use, const char *job, uint64_t bytes);
/* Of jobs under the token's prefixes. */
void snapshot_use_of(const struct snapshot_use *use, const struct grant *grant, uint64_t *n,
                     uint64_t *bytes);

#endif
