/* digest.c - see digest.h. */
#include "proto/digest.h"

#include <xxhash.h>

#include "proto/route.h"
#include "proto/schema.h"

_Static_assert(EMBD_DIGEST_PARTS == 1024, "a part is ten bits of a hash");

/* Tables whose partition is by hash have the shards' bounds at bounds of parts. */
static void add_sum(struct digest *digest, uint64_t key, uint64_t hash)
{
    uint64_t part = embd__mix64(key) >> 54;
    digest->parts[part] += hash;
    digest->counts[part]++;
}

/* A row and its state are hashed one after the other, each with the hash before it as its seed. */
static uint64_t begin(uint64_t key, uint32_t slot)
{
    const uint64_t named[2] = {key, slot};
    return XXH3_64bits(named, sizeof named);
}

static void add_rows(struct digest *digest, const embd_schema *schema,
                     const struct row_block *block)
{
    const size_t row_bytes = embd__value_bytes(schema->dtype, schema->dim);
    const size_t state_bytes = sizeof(float) * embd__schema_state_floats(schema);
    const uint8_t *row = block->rows;
    const uint8_t *state = (const uint8_t *)block->states;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        uint64_t hash = begin(block->keys[i], block->slots ? block->slots[i] : 0);
        hash = XXH3_64bits_withSeed(row + i * row_bytes, row_bytes, hash);
        if (state_bytes > 0)
            hash = XXH3_64bits_withSeed(state + i * state_bytes, state_bytes, hash);
        add_sum(digest, block->keys[i], hash);
    }
    digest->rows += block->n_rows;
}

static void add_candidates(struct digest *digest, const struct row_block *block)
{
    for (uint32_t i = 0; i < block->n_candidates; i++) {
        uint64_t key = block->candidate_keys[i];
        uint64_t hash = begin(key, block->candidate_slots ? block->candidate_slots[i] : 0);
        add_sum(digest, key,
                XXH3_64bits_withSeed(&block->candidate_counts[i], sizeof *block->candidate_counts,
                                     hash));
    }
    digest->candidates += block->n_candidates;
}

void embd__digest_add(struct digest *digest, const embd_schema *schema,
                      const struct row_block *block)
{
    add_rows(digest, schema, block);
    add_candidates(digest, block);
}

void embd__digest_write(struct msg *m, const struct digest *digest)
{
    embd__msg_bin(m, digest->parts, sizeof digest->parts);
    embd__msg_bin(m, digest->counts, sizeof digest->counts);
}

int embd__digest_read(struct reader *r, struct digest *digest)
{
    const uint64_t *parts = embd__read_bin(r, "digest sums", sizeof digest->parts);
    const uint64_t *counts = embd__read_bin(r, "digest counts", sizeof digest->counts);
    for (uint32_t i = 0; i < EMBD_DIGEST_PARTS && r->error->status == EMBD_OK; i++) {
        digest->parts[i] += parts[i];
        digest->counts[i] += counts[i];
    }
    return r->error->status;
}

uint64_t embd__digest_sum(const struct digest *digest)
{
    return XXH3_64bits(digest->parts, sizeof digest->parts);
}
