/* trunk.c - see trunk.h. */
#include "proto/trunk.h"

#include <string.h>

#include "proto/little.h"

void embd__trunk_head(uint8_t out[TRUNK_HEAD_BYTES], uint32_t kind, uint32_t stream, uint32_t value)
{
    embd__put_u32(out, kind);
    embd__put_u32(out + 4, stream);
    embd__put_u32(out + 8, value);
}

/* Which values each kind may have. */
static bool is_allowed(const struct trunk_chunk *chunk, bool from_client)
{
    if (embd__trunk_slot(chunk->stream) >= TRUNK_SLOTS)
        return false;
    switch (chunk->kind) {
    case TRUNK_OPEN:
        return from_client && chunk->value < LIMIT_SHARDS;
    case TRUNK_DATA:
        return chunk->value > 0 && chunk->value <= TRUNK_DATA_BYTES;
    case TRUNK_END:
    case TRUNK_CLOSE:
        return chunk->value == 0;
    case TRUNK_CREDIT:
        return !from_client && chunk->value > 0 && chunk->value <= TRUNK_WINDOW_BYTES;
    default:
        return false;
    }
}

static int end_head(struct trunk_reader *r, bool from_client, struct embd__error *e)
{
    struct trunk_chunk *chunk = &r->chunk;
    *chunk = (struct trunk_chunk){embd__get_u32(r->head), embd__get_u32(r->head + 4),
                                  embd__get_u32(r->head + 8)};
    r->head_bytes = 0;
    if (!is_allowed(chunk, from_client))
        return embd__error_set(e, EMBD_PROTOCOL,
                               "a trunk chunk of kind %u, stream %u and value %u is not allowed",
                               chunk->kind, chunk->stream, chunk->value);
    r->left = chunk->kind == TRUNK_DATA ? chunk->value : 0;
    return TRUNK_CHUNK;
}

int embd__trunk_read(struct trunk_reader *r, bool from_client, const uint8_t *p, size_t n,
                     size_t *used_out, struct embd__error *e)
{
    if (r->left > 0) {
        *used_out = n < r->left ? n : r->left;
        r->left -= (uint32_t)*used_out;
        return TRUNK_BYTES;
    }
    size_t wanted = TRUNK_HEAD_BYTES - r->head_bytes;
    *used_out = n < wanted ? n : wanted;
    memcpy(r->head + r->head_bytes, p, *used_out);
    r->head_bytes += (uint32_t)*used_out;
    return r->head_bytes == TRUNK_HEAD_BYTES ? end_head(r, from_client, e) : TRUNK_MORE;
}
