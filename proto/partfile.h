/* partfile.h - the bytes of a dump or snapshot directory: part files and manifest.json. Pure
 * functions; who writes and syncs files is the caller's matter.
 *
 * A part file holds rows of one table from one shard: a header, then blocks. All little-endian.
 *   header, 64 bytes: "EMBDPART", u32 version = 1, u32 dim, u32 dtype, u32 state_floats, u32 has_slots,
 *                     u32 shard, zeros, u64 XXH3 of the 56 bytes before
 *   block:  u32 n_rows, u32 n_candidates, u64 bytes of the arrays, u64 XXH3 of the arrays, then the
 *           arrays of struct row_block in its order, each padded with zeros to a multiple of 8
 *           bytes
 *   end:    a block with n_rows = n_candidates = 0
 * manifest.json names every part with its rows, bytes and XXH3 over the whole file. */
#ifndef EMBD_PROTO_PARTFILE_H
#define EMBD_PROTO_PARTFILE_H

#include "proto/placement.h"
#include "proto/message.h"
#include "proto/schema.h"
#include "proto/scope.h"

#define PARTFILE_HEADER_BYTES       64u
#define PARTFILE_BLOCK_HEADER_BYTES 24u
#define PARTFILE_VERSION            1u
/* Writers aim at this; readers must take at least as much. */
#define PARTFILE_BLOCK_BYTES (8u << 20)

void embd__partfile_header(uint8_t out[PARTFILE_HEADER_BYTES], const embd_schema *schema,
                           uint32_t shard);
int embd__partfile_check_header(const uint8_t *p, const embd_schema *schema, struct embd__error *e);

/* Pieces to write for one block, in order: header, then array and padding in turn; at most
 * PARTFILE_BLOCK_PIECES. The pieces point into `header` and the block. Returns their number. */
#define PARTFILE_BLOCK_PIECES 16u
uint32_t embd__partfile_block(const embd_schema *schema, const struct row_block *block,
                              uint8_t header[PARTFILE_BLOCK_HEADER_BYTES],
                              struct msg_piece pieces[PARTFILE_BLOCK_PIECES]);

/* Reads a block header: array bytes to follow, checked against the counts and PARTFILE_BLOCK_BYTES
 * * 2. */
int embd__partfile_block_header(const uint8_t *p, const embd_schema *schema, uint32_t *n_rows_out,
                                uint32_t *n_candidates_out, uint64_t *bytes_out, uint64_t *xxh3_out,
                                struct embd__error *e);
/* Points `out` into the arrays (aligned to 8) after checking their XXH3. */
int embd__partfile_block_arrays(const uint8_t *arrays, const embd_schema *schema, uint32_t n_rows,
                                uint32_t n_candidates, uint64_t bytes, uint64_t xxh3,
                                struct row_block *out, struct embd__error *e);

struct manifest_part {
    char file[96]; /* a plain name: no '/', not "." or ".." */
    uint32_t shard;
    uint64_t rows, candidates, bytes, xxh3;
    bool has_changes;  /* since the base: candidates that were seen 0 times are keys that lost their
                         row */
    uint64_t step;     /* the shard's: the next push to it is the one behind */
    uint32_t table_id; /* the shard's, if it is not the first of its name; else 0 */
};
struct manifest_table {
    struct table_schema schema;
    uint64_t step; /* the greatest of the parts' */
    struct manifest_part *parts;
    uint32_t n_parts;
};
/* A file that the trainer gave to a snapshot; it lies there as NAME.blob, as it is. */
struct manifest_blob {
    char name[EMBD_NAME_MAX + 1];
    uint64_t bytes, xxh3; /* of the whole file */
};
#define SNAPSHOT_NAME_MAX  64 /* [a-z0-9][a-z0-9_-]{0,63} */
#define MANIFEST_BLOB_FILE (EMBD_NAME_MAX + 6)
/* Its file name; false, and "", where the name is not [a-z0-9][a-z0-9_-]{0,62}. No part file has
 * such a name. */
bool embd__manifest_blob_file(char out[MANIFEST_BLOB_FILE], const char *name);

/* How far a shard's pushers had come: the file SHARD.writers (streamsfile.h). */
struct manifest_streams {
    uint32_t shard;
    uint64_t bytes, xxh3; /* of the whole file */
};

/* The base of an increment. */
struct manifest_base {
    char name[SNAPSHOT_NAME_MAX + 1]; /* of its directory, beside */
    uint64_t id;                      /* of its cut; 0: no base */
    uint64_t xxh3;                    /* of its manifest */
};

struct manifest {
    char kind[16]; /* "dump" or "snapshot" */
    char embd_version[16];
    uint32_t n_shards; /* of the cluster it was taken from */
    uint64_t id;       /* of the cut, the same for all processes; 0: format 1, which has none */
    struct manifest_table *tables;
    uint32_t n_tables;
    struct manifest_blob *blobs; /* snapshots only; NULL: none */
    uint32_t n_blobs;
    struct manifest_streams *streams; /* snapshots from format 2 on; NULL: none */
    uint32_t n_streams;
    struct manifest_base base;
    struct table_scope scope;          /* snapshots from format 5 on; zero: all tables */
    const struct placement *placement; /* from format 6 on, malloc'd by reading; NULL: even */
    uint64_t sequence; /* of the cut: those made later have greater ones; 0: of an earlier version,
                          or a dump */
    /* Set by reading, not written. */
    uint32_t format;
    uint64_t xxh3; /* of the text; 0 where it does not say it */
};

/* JSON text, malloc'd; NULL: out of memory. 64-bit integers as JSON integers, xxh3 as 16 hex
 * digits. */
char *embd__manifest_write(const struct manifest *manifest);
int embd__manifest_read(const char *json, size_t bytes, struct manifest *out,
                        struct embd__error *e);
void embd__manifest_fini(struct manifest *manifest);
/* Whether shard i of the manifest's cluster had the keys that it has with `here`. */
/* Whether it has anything of the shard: streams of pushes, which each shard has, if only none. */
bool embd__manifest_has_shard(const struct manifest *manifest, uint32_t shard);
bool embd__manifest_is_placed(const struct manifest *manifest, const struct placement *here);
/* Which shard had which keys. */
void embd__manifest_placement(const struct manifest *manifest, struct placement *out);

#endif
