/* streamsfile.h - the bytes of SHARD.writers in a snapshot: which pushes each pusher's streams had
 * made on a shard at the cut. All numbers are little-endian.
 *   header, 64 bytes: "EMBDWRTR", u32 version = 2, u32 shard, u32 shards, u32 zero, u64 streams of
 *                     tables that are not journaled, u64 of journaled ones, u64 records that the
 *                     shard's journal had, u64 checksum of the last of them or 0, zeros
 *   streams:          u64 high, low, last push, stream, principal; those of tables that are not
 *                     journaled first; both kinds by principal, and of each the one that has not
 *                     pushed for longest first
 * Version 1 has streams without a principal, whose last push is not 0. It is read too.
 * manifest.json has the checksum of the file. Pure functions. */
#ifndef EMBD_PROTO_STREAMSFILE_H
#define EMBD_PROTO_STREAMSFILE_H

#include "proto/message.h"

#define STREAMSFILE_HEADER_BYTES 64u
#define STREAMSFILE_VERSION      2u
#define STREAMSFILE_STREAMS_MAX  65536u /* of a kind */
#define STREAMSFILE_NAME         24u

/* A stream of a pusher's pushes on a shard. */
struct push_stream {
    uint64_t high, low; /* the pusher's id */
    uint64_t last;      /* push applied; 0: it is open, and none was */
    uint64_t stream;    /* u32 */
    uint64_t principal; /* who opened it; 0: everybody */
};

struct streamsfile {
    uint32_t version, shard, n_shards;
    uint64_t n_other, n_journaled, position, chain;
};

void embd__streamsfile_name(char out[STREAMSFILE_NAME], uint32_t shard);
uint64_t embd__streamsfile_bytes(const struct streamsfile *file);
void embd__streamsfile_header(uint8_t out[STREAMSFILE_HEADER_BYTES],
                              const struct streamsfile *file);

/* Reads the first STREAMSFILE_HEADER_BYTES alone. EMBD_CORRUPT, EMBD_UNSUPPORTED. */
int embd__streamsfile_read_header(const uint8_t *bytes, uint64_t n, struct streamsfile *out,
                                  struct embd__error *e);
/* Checks a whole file: header, size, and every stream. EMBD_CORRUPT naming the field. */
int embd__streamsfile_read(const uint8_t *bytes, uint64_t n, struct streamsfile *out,
                           struct embd__error *e);
/* Stream i: those of tables that are not journaled come first. */
struct push_stream embd__streamsfile_stream(const uint8_t *bytes, uint64_t i);

/* The same of a list by itself, as a file of that version has it. */
#define STREAM_BYTES_OLD 32u
#define STREAM_BYTES     40u

/* n streams of such a list, malloc'd, each checked. NULL: EMBD_NO_MEMORY, EMBD_INVALID. */
struct push_stream *embd__streams_take(const uint8_t *list, uint64_t n, bool has_principals,
                                       struct embd__error *e);

/* Leaves in kept[n], in its order, the streams that stand at the same push of the same principal in
 * other[n_other], which is put in order. Returns how many these are. */
uint64_t embd__streams_common(struct push_stream *kept, uint64_t n, struct push_stream *other,
                              uint64_t n_other);

#endif
