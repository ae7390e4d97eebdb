/* block.h - memory for the rows a scan copies out of a store. */
#ifndef EMBD_ENGINE_BLOCK_H
#define EMBD_ENGINE_BLOCK_H

#include "proto/schema.h"
#include "server/store/store.h"

/* How many rows and candidates together take at most `bytes`; 0: not one. */
uint32_t block_rows_in(const embd_schema *schema, uint64_t bytes);

/* Memory for that many rows and as many candidates, aligned to 64; the caller frees it. `scan`
 * points into it. NULL: out of memory. */
void *block_new(const embd_schema *schema, uint32_t max_rows, struct store_scan *scan);

/* The same in memory of the caller's, aligned to 8, and without states where these are not wanted:
 * how many bytes, and pointing into them. */
uint64_t block_bytes_of(const embd_schema *schema, uint32_t max_rows, bool has_states);
void block_point(const embd_schema *schema, uint32_t max_rows, bool has_states, void *memory,
                 struct store_scan *scan);

struct row_block block_of(const struct store_scan *scan);

#endif
