/* archived.h - records of journals as an archive keeps them: what a reader of `follow` sees in
 * their bytes, and the file by which a restore hands them to a server. Pure functions.
 *
 * A record has the position of its journal, and the checksum of the record before it, so that none
 * can be missing or change places. The checksums are keyed with a secret of the server's file: who
 * keeps records keeps a checksum of his own beside them.
 *
 * SHARD.archived lies in a new data directory, beside the snapshot that its records go on from. The
 * snapshot may be of other shards, where some were added or left: a shard that its manifest has not
 * begins at position 0. All numbers are little-endian:
 *   header, 72 bytes: "EMBDARCH", u32 version = 1, u32 shard, u32 shards, u32 zero, u64 id of the
 *                     snapshot's cut, u64 position and u64 chain of the cut, u64 bytes of records,
 *                     u64 left out, u64 XXH3 of all behind the header, with XXH3 of the 64
 *                     bytes before as its seed
 *   the records, then u64 [left out], rising: positions of records that do nothing */
#ifndef EMBD_PROTO_ARCHIVED_H
#define EMBD_PROTO_ARCHIVED_H

#include "proto/batch.h"
#include "proto/errors.h"

#define ARCHIVED_HEADER_BYTES 72u
#define ARCHIVED_SUMMED_BYTES 64u /* of the header: before its checksum */
#define ARCHIVED_VERSION      1u
#define ARCHIVED_NAME         24u

struct archived_file {
    uint32_t shard, n_shards;
    uint64_t cut, position, chain;
    uint64_t bytes, n_left_out;
    uint64_t xxh3;
};

void embd__archived_name(char out[ARCHIVED_NAME], uint32_t shard);
void embd__archived_write(uint8_t out[ARCHIVED_HEADER_BYTES], const struct archived_file *file);
/* EMBD_CORRUPT, EMBD_UNSUPPORTED: a later version. Nothing behind the header is looked at. */
int embd__archived_read(const uint8_t *bytes, uint64_t n, struct archived_file *out,
                        struct embd__error *e);
/* Of the whole file, whose header is written but for the checksum. */
uint64_t embd__archived_sum(const uint8_t *bytes, uint64_t n);

/* ---- records ---- */

#define ARCHIVED_RECORD_BYTES 64u /* of a record's header */

struct archived_record {
    uint64_t position, chain; /* chain: the checksum of the record before */
    uint64_t checksum;
    uint64_t bytes; /* of all of it */
    uint32_t version, head_bytes, n_bins;
};

/* Of a header, ARCHIVED_RECORD_BYTES; nothing is checked. */
uint64_t embd__archived_body_bytes(const uint8_t *header);
void embd__archived_header(const uint8_t *header, struct archived_record *out);

/* 1: a whole record begins at these n bytes, whose lengths add up; 0: more bytes are needed; else
 * EMBD_CORRUPT. */
int embd__archived_record(const uint8_t *bytes, uint64_t n, struct archived_record *out);

/* What an archive has to know of a record. */
struct archived_deed {
    struct push_number number;                    /* of a push; sequence 0: it has none */
    struct push_source sources[PUSH_SOURCES_MAX]; /* [n_sources] */
    uint32_t n_sources;
    bool replaces; /* tables take the places of others, on all shards */
    /* A later map of keys to shards, which all shards have, or none: as shard 0's record says. */
    enum archived_move { MOVE_NONE, MOVE_PREPARED, MOVE_MADE, MOVE_WITHDRAWN } move;
    uint64_t decision; /* the number of that attempt, the same on all shards */
    uint32_t n_shards; /* of the map; 0: it has none */
};

/* EMBD_CORRUPT, EMBD_UNSUPPORTED (a later version's), EMBD_NO_MEMORY. */
int embd__archived_deed(const uint8_t *bytes, const struct archived_record *record,
                        struct archived_deed *out, struct embd__error *e);

#endif
