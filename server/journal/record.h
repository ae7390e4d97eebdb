/* record.h - the bytes of a journal: a segment's header, and records, each one operation that
 * changed tables (operation.h).
 *
 * Checksums of records and marks are keyed with a secret of their file, which is in its header: a
 * client chooses the bytes of its requests, and none of them can be a record or a mark.
 *
 * All numbers are little-endian. A record has the checksum of the record before it, so that none
 * can be missing or change places, and the position up to which the journal was on disk when it was
 * written: damage before that position is never a torn tail, whatever follows. A mark says the
 * same, if no record follows. */
#ifndef EMBD_RECORD_H
#define EMBD_RECORD_H

#include <stdbool.h>

#include "proto/frame.h"
#include "proto/little.h"

#define SEGMENT_HEADER_BYTES     496u /* two copies: without its secret no record can be read */
#define OLD_SEGMENT_HEADER_BYTES 56u  /* of an earlier version, without a secret */
#define RECORD_HEADER_BYTES      64u
#define RECORD_BLOCK_BYTES                                                                         \
    4096u /* zeros may stand between a record and the next multiple of this */

static inline uint64_t record_block_end(uint64_t offset)
{
    return (offset + RECORD_BLOCK_BYTES - 1) / RECORD_BLOCK_BYTES * RECORD_BLOCK_BYTES;
}

#define RECORD_SECRET_BYTES 192u
struct record_key {
    bool is_keyed; /* false: of a file of an earlier version, whose checksums anybody can make */
    uint8_t secret[RECORD_SECRET_BYTES];
};

struct segment_header {
    uint32_t shard, n_shards;
    uint64_t number, first_position, chain; /* chain: the checksum before its first record */
    uint64_t base_bytes;   /* the segment begins anew, and so much of it was on disk when it got its
                              name; 0: it   goes on where the one before ends */
    struct record_key key; /* of what follows */
};

/* The kind of a record's body. Earlier versions wrote the request as it was received. */
enum record_version {
    RECORD_REQUEST_OLD = 0, /* a request; the first push of a stream begins it */
    RECORD_REQUEST = 1,     /* a request; stream_open begins a stream */
    RECORD_OPERATION = 2,   /* an operation: operation.h */
};

struct record {
    uint32_t head_bytes, n_bins, version;
    uint64_t body_bytes, position;
    uint64_t synced; /* records before this position were on disk when this one was written */
    uint64_t chain;  /* checksum of the record before */
    uint64_t checksum;
};

/* A mark, which follows records when nothing was written for a while: everything before it was on
 * disk then. */
#define MARK_BYTES RECORD_HEADER_BYTES
struct mark {
    uint64_t position, chain; /* the next record's */
};

enum { RECORD_AT_POSITION = 24, RECORD_AT_CHECKSUM = 56 }; /* in its header */

/* Which record it is; the checksum is chained to all before it, so it is this one's alone. */
struct record_id {
    uint64_t position, checksum;
};

/* 0 or errno: the system gives no random numbers. */
int record_key_new(struct record_key *out);

/* With a key that is_keyed. */
void segment_header_write(uint8_t out[SEGMENT_HEADER_BYTES], const struct segment_header *header);
/* How many of the n bytes at the start of a file the header has, of this version or an earlier one;
 * 0: it does not verify. */
uint64_t segment_header_read(const uint8_t *bytes, uint64_t n, struct segment_header *out);
/* Whether these n bytes, without a header that verifies, may be the written part of one. */
bool segment_is_unfinished(const uint8_t *bytes, uint64_t n);

void mark_write(uint8_t out[MARK_BYTES], const struct record_key *key, uint64_t position,
                uint64_t chain);
bool mark_read(const struct record_key *key, const uint8_t *bytes, uint64_t n, struct mark *out);

static inline uint64_t record_body_bytes(const struct frame_scanner *frame)
{
    uint64_t bytes = frame->head_bytes + (uint64_t)8 * frame->n_bins;
    for (uint32_t i = 0; i < frame->n_bins; i++)
        bytes += frame->bins[i].bytes;
    return bytes;
}

/* Bytes of the record with this body. */
static inline uint64_t record_bytes(const struct frame_scanner *frame)
{
    return RECORD_HEADER_BYTES + record_body_bytes(frame);
}

/* Everything but what is known when it is written to disk. */
void record_write(uint8_t *out, const struct frame_scanner *frame);
/* The rest, with a key that is_keyed; returns the record's checksum. `bytes_out`: of the whole
 * record. */
uint64_t record_seal(uint8_t *record, const struct record_key *key, uint64_t position,
                     uint64_t synced, uint64_t chain, uint64_t *bytes_out);

/* The header of a sealed record. */
static inline struct record_id record_id_of(const uint8_t *record)
{
    return (struct record_id){embd__get_u64(record + RECORD_AT_POSITION),
                              embd__get_u64(record + RECORD_AT_CHECKSUM)};
}

/* The fields of a record that this process has sealed; nothing is verified. */
void record_fields(const uint8_t *record, struct record *out);

/* True: these n bytes begin with a whole record whose lengths are right, of whoever's key: its
 * checksums are not looked at. For records of another journal. */
bool record_check(const uint8_t *bytes, uint64_t n, struct record *out);
/* XXH3 of records on their way to another server. */
uint64_t record_sum(const uint8_t *bytes, uint64_t n);

#define RECORD_MAGIC_BEGIN "EBD" /* a record and a mark begin with this */
/* True: these n bytes begin with a record's header, and who wrote it knew the key. The body need
 * not be there. A key that is not keyed knows no header. */
bool record_header_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out);
/* How many of the n bytes record_read needs; the first RECORD_HEADER_BYTES are here. */
uint64_t record_span(const uint8_t *bytes, uint64_t n);
/* True: a whole record, whose checksums and lengths are right, stands at the start of these n
 * bytes. */
bool record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                 struct record *out);
/* Where the frame's parts lie in a record that record_read took; bins point into it. */
void record_frame(uint8_t *bytes, const struct record *record, struct frame_scanner *out);

#endif
