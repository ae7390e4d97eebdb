/* snapshot_streams.c - the pushers that a shard knows at the cut, as a file of the snapshot
 * (proto/streamsfile.h): with the rows come the pushes that they have, so that a trainer goes on
 * with the next one wherever the snapshot is loaded. */
#include <stdlib.h>
#include <string.h>

#include "server/journal/journal.h"
#include "server/service/state.h"
#include "proto/streamsfile.h"

_Static_assert(PUSHER_STREAMS_MAX == STREAMSFILE_STREAMS_MAX,
               "a file holds all streams of a shard");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ &&
                   sizeof(struct push_stream) == STREAM_BYTES,
               "a stream in memory is one in a file");

int snapshot_streams_cut(const struct shard *shard, struct snapshot_streams *out,
                         struct embd__error *e)
{
    const struct streamsfile head = {
        .version = STREAMSFILE_VERSION,
        .shard = shard->config.index,
        .n_shards = shard->config.n_shards,
        .n_other = shard->engine.pushers.n,
        .n_journaled = shard->engine.journaled_pushers.n,
        .position = shard->commit.journal == NULL ? 0 : journal_position(shard->commit.journal),
        .chain = shard->commit.journal == NULL ? 0 : journal_chain(shard->commit.journal),
    };
    *out = (struct snapshot_streams){.part.bytes = embd__streamsfile_bytes(&head)};
    out->bytes = malloc(out->part.bytes);
    if (out->bytes == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the pushers of a snapshot");
    embd__streamsfile_name(out->file, head.shard);
    embd__streamsfile_header(out->bytes, &head);
    struct push_stream *list =
        (struct push_stream *)(void *)((uint8_t *)out->bytes + STREAMSFILE_HEADER_BYTES);
    list += pushers_list(&shard->engine.pushers, list, NULL);
    pushers_list(&shard->engine.journaled_pushers, list, NULL);
    out->part.shard = head.shard;
    out->part.xxh3 = XXH3_64bits(out->bytes, (size_t)out->part.bytes);
    return EMBD_OK;
}
