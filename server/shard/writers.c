/* writers.c - streams in an array, found through chained buckets, in a list from the one that has
 * not pushed for longest to the one that has just pushed. */
#include "writers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define N_BUCKETS 65536u

struct writer_stream {
    uint64_t high, low, last;
    uint64_t stream;
    uint32_t chained;      /* the next of its bucket */
    uint32_t older, newer; /* 0: none */
};

void writers_fini(struct writers *writers)
{
    free(writers->streams);
    free(writers->buckets);
    memset(writers, 0, sizeof *writers);
}

/* All at once, so that noting a push cannot fail; the system gives pages as they are used. */
static int open_memory(struct writers *writers, struct embd__error *e)
{
    if (writers->streams != NULL)
        return EMBD_OK;
    struct writer_stream *streams = calloc(WRITERS_MAX + 1, sizeof *streams);
    uint32_t *buckets = calloc(N_BUCKETS, sizeof *buckets);
    if (streams == NULL || buckets == NULL ||
        getrandom(&writers->seed, sizeof writers->seed, 0) != sizeof writers->seed) {
        free(streams);
        free(buckets);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to remember writers");
    }
    writers->streams = streams;
    writers->buckets = buckets;
    return EMBD_OK;
}

/* ---- finding ---- */

static uint32_t *bucket_of(const struct writers *writers, uint64_t high, uint64_t low,
                           uint64_t stream)
{
    const uint64_t id[3] = {high, low, stream};
    return &writers->buckets[XXH3_64bits_withSeed(id, sizeof id, writers->seed) % N_BUCKETS];
}

/* 0: there is none. */
static uint32_t find(const struct writers *writers, const struct push_writer *push)
{
    if (writers->streams == NULL)
        return 0;
    uint32_t i = *bucket_of(writers, push->high, push->low, push->stream);
    for (; i != 0; i = writers->streams[i].chained) {
        const struct writer_stream *s = &writers->streams[i];
        if (s->high == push->high && s->low == push->low && s->stream == push->stream)
            break;
    }
    return i;
}

uint64_t writers_last(const struct writers *writers, const struct push_writer *stream)
{
    uint32_t i = find(writers, stream);
    return i == 0 ? 0 : writers->streams[i].last;
}

int writers_look(struct writers *writers, const struct push_writer *push, struct embd__error *e)
{
    if (open_memory(writers, e) != EMBD_OK)
        return e->status;
    uint64_t last = writers_last(writers, push);
    if (push->sequence <= last)
        return WRITER_AGAIN;
    if (push->sequence == last + 1)
        return EMBD_OK;
    if (last == 0)
        return embd__error_set(e, EMBD_FORGOTTEN,
                               "the writer's stream %llu is not known, so its push %llu cannot be told "
                               "from one that was applied; a new stream begins with 1",
                               (unsigned long long)push->stream, (unsigned long long)push->sequence);
    return embd__error_set(e, EMBD_GAP,
                           "push %llu of the writer's stream %llu; the last one applied is %llu",
                           (unsigned long long)push->sequence, (unsigned long long)push->stream,
                           (unsigned long long)last);
}

/* ---- noting ---- */

static void unlink_age(struct writers *writers, uint32_t i)
{
    struct writer_stream *s = &writers->streams[i];
    *(s->older != 0 ? &writers->streams[s->older].newer : &writers->oldest) = s->newer;
    *(s->newer != 0 ? &writers->streams[s->newer].older : &writers->newest) = s->older;
}

static void link_newest(struct writers *writers, uint32_t i)
{
    struct writer_stream *s = &writers->streams[i];
    s->older = writers->newest;
    s->newer = 0;
    *(s->older != 0 ? &writers->streams[s->older].newer : &writers->oldest) = i;
    writers->newest = i;
}

/* The place of the one that has not pushed for longest. */
static uint32_t forget_oldest(struct writers *writers)
{
    uint32_t i = writers->oldest;
    const struct writer_stream *s = &writers->streams[i];
    uint32_t *at = bucket_of(writers, s->high, s->low, s->stream);
    while (*at != i)
        at = &writers->streams[*at].chained;
    *at = s->chained;
    unlink_age(writers, i);
    return i;
}

static uint32_t add(struct writers *writers, const struct push_writer *push)
{
    uint32_t i = writers->n < WRITERS_MAX ? ++writers->n : forget_oldest(writers);
    uint32_t *bucket = bucket_of(writers, push->high, push->low, push->stream);
    writers->streams[i] = (struct writer_stream){
        .high = push->high, .low = push->low, .stream = push->stream, .chained = *bucket};
    *bucket = i;
    return i;
}

void writers_note(struct writers *writers, const struct push_writer *push)
{
    uint32_t i = find(writers, push);
    if (i != 0)
        unlink_age(writers, i);
    else
        i = add(writers, push);
    link_newest(writers, i);
    writers->streams[i].last = push->sequence;
}

void writers_take_back(struct writers *writers, const struct push_writer *push)
{
    uint32_t i = find(writers, push);
    if (i != 0 && writers->streams[i].last == push->sequence)
        writers->streams[i].last--;
}

uint32_t writers_list(const struct writers *writers, struct push_writer *out)
{
    uint32_t n = 0;
    for (uint32_t i = writers->oldest; i != 0; i = writers->streams[i].newer) {
        const struct writer_stream *s = &writers->streams[i];
        out[n++] = (struct push_writer){s->high, s->low, s->last, s->stream};
    }
    return n;
}

int writers_restore(struct writers *writers, const struct push_writer *list, uint32_t n,
                    struct embd__error *e)
{
    if (open_memory(writers, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n; i++)
        writers_note(writers, &list[i]);
    return EMBD_OK;
}
