/* hugectr_source.c - reads blocks of a model folder: keys and slots, each of them checked, then
 * vectors and, by the GPU of each key, states. */
#include "client/hugectr/hugectr_source.h"

#include <inttypes.h>

static bool has_slots(const struct hugectr_source *s)
{
    return s->schema->partition == EMBD_PARTITION_SLOT;
}

uint32_t embd__hugectr_source_gpu(const struct hugectr_source *s, const struct block *block,
                                  uint32_t i)
{
    return embd__hugectr_gpu(s->schema, s->options->n_gpus, has_slots(s) ? block->slots[i] : 0,
                             block->keys[i]);
}

static int check_keys(const struct hugectr_source *s, struct block *block)
{
    struct embd__error *e = &block->error;
    for (uint32_t i = 0; s->options->u32_keys && i < block->n; i++)
        if (block->keys[i] > UINT32_MAX)
            return embd__error_set(
                e, EMBD_INVALID, "%s: row %" PRIu64 " has key %" PRIu64 ", which is beyond 32 bits",
                s->folder->key.path, block->first + i, block->keys[i]);
    for (uint32_t i = 0; has_slots(s) && i < block->n; i++) {
        if (block->wide_slots[i] >= s->schema->slots)
            return embd__error_set(
                e, EMBD_CORRUPT, "%s: row %" PRIu64 " has slot %" PRIu64 ", the table has %" PRIu32,
                s->folder->slot.path, block->first + i, block->wide_slots[i], s->schema->slots);
        block->slots[i] = (uint16_t)block->wide_slots[i];
    }
    return EMBD_OK;
}

static int read_keys(void *arg, struct block *block)
{
    const struct hugectr_source *s = arg;
    struct embd__error *e = &block->error;
    uint64_t at = 8 * block->first, bytes = 8 * (uint64_t)block->n;
    if (embd__plain_read(&s->folder->key, at, block->keys, bytes, e))
        return e->status;
    if (has_slots(s) && embd__plain_read(&s->folder->slot, at, block->wide_slots, bytes, e))
        return e->status;
    return check_keys(s, block);
}

static int read_states(const struct hugectr_source *s, struct block *block)
{
    uint32_t n_state = s->blocks->n_state;
    embd__blocks_first_states(s->blocks, block);
    if (!s->state)
        return EMBD_OK;
    for (uint32_t i = 0; i < block->n; i++)
        if (embd__state_next(s->state, embd__hugectr_source_gpu(s, block, i),
                             block->states + (size_t)i * n_state, &block->error))
            return block->error.status;
    return embd__blocks_check_finite(s->blocks, block, s->state->file.path, block->states, n_state);
}

static int read_rows(void *arg, struct block *block)
{
    const struct hugectr_source *s = arg;
    const struct plain_file *file = &s->folder->vector;
    uint64_t row_bytes = 4 * (uint64_t)s->schema->dim;
    if (embd__plain_read(file, block->first * row_bytes, block->vectors, block->n * row_bytes,
                         &block->error))
        return block->error.status;
    if (embd__blocks_check_finite(s->blocks, block, file->path, block->vectors, s->schema->dim))
        return block->error.status;
    return read_states(s, block);
}

static uint64_t rows_from(void *arg, uint64_t row)
{
    return ((const struct hugectr_source *)arg)->folder->n_rows - row;
}

struct blocks_source embd__hugectr_source(struct hugectr_source *source)
{
    return (struct blocks_source){
        .rows_from = rows_from, .read_keys = read_keys, .read_rows = read_rows, .arg = source};
}
