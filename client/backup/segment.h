/* segment.h - a file of records in a place of backups: a piece of one shard's journal, with the
 * times at which it came.
 *
 *   PLACE/journal.records/SHARD/MS-RUN-NUMBER    MS: of its last time, in ms since 1970
 *
 * A run is one program that keeps records; it counts its files of each shard. All numbers are
 * little-endian:
 *   header, 136 bytes: "EMBDRECS", u32 version = 1, u32 shard, u32 shards, u32 number, u64 run, u64
 *                      lineage, u64 position, chain and offset of its first byte, the same behind
 *                      its last one (proto/follow.h), u64 offset in its bytes where the first
 *                      record begins, u64 bytes, u64 times, u64 skips, zeros
 *   times:             u64 ms, u64 position: records before that position were there then
 *   skips:             u64 positions of records that were withdrawn
 *   the bytes, and u64 XXH3 of all before it
 * So a file that is lost, damaged, or in the place of another one is found, and where a shard's
 * files join. Pure functions. */
#ifndef EMBD_BACKUP_SEGMENT_H
#define EMBD_BACKUP_SEGMENT_H

#include "client/backup/place.h"
#include "client/formats/records.h"

#define SEGMENT_DIR        "journal.records"
#define SEGMENT_BYTES_MOST (8u << 20) /* then the next one begins; an answer of 4 MiB fits, too */
#define SEGMENT_TIMES_MOST 65536u
#define SEGMENT_NONE       UINT64_MAX /* no record begins in it */

struct segment_time {
    uint64_t ms, position;
};

struct segment {
    uint32_t shard, n_shards, number;
    uint64_t run, lineage;
    struct records_place from, to; /* without file and at */
    uint64_t first;
    const struct segment_time *times; /* [n_times], at least one */
    const uint64_t *skips;            /* [n_skips] */
    const uint8_t *bytes;             /* [n_bytes] */
    uint64_t n_times, n_skips, n_bytes;
};

/* What a file's name says. */
struct segment_name {
    uint64_t ms, run;
    uint32_t shard, number;
};

void segment_name(char out[PLACE_NAME_BYTES], const struct segment *s);
/* False: it is the name of something else. */
bool segment_name_read(const char *name, struct segment_name *out);

/* malloc'd; NULL: no memory. */
uint8_t *segment_write(const struct segment *s, size_t *bytes_out);
/* Points into `bytes`. EMBD_CORRUPT: they are not what was written under that name;
 * EMBD_UNSUPPORTED: of a later version. */
int segment_read(const char *name, const uint8_t *bytes, size_t n, struct segment *out,
                 struct embd__error *e);

/* Whether `next` goes on where `before` ends. */
bool segment_joins(const struct records_place *before, const struct records_place *next);

#endif
