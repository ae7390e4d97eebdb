/* snapshot_quota.h - what the snapshots of a trainer's jobs may take in this data directory:
 * snapshots and snapshot_bytes of the list of tokens.
 *
 * A snapshot counts for each token with a prefix of its job, whoever made it. Its bytes are those
 * of its files: rows, streams and blobs. They are counted when a snapshot begins; what it adds is
 * checked as it comes, and before any process gives it its name. */
#ifndef EMBD_SNAPSHOT_QUOTA_H
#define EMBD_SNAPSHOT_QUOTA_H

#include "proto/errors.h"

struct grant;
struct snapshot_parts;

struct snapshot_quota {
    char token[64]; /* its name; "": nothing is bounded */
    uint64_t n, bytes;
    uint64_t most, most_bytes;
};

/* Counts what there is. EMBD_FULL: there is no room for one more; EMBD_IO, EMBD_NO_MEMORY. Any
 * thread. */
int snapshot_quota_begin(int data_dir, const struct grant *grant, struct snapshot_quota *out,
                         struct embd__error *e);
/* Bytes of the files of the snapshot that is being made. */
uint64_t snapshot_quota_own(const struct snapshot_parts *parts);
/* Whether there is room for so many bytes beside what the snapshot has already. EMBD_FULL. */
int snapshot_quota_check(const struct snapshot_parts *parts, uint64_t more, struct embd__error *e);

#endif
