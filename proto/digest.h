/* digest.h - what a table holds, as numbers that do not depend on where its rows are: sums of one
 * checksum a row, by the part of the key space that the key is in.
 *
 * Blocks may be added in any order. Equal tables have equal sums on any number of shards and in any
 * store; those of different tables are equal by a chance of 2^-64. */
#ifndef EMBD_PROTO_DIGEST_H
#define EMBD_PROTO_DIGEST_H

#include "proto/batch.h"
#include "proto/message.h"
#include "embd/admin.h"

struct digest {
    uint64_t rows, candidates;
    uint64_t parts[EMBD_DIGEST_PARTS];
    uint64_t counts[EMBD_DIGEST_PARTS]; /* rows and candidates of each part */
};

/* Adds a block's rows with their states, and its candidates with their counts. */
void embd__digest_add(struct digest *digest, const embd_schema *schema,
                      const struct row_block *block);

/* The parts as two bins, which have to stay as those of bins. */
void embd__digest_write(struct msg *m, const struct digest *digest);
/* Adds the parts of a message to `digest`; rows and candidates stay. Returns r->error->status. */
int embd__digest_read(struct reader *r, struct digest *digest);

/* One number of all parts. */
uint64_t embd__digest_sum(const struct digest *digest);

#endif
