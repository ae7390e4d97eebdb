/* streamsread.c - see streamsread.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "proto/stored/plainfile.h"
#include "proto/stored/streamsread.h"

static int check(const char *directory, const char *name, const uint8_t *bytes,
                 const struct manifest_streams *w, uint32_t n_shards, struct streamsfile *head_out,
                 struct embd__error *e)
{
    struct embd__error inner = {0};
    if (embd__streamsfile_read(bytes, w->bytes, head_out, &inner))
        return embd__error_set(e, inner.status, "%s/%s: %s", directory, name, inner.text);
    if (head_out->shard != w->shard || head_out->n_shards != n_shards)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s/%s: is of shard %" PRIu32 " of %" PRIu32
                               ", the manifest says %" PRIu32 " of %" PRIu32,
                               directory, name, head_out->shard, head_out->n_shards, w->shard,
                               n_shards);
    return EMBD_OK;
}

uint8_t *embd__streams_read(const struct dump_share *share, const struct manifest_streams *w,
                            struct streamsfile *head_out, struct embd__error *e)
{
    char name[STREAMSFILE_NAME];
    embd__streamsfile_name(name, w->shard);
    uint8_t *bytes = embd__plain_load(share->path, name, w->bytes, w->xxh3, e);
    if (bytes != NULL &&
        check(share->path, name, bytes, w, share->manifest.n_shards, head_out, e) != EMBD_OK) {
        free(bytes);
        bytes = NULL;
    }
    return bytes;
}

int embd__streams_verify(const struct dump_share *share, struct embd__error *e)
{
    struct streamsfile head;
    for (uint32_t i = 0; i < share->manifest.n_streams && e->status == EMBD_OK; i++)
        free(embd__streams_read(share, &share->manifest.streams[i], &head, e));
    return e->status;
}
