/* part_files.h - small part files for tests and fuzzers: written into memory, read back strictly.
 */
#ifndef EMBD_TESTS_PART_FILES_H
#define EMBD_TESTS_PART_FILES_H

#include "proto/partfile.h"

/* A whole part file of `block` and the ending block; malloc'd. */
uint8_t *write_part_file(const embd_schema *schema, const struct row_block *block, uint32_t shard,
                         size_t *bytes_out);

/* Reads a whole file, calling `visit` for each block. Returns 0 or the status of the fault; a file
 * that ends too early or goes on after its last block is EMBD_CORRUPT. */
int read_part_file(const uint8_t *bytes, size_t n, const embd_schema *schema,
                   void (*visit)(void *arg, const struct row_block *block), void *arg,
                   struct embd__error *e);

#endif
