/* opened.c - a list, looked through for first pushes alone. */
#include "client/opened.h"

#include <stdlib.h>

/* A shard forgets no stream that was opened so lately. */
#define REMEMBERED_NS UINT64_C(300000000000)

struct opened_stream {
    uint64_t high, low;
    uint32_t stream, shard;
    uint64_t since_ns; /* 0: it was answered */
};

void embd__opened_fini(struct opened *opened)
{
    free(opened->list);
}

/* NULL: none. */
static struct opened_stream *find(const struct opened *opened, const struct push_writer *stream,
                                  uint32_t shard)
{
    for (uint32_t i = opened->n; i > 0; i--) {
        struct opened_stream *s = &opened->list[i - 1];
        if (s->high == stream->high && s->low == stream->low && s->stream == stream->stream &&
            s->shard == shard)
            return s;
    }
    return NULL;
}

static bool has_room(struct opened *opened)
{
    if (opened->n < opened->capacity)
        return true;
    uint32_t capacity = 2 * opened->capacity + 8;
    struct opened_stream *list = realloc(opened->list, capacity * sizeof *list);
    if (list == NULL)
        return false;
    opened->list = list;
    opened->capacity = capacity;
    return true;
}

int embd__opened_begin(struct opened *opened, const struct push_writer *stream, uint32_t shard,
                       uint64_t now_ns, bool *opens_out)
{
    const struct opened_stream *s = find(opened, stream, shard);
    *opens_out = s == NULL || (s->since_ns != 0 && now_ns - s->since_ns < REMEMBERED_NS);
    if (s != NULL)
        return EMBD_OK;
    if (!has_room(opened))
        return EMBD_NO_MEMORY;
    opened->list[opened->n++] =
        (struct opened_stream){stream->high, stream->low, (uint32_t)stream->stream, shard, now_ns};
    return EMBD_OK;
}

void embd__opened_end(struct opened *opened, const struct push_writer *stream, uint32_t shard,
                      uint64_t began_ns, enum opened_end end)
{
    struct opened_stream *s = find(opened, stream, shard);
    if (s == NULL)
        return; /* another call's, which was not opened either */
    if (end == OPENED)
        s->since_ns = 0;
    else if (end == NOT_OPENED && s->since_ns == began_ns)
        *s = opened->list[--opened->n];
}
