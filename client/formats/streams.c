/* streams.c - see streams.h.
 *
 * A push goes to every shard under one number, and is in a snapshot on all shards or on none. So if
 * all shards agree on a stream, that is true of its rows on any number of shards. Streams on which
 * they differ (of a pusher that numbers its pushes by shard, or one that some have forgotten) are
 * left out: the next push of such a stream is refused, and none is applied twice. */
#include "client/core/client.h"
#include "client/formats/streams.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/formats/admin.h"
#include "proto/stored/streamsread.h"

#define KINDS 2 /* of tables that are not journaled, and of those that are */

/* One shard's. */
struct shard_streams {
    uint8_t *bytes; /* of the file, malloc'd; NULL: none */
    struct streamsfile head;
};

struct streams {
    embd_client *client;
    struct embd__error *e;               /* the client's */
    uint32_t n;                          /* shards of the snapshot */
    bool is_alike;                       /* they had the keys that shards have here */
    unsigned kinds;                      /* of the tables here */
    const struct streams_staged *staged; /* NULL: they are restored at once */
    struct shard_streams *shards;
    struct push_stream *list; /* [capacity] being sent */
    uint64_t capacity;
};

/* ---- files ---- */

static int read_share(struct streams *s, const struct dump_share *share)
{
    for (uint32_t i = 0; i < share->manifest.n_streams; i++) {
        const struct manifest_streams *w = &share->manifest.streams[i];
        struct shard_streams *shard = &s->shards[w->shard];
        free(shard->bytes);
        shard->bytes = embd__streams_read(share, w, &shard->head, s->e);
        if (!shard->bytes)
            return s->e->status;
    }
    return EMBD_OK;
}

/* ---- lists ---- */

static uint64_t count(const struct shard_streams *shard, int kind)
{
    return !shard->bytes ? 0 : kind ? shard->head.n_journaled : shard->head.n_other;
}

static struct push_stream stream_at(const struct shard_streams *shard, int kind, uint64_t i)
{
    return embd__streamsfile_stream(shard->bytes, kind ? shard->head.n_other + i : i);
}

/* Memory for the streams of a kind, of the shard that has the most. */
static int reserve(struct streams *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        for (int kind = 0; kind < KINDS; kind++)
            if (count(&s->shards[i], kind) > s->capacity)
                s->capacity = count(&s->shards[i], kind);
    s->list = malloc((s->capacity + 1) * sizeof *s->list);
    return s->list ? EMBD_OK
                   : embd__error_set(s->e, EMBD_NO_MEMORY, "no memory for %" PRIu64 " streams",
                                     s->capacity);
}

static uint64_t take_all(struct streams *s, uint32_t shard, int kind)
{
    uint64_t n = count(&s->shards[shard], kind);
    for (uint64_t i = 0; i < n; i++)
        s->list[i] = stream_at(&s->shards[shard], kind, i);
    return n;
}

static int take_common(struct streams *s, int kind, uint64_t *n_out)
{
    struct push_stream *other = malloc((s->capacity + 1) * sizeof *other);
    if (!other)
        return embd__error_set(s->e, EMBD_NO_MEMORY, "no memory for %" PRIu64 " streams",
                               s->capacity);
    *n_out = take_all(s, 0, kind);
    for (uint32_t shard = 1; shard < s->n; shard++) {
        uint64_t n = count(&s->shards[shard], kind);
        for (uint64_t i = 0; i < n; i++)
            other[i] = stream_at(&s->shards[shard], kind, i);
        *n_out = embd__streams_common(s->list, *n_out, other, n);
    }
    free(other);
    return EMBD_OK;
}

/* ---- sending ---- */

static struct msg *begin_list(struct streams *s, enum method method, uint64_t n, bool is_journaled)
{
    const struct streams_staged *staged = s->staged;
    struct msg *m = embd__admin_begin(s->client, method);
    embd__msg_map(m, staged ? 4 : 3);
    embd__msg_field_uint(m, "writers", n);
    embd__msg_field_bool(m, "journaled", is_journaled);
    if (staged) {
        embd__msg_field_uint(m, "id", staged->id);
        embd__msg_field_bool(m, "all", staged->is_all);
    } else {
        embd__msg_field_bool(m, "principals", true);
    }
    return m;
}

static int send_list(struct streams *s, uint32_t shard, uint64_t n, bool is_journaled)
{
    struct answer *answer;
    enum method method = s->staged ? METHOD_TABLE_STAGE : METHOD_WRITERS;
    if (n == 0)
        return EMBD_OK;
    struct msg *m = begin_list(s, method, n, is_journaled);
    embd__msg_bin(m, s->list, n * sizeof *s->list);
    int status = embd__request(s->client, shard, LISTENER_ADMIN, &answer);
    return status ? status : embd__admin_end(s->client, shard, method, answer);
}

/* Whether streams of that kind there belong to tables that are, or are not, journaled here. */
static bool goes(const struct streams *s, int kind, bool is_journaled)
{
    if (s->staged)
        return s->staged->goes[kind][is_journaled];
    bool becomes_journaled =
        s->kinds == STREAMS_JOURNALED || (s->kinds != STREAMS_OTHER && kind == 1);
    return becomes_journaled == is_journaled;
}

static int send_kind(struct streams *s, int kind)
{
    uint64_t n = 0;
    uint32_t n_here = embd_shard_count(s->client);
    if (!s->is_alike && take_common(s, kind, &n))
        return s->e->status;
    for (uint32_t i = 0; i < 2 * n_here; i++) {
        uint32_t shard = i / 2;
        if (goes(s, kind, i % 2) &&
            send_list(s, shard, s->is_alike ? take_all(s, shard, kind) : n, i % 2))
            return s->e->status;
    }
    return EMBD_OK;
}

static void run(struct streams *s, const struct dump_dir *dir)
{
    for (uint32_t i = 0; i < dir->n_shares && !s->e->status; i++)
        read_share(s, &dir->shares[i]);
    if (s->e->status == EMBD_OK && reserve(s) == EMBD_OK)
        for (int kind = 0; kind < KINDS && !s->e->status; kind++)
            send_kind(s, kind);
}

int embd__streams_load(embd_client *client, const struct dump_dir *dir, unsigned kinds,
                       const struct streams_staged *staged)
{
    struct streams s = {.client = client,
                        .e = embd__client_error(client),
                        .n = dir->shares[0].manifest.n_shards,
                        .is_alike =
                            embd__manifest_is_placed(&dir->shares[0].manifest, &client->placement),
                        .kinds = kinds,
                        .staged = staged};
    s.shards = calloc(s.n, sizeof *s.shards);
    if (!s.shards)
        return embd__error_set(s.e, EMBD_NO_MEMORY,
                               "no memory for the streams of %" PRIu32 " shards", s.n);
    run(&s, dir);
    for (uint32_t i = 0; i < s.n; i++)
        free(s.shards[i].bytes);
    free(s.shards);
    free(s.list);
    return s.e->status;
}
