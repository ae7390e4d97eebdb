/* writersfile.h - the bytes of SHARD.writers in a snapshot: which pushes each writer's streams had made on
 * a shard at the cut. All numbers are little-endian.
 *   header, 64 bytes: "EMBDWRTR", u32 version = 1, u32 shard, u32 shards, u32 zero, u64 streams of tables
 *                     that are not journaled, u64 of journaled ones, u64 records that the shard's journal had, u64
 *                     checksum of the last of them or 0, zeros
 *   streams:          u64 high, low, sequence, stream; those of tables that are not journaled first, and of
 *                     both kinds the one that has not pushed for longest first
 * manifest.json has the checksum of the file. Pure functions. */
#ifndef EMBD_PROTO_WRITERSFILE_H
#define EMBD_PROTO_WRITERSFILE_H

#include "message.h"

#define WRITERSFILE_HEADER_BYTES 64u
#define WRITERSFILE_VERSION      1u
#define WRITERSFILE_STREAMS_MAX  65536u /* of a kind */
#define WRITERSFILE_NAME         24u

struct writersfile {
    uint32_t shard, n_shards;
    uint64_t n_other, n_journaled, position, chain;
};

void embd__writersfile_name(char out[WRITERSFILE_NAME], uint32_t shard);
uint64_t embd__writersfile_bytes(const struct writersfile *file);
void embd__writersfile_header(uint8_t out[WRITERSFILE_HEADER_BYTES], const struct writersfile *file);

/* Of its first WRITERSFILE_HEADER_BYTES alone. EMBD_CORRUPT, EMBD_UNSUPPORTED. */
int embd__writersfile_read_header(const uint8_t *bytes, uint64_t n, struct writersfile *out,
                                  struct embd__error *e);
/* Of a whole file: header, size, and every stream. EMBD_CORRUPT naming the field. */
int embd__writersfile_read(const uint8_t *bytes, uint64_t n, struct writersfile *out,
                           struct embd__error *e);
/* Stream i: those of tables that are not journaled come first. */
struct push_writer embd__writersfile_stream(const uint8_t *bytes, uint64_t i);

/* Whether this could be the last push of a stream. EMBD_INVALID naming the value. */
int embd__writer_check(const struct push_writer *stream, struct embd__error *e);

#endif
