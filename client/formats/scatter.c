/* scatter.c - rows from files to the shards that own them here.
 *
 * A block whose rows all belong to one shard (as in a cluster of the size it was taken from) is
 * sent as it lies in memory; otherwise rows are gathered per shard and sent when a shard's block is
 * full. A shard gets its rows in the order of the files, where a later row replaces an earlier one:
 * a block that is sent as it lies waits for the rows gathered for its shard. What can fail: memory
 * for the gathered rows, or the shard. */
#include <stdlib.h>

#include "client/formats/admin.h"
#include "proto/partfile.h"
#include "client/core/client.h"
#include "client/formats/scatter.h"

/* For rows gathered per shard, all shards together; a shard's share is at most one block. */
#define GATHER_BYTES (256u << 20)

int embd__scatter_open(struct scatter *s, embd_client *client, const embd_schema *schema,
                       uint64_t staged)
{
    *s = (struct scatter){
        .client = client, .schema = schema, .staged = staged, .n_shards = embd_shard_count(client)};
    s->batches = calloc(s->n_shards, sizeof *s->batches);
    if (!s->batches)
        return embd__error_set(embd__client_error(client), EMBD_NO_MEMORY,
                               "no memory to load table '%s'", schema->name);
    return EMBD_OK;
}

static int flush(struct scatter *s, uint32_t shard)
{
    struct batch *batch = &s->batches[shard];
    if (batch->n_rows == 0 && batch->n_candidates == 0)
        return EMBD_OK;
    struct row_block block = embd__batch_block(batch);
    batch->n_rows = batch->n_candidates = 0;
    return embd__admin_load(s->client, shard, s->schema, s->staged, &block);
}

int embd__scatter_finish(struct scatter *s)
{
    int status = EMBD_OK;
    for (uint32_t shard = 0; shard < s->n_shards && status == EMBD_OK; shard++)
        status = flush(s, shard);
    return status;
}

static uint32_t owner(const struct scatter *s, const uint64_t *keys, const uint16_t *slots,
                      uint32_t i)
{
    return embd__placement_shard(&s->client->placement, s->schema->partition, slots ? slots[i] : 0,
                                 keys[i]);
}

/* The shard that owns every row and candidate of the block, or n_shards. */
static uint32_t only_owner(const struct scatter *s, const struct row_block *b)
{
    uint32_t shard = b->n_rows ? owner(s, b->keys, b->slots, 0)
                               : owner(s, b->candidate_keys, b->candidate_slots, 0);
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (owner(s, b->keys, b->slots, i) != shard)
            return s->n_shards;
    for (uint32_t i = 0; i < b->n_candidates; i++)
        if (owner(s, b->candidate_keys, b->candidate_slots, i) != shard)
            return s->n_shards;
    return shard;
}

/* The batch of a shard, with room for one more row and candidate; NULL: the error is set. */
static struct batch *room(struct scatter *s, uint32_t shard)
{
    struct batch *batch = &s->batches[shard];
    uint64_t bytes = GATHER_BYTES / s->n_shards;
    if (bytes > PARTFILE_BLOCK_BYTES)
        bytes = PARTFILE_BLOCK_BYTES;
    if (!batch->memory && embd__batch_open(batch, s->schema, bytes, embd__client_error(s->client)))
        return NULL;
    bool is_full = batch->n_rows == batch->capacity || batch->n_candidates == batch->capacity;
    return is_full && flush(s, shard) ? NULL : batch;
}

static int gather(struct scatter *s, const struct row_block *b)
{
    for (uint32_t i = 0; i < b->n_rows; i++) {
        struct batch *batch = room(s, owner(s, b->keys, b->slots, i));
        if (!batch)
            return embd__client_error(s->client)->status;
        embd__batch_add_row(batch, s->schema, b, i);
    }
    for (uint32_t i = 0; i < b->n_candidates; i++) {
        struct batch *batch = room(s, owner(s, b->candidate_keys, b->candidate_slots, i));
        if (!batch)
            return embd__client_error(s->client)->status;
        embd__batch_add_candidate(batch, b, i);
    }
    return EMBD_OK;
}

int embd__scatter_block(struct scatter *s, const struct row_block *block)
{
    if (block->n_rows == 0 && block->n_candidates == 0)
        return EMBD_OK;
    bool is_gone = embd__block_is_gone(block);
    if (is_gone != s->has_gone &&
        embd__scatter_finish(s)) /* blocks are of one kind, in their order */
        return embd__client_error(s->client)->status;
    s->has_gone = is_gone;
    uint32_t shard = only_owner(s, block);
    if (shard == s->n_shards)
        return gather(s, block);
    int status = flush(s, shard); /* rows gathered for it are older */
    return status ? status : embd__admin_load(s->client, shard, s->schema, s->staged, block);
}

void embd__scatter_close(struct scatter *s)
{
    for (uint32_t shard = 0; s->batches && shard < s->n_shards; shard++)
        embd__batch_close(&s->batches[shard]);
    free(s->batches);
    *s = (struct scatter){0};
}
