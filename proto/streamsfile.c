/* streamsfile.c - see streamsfile.h. */
#include "proto/streamsfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/little.h"

static const char magic[8] = "EMBDWRTR";

enum {
    AT_VERSION = 8,
    AT_SHARD = 12,
    AT_SHARDS = 16,
    AT_OTHER = 24,
    AT_JOURNALED = 32,
    AT_POSITION = 40,
    AT_CHAIN = 48,
};

void embd__streamsfile_name(char out[STREAMSFILE_NAME], uint32_t shard)
{
    snprintf(out, STREAMSFILE_NAME, "%u.writers", shard);
}

static uint64_t stream_bytes(uint32_t version)
{
    return version == 1 ? STREAM_BYTES_OLD : STREAM_BYTES;
}

uint64_t embd__streamsfile_bytes(const struct streamsfile *file)
{
    return STREAMSFILE_HEADER_BYTES +
           (file->n_other + file->n_journaled) * stream_bytes(file->version);
}

void embd__streamsfile_header(uint8_t out[STREAMSFILE_HEADER_BYTES], const struct streamsfile *file)
{
    memset(out, 0, STREAMSFILE_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    embd__put_u32(out + AT_VERSION, file->version);
    embd__put_u32(out + AT_SHARD, file->shard);
    embd__put_u32(out + AT_SHARDS, file->n_shards);
    embd__put_u64(out + AT_OTHER, file->n_other);
    embd__put_u64(out + AT_JOURNALED, file->n_journaled);
    embd__put_u64(out + AT_POSITION, file->position);
    embd__put_u64(out + AT_CHAIN, file->chain);
}

/* Whether a stream may be so. EMBD_INVALID naming the value. */
static int check_stream(const struct push_stream *stream, bool has_principals,
                        struct embd__error *e)
{
    if (stream->stream > UINT32_MAX)
        return embd__error_set(e, EMBD_INVALID, "writers stream: %llu, the maximum is %u",
                               (unsigned long long)stream->stream, UINT32_MAX);
    if ((stream->last == 0 && !has_principals) || stream->last == UINT64_MAX)
        return embd__error_set(e, EMBD_INVALID,
                               "writers sequence: %llu, allowed are %d to 2^64 - 2",
                               (unsigned long long)stream->last, !has_principals);
    return EMBD_OK;
}

static struct push_stream read_stream(const uint8_t *list, bool has_principals, uint64_t i)
{
    const uint8_t *at = list + i * (has_principals ? STREAM_BYTES : STREAM_BYTES_OLD);
    return (struct push_stream){embd__get_u64(at), embd__get_u64(at + 8), embd__get_u64(at + 16),
                                embd__get_u64(at + 24),
                                has_principals ? embd__get_u64(at + 32) : 0};
}

struct push_stream embd__streamsfile_stream(const uint8_t *bytes, uint64_t i)
{
    return read_stream(bytes + STREAMSFILE_HEADER_BYTES, embd__get_u32(bytes + AT_VERSION) != 1, i);
}

static int check_streams(const uint8_t *bytes, const struct streamsfile *file,
                         struct embd__error *e)
{
    uint64_t n = file->n_other + file->n_journaled;
    struct embd__error inner = {.status = EMBD_OK};
    for (uint64_t i = 0; i < n; i++) {
        struct push_stream stream = embd__streamsfile_stream(bytes, i);
        if (check_stream(&stream, file->version != 1, &inner) != EMBD_OK)
            return embd__error_set(e, EMBD_CORRUPT, "entry %llu: %s", (unsigned long long)i,
                                   inner.text);
    }
    return EMBD_OK;
}

int embd__streamsfile_read_header(const uint8_t *bytes, uint64_t n, struct streamsfile *out,
                                  struct embd__error *e)
{
    if (n < STREAMSFILE_HEADER_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return embd__error_set(e, EMBD_CORRUPT, "the file does not begin with EMBDWRTR");
    uint32_t version = embd__get_u32(bytes + AT_VERSION);
    if (version == 0 || version > STREAMSFILE_VERSION)
        return embd__error_set(e, EMBD_UNSUPPORTED, "its version is %u, this one reads 1 to %u",
                               version, STREAMSFILE_VERSION);
    *out = (struct streamsfile){
        .version = version,
        .shard = embd__get_u32(bytes + AT_SHARD),
        .n_shards = embd__get_u32(bytes + AT_SHARDS),
        .n_other = embd__get_u64(bytes + AT_OTHER),
        .n_journaled = embd__get_u64(bytes + AT_JOURNALED),
        .position = embd__get_u64(bytes + AT_POSITION),
        .chain = embd__get_u64(bytes + AT_CHAIN),
    };
    return EMBD_OK;
}

int embd__streamsfile_read(const uint8_t *bytes, uint64_t n, struct streamsfile *out,
                           struct embd__error *e)
{
    if (embd__streamsfile_read_header(bytes, n, out, e) != EMBD_OK)
        return e->status;
    if (out->n_other > STREAMSFILE_STREAMS_MAX || out->n_journaled > STREAMSFILE_STREAMS_MAX)
        return embd__error_set(e, EMBD_CORRUPT,
                               "it has %llu and %llu streams, a shard has %u at most",
                               (unsigned long long)out->n_other,
                               (unsigned long long)out->n_journaled, STREAMSFILE_STREAMS_MAX);
    if (n != embd__streamsfile_bytes(out))
        return embd__error_set(e, EMBD_CORRUPT, "it has %llu bytes, expected %llu",
                               (unsigned long long)n,
                               (unsigned long long)embd__streamsfile_bytes(out));
    return check_streams(bytes, out, e);
}

struct push_stream *embd__streams_take(const uint8_t *list, uint64_t n, bool has_principals,
                                       struct embd__error *e)
{
    struct push_stream *streams = malloc((n + 1) * sizeof *streams);
    if (streams == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu streams", (unsigned long long)n);
    for (uint64_t i = 0; i < n && e->status == EMBD_OK; i++) {
        streams[i] = read_stream(list, has_principals, i);
        check_stream(&streams[i], has_principals, e);
    }
    if (e->status == EMBD_OK)
        return streams;
    free(streams);
    return NULL;
}

static int by_stream(const void *a, const void *b)
{
    const struct push_stream *x = a, *y = b;
    if (x->high != y->high)
        return x->high < y->high ? -1 : 1;
    if (x->low != y->low)
        return x->low < y->low ? -1 : 1;
    return (x->stream > y->stream) - (x->stream < y->stream);
}

uint64_t embd__streams_common(struct push_stream *kept, uint64_t n, struct push_stream *other,
                              uint64_t n_other)
{
    uint64_t n_kept = 0;
    if (n_other == 0)
        return 0;
    qsort(other, n_other, sizeof *other, by_stream);
    for (uint64_t i = 0; i < n; i++) {
        const struct push_stream *found =
            bsearch(&kept[i], other, n_other, sizeof *other, by_stream);
        if (found != NULL && found->last == kept[i].last && found->principal == kept[i].principal)
            kept[n_kept++] = kept[i];
    }
    return n_kept;
}
