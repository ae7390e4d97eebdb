/* partread.h - reads a part file block by block and believes nothing that was not checked. */
#ifndef EMBD_STORED_PARTREAD_H
#define EMBD_STORED_PARTREAD_H

#include <xxhash.h>

#include "proto/partfile.h"

struct part_reader {
    /* The caller's. */
    const struct manifest_part *part;
    const embd_schema *schema;
    /* Ours. */
    int fd;
    char *path;
    uint8_t *arrays; /* of the current block */
    uint64_t arrays_capacity;
    XXH3_state_t *hash;
    uint64_t at; /* bytes read */
    uint64_t rows, candidates;
};

/* Opens `directory`/part->file and checks its size and header. `part` and `schema` must outlive the
 * reader. EMBD_CORRUPT, EMBD_IO, EMBD_NO_MEMORY: the error names the file; *reader is closed. */
int embd__partread_open(struct part_reader *reader, const char *directory,
                        const struct manifest_part *part, const embd_schema *schema,
                        struct embd__error *e);

/* 1: *block_out is the next block, valid until the next call. 0: the end, and size, counts and
 * checksum are what the manifest says. Negative: the error names the file, the place and what
 * differs. */
int embd__partread_next(struct part_reader *reader, struct row_block *block_out,
                        struct embd__error *e);

void embd__partread_close(struct part_reader *reader);

#endif
