/* moments.h - moments that restores bring back, as people read them. */
#ifndef EMBCTL_MOMENTS_H
#define EMBCTL_MOMENTS_H

#include "client/backup/backup.h"
#include "client/embctl/listing.h"

#define MOMENT_BYTES 48u

/* 2026-11-23T18:00:00.250Z; "": `ms` is 0. */
void moment_text(char out[MOMENT_BYTES], uint64_t ms);

/* Spans of moments, as a listing that listing_fini ends. A status; `why` has the sentence. */
int moments_read(const struct backup_where *where, const char *job, struct listing *out,
                 struct backup_why *why);

#endif
