/* writers.c - streams in an array, found through chained buckets; those of a principal in a list
 * from the one that has not pushed for longest to the one that has just pushed. */
#include "server/engine/writers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define N_BUCKETS           65536u
#define N_PRINCIPAL_BUCKETS 4096u
#define IDLE_NS             (STREAM_IDLE_S * UINT64_C(1000000000))
#define CHOSEN_NS           UINT64_C(60000000000) /* an opening's record is written by then */

struct writer_stream {
    uint64_t high, low, last;
    uint64_t
        seen_ns; /* when it last pushed, or was opened; does not fall along a principal's list */
    uint64_t chosen_ns; /* when it was decided that it goes; 0: never */
    uint32_t stream;
    uint32_t principal;    /* in principals */
    uint32_t chained;      /* the next of its bucket, or that is free */
    uint32_t older, newer; /* 0: none */
};

struct principal {
    uint64_t id;
    uint32_t n; /* streams; 0: it is free */
    uint32_t oldest, newest;
    uint32_t chained;
};

struct principal_place {
    uint64_t id;
    uint32_t at; /* in principals */
};

void writers_fini(struct writers *writers)
{
    free(writers->streams);
    free(writers->principals);
    free(writers->places);
    free(writers->buckets);
    free(writers->principal_buckets);
    memset(writers, 0, sizeof *writers);
}

/* All at once, so that nothing can fail later; the system gives pages as they are used. */
static int open_memory(struct writers *writers, struct embd__error *e)
{
    if (writers->streams != NULL)
        return EMBD_OK;
    struct writers own = {
        .streams = calloc(WRITERS_MAX + 1, sizeof *own.streams),
        .principals = calloc(WRITERS_MAX + 1, sizeof *own.principals),
        .places = calloc(WRITERS_MAX + 1, sizeof *own.places),
        .buckets = calloc(N_BUCKETS, sizeof *own.buckets),
        .principal_buckets = calloc(N_PRINCIPAL_BUCKETS, sizeof *own.principal_buckets),
        .since_ns = writers->since_ns,
    };
    if (own.streams == NULL || own.principals == NULL || own.places == NULL ||
        own.buckets == NULL || own.principal_buckets == NULL ||
        getrandom(&own.seed, sizeof own.seed, 0) != sizeof own.seed) {
        writers_fini(&own);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to remember writers");
    }
    *writers = own;
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

static uint32_t *principal_bucket(const struct writers *writers, uint64_t id)
{
    return &writers->principal_buckets[XXH3_64bits(&id, sizeof id) % N_PRINCIPAL_BUCKETS];
}

/* 0: it has no streams. */
static uint32_t find_principal(const struct writers *writers, uint64_t id)
{
    if (writers->principals == NULL)
        return 0;
    uint32_t i = *principal_bucket(writers, id);
    while (i != 0 && writers->principals[i].id != id)
        i = writers->principals[i].chained;
    return i;
}

uint64_t writers_last(const struct writers *writers, const struct push_writer *stream)
{
    uint32_t i = find(writers, stream);
    return i == 0 ? 0 : writers->streams[i].last;
}

bool writers_know(const struct writers *writers, const struct push_writer *stream)
{
    return find(writers, stream) != 0;
}

/* ---- principals ---- */

static uint32_t add_principal(struct writers *writers, uint64_t id)
{
    uint32_t i = writers->free_principal;
    if (i != 0)
        writers->free_principal = writers->principals[i].chained;
    else
        i = ++writers->n_principals;
    uint32_t *bucket = principal_bucket(writers, id);
    writers->principals[i] = (struct principal){.id = id, .chained = *bucket};
    *bucket = i;
    return i;
}

static void remove_principal(struct writers *writers, uint32_t i)
{
    struct principal *p = &writers->principals[i];
    uint32_t *at = principal_bucket(writers, p->id);
    while (*at != i)
        at = &writers->principals[*at].chained;
    *at = p->chained;
    p->chained = writers->free_principal;
    writers->free_principal = i;
}

static void unlink_age(struct writers *writers, uint32_t i)
{
    struct writer_stream *s = &writers->streams[i];
    struct principal *p = &writers->principals[s->principal];
    *(s->older != 0 ? &writers->streams[s->older].newer : &p->oldest) = s->newer;
    *(s->newer != 0 ? &writers->streams[s->newer].older : &p->newest) = s->older;
}

static void link_newest(struct writers *writers, uint32_t i)
{
    struct writer_stream *s = &writers->streams[i];
    struct principal *p = &writers->principals[s->principal];
    s->older = p->newest;
    s->newer = 0;
    *(s->older != 0 ? &writers->streams[s->older].newer : &p->oldest) = i;
    p->newest = i;
}

/* ---- streams ---- */

/* There is room. */
static uint32_t add(struct writers *writers, const struct push_writer *id, uint64_t principal)
{
    uint32_t i = writers->free_stream, at = find_principal(writers, principal);
    if (i != 0)
        writers->free_stream = writers->streams[i].chained;
    else
        i = writers->n + 1;
    if (at == 0)
        at = add_principal(writers, principal);
    uint32_t *bucket = bucket_of(writers, id->high, id->low, id->stream);
    writers->streams[i] = (struct writer_stream){.high = id->high,
                                                 .low = id->low,
                                                 .stream = (uint32_t)id->stream,
                                                 .principal = at,
                                                 .chained = *bucket};
    *bucket = i;
    link_newest(writers, i);
    writers->principals[at].n++;
    writers->n++;
    return i;
}

static void forget(struct writers *writers, uint32_t i)
{
    struct writer_stream *s = &writers->streams[i];
    uint32_t *at = bucket_of(writers, s->high, s->low, s->stream);
    while (*at != i)
        at = &writers->streams[*at].chained;
    *at = s->chained;
    unlink_age(writers, i);
    if (--writers->principals[s->principal].n == 0)
        remove_principal(writers, s->principal);
    s->chained = writers->free_stream;
    writers->free_stream = i;
    writers->n--;
}

/* ---- pushes ---- */

static void see(struct writers *writers, struct writer_stream *s, uint64_t now_ns)
{
    if (writers->since_ns == 0)
        writers->since_ns = now_ns;
    s->seen_ns = now_ns;
}

int writers_look(const struct writers *writers, const struct push_writer *push,
                 struct embd__error *e)
{
    uint32_t i = find(writers, push);
    if (i == 0)
        return embd__error_set(
            e, EMBD_FORGOTTEN,
            "the writer's stream %llu is not known, so its push %llu cannot be told "
            "from one that was applied; a new stream begins with stream_open",
            (unsigned long long)push->stream, (unsigned long long)push->sequence);
    const struct writer_stream *s = &writers->streams[i];
    if (push->sequence <= s->last)
        return WRITER_AGAIN;
    if (push->sequence == s->last + 1)
        return EMBD_OK;
    return embd__error_set(e, EMBD_GAP,
                           "push %llu of the writer's stream %llu; the last one applied is %llu",
                           (unsigned long long)push->sequence, (unsigned long long)push->stream,
                           (unsigned long long)s->last);
}

void writers_note(struct writers *writers, const struct push_writer *push, uint64_t now_ns)
{
    uint32_t i = find(writers, push);
    unlink_age(writers, i);
    link_newest(writers, i);
    writers->streams[i].last = push->sequence;
    see(writers, &writers->streams[i], now_ns);
}

void writers_take_back(struct writers *writers, const struct push_writer *push)
{
    uint32_t i = find(writers, push);
    if (i != 0 && writers->streams[i].last == push->sequence)
        writers->streams[i].last--;
}

/* ---- deciding ---- */

static uint32_t most_of(uint64_t principal)
{
    return principal == PRINCIPAL_EVERYBODY ? WRITERS_MAX : STREAMS_PER_PRINCIPAL;
}

static bool is_longer_ago(uint64_t then_ns, uint64_t now_ns, uint64_t ns)
{
    return now_ns > then_ns && now_ns - then_ns >= ns;
}

/* 0: none of this principal's that is idle, and not on its way out for another one. */
static uint32_t idle_of(const struct writers *writers, uint32_t principal, uint64_t now_ns)
{
    if (principal == 0 || !is_longer_ago(writers->since_ns, now_ns, IDLE_NS))
        return 0;
    uint32_t i = writers->principals[principal].oldest;
    for (; i != 0 && is_longer_ago(writers->streams[i].seen_ns, now_ns, IDLE_NS);
         i = writers->streams[i].newer) {
        uint64_t chosen_ns = writers->streams[i].chosen_ns;
        if (chosen_ns == 0 || is_longer_ago(chosen_ns, now_ns, CHOSEN_NS))
            return i;
    }
    return 0;
}

static uint32_t idle_of_the_gone(const struct writers *writers, principal_is_gone *is_gone,
                                 const void *arg, uint64_t now_ns)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i <= writers->n_principals && found == 0; i++)
        if (writers->principals[i].n > 0 && is_gone(arg, writers->principals[i].id))
            found = idle_of(writers, i, now_ns);
    return found;
}

static int refuse_own(const char *who, struct embd__error *e)
{
    return embd__error_set(
        e, EMBD_FULL,
        "%s has %u push streams, the limit is %u, and none of them has been idle "
        "for %u s: go on with a stream that is open, or open this one later",
        who, STREAMS_PER_PRINCIPAL, STREAMS_PER_PRINCIPAL, STREAM_IDLE_S);
}

static int refuse_all(const char *who, struct embd__error *e)
{
    return embd__error_set(
        e, EMBD_FULL,
        "the shard has %u push streams, the limit is %u, and none that %s opened has "
        "been idle for %u s: go on with a stream that is open, or open this one later",
        WRITERS_MAX, WRITERS_MAX, who, STREAM_IDLE_S);
}

int writers_decide(struct writers *writers, struct stream_opening *opening,
                   principal_is_gone *is_gone, const void *arg, const char *who, uint64_t now_ns,
                   struct embd__error *e)
{
    opening->forgets = false;
    if (open_memory(writers, e) != EMBD_OK)
        return e->status;
    if (writers->since_ns == 0)
        writers->since_ns = now_ns;
    uint32_t own = find_principal(writers, opening->principal);
    bool is_own_full = own != 0 && writers->principals[own].n >= most_of(opening->principal);
    if (!is_own_full && writers->n < WRITERS_MAX)
        return EMBD_OK;
    uint32_t i = idle_of(writers, own, now_ns);
    if (i == 0 && is_own_full && opening->principal != PRINCIPAL_EVERYBODY)
        return refuse_own(who, e);
    if (i == 0)
        i = idle_of_the_gone(writers, is_gone, arg, now_ns);
    if (i == 0)
        return refuse_all(who, e);
    struct writer_stream *s = &writers->streams[i];
    s->chosen_ns = now_ns;
    opening->forgets = true;
    opening->forgotten = (struct push_writer){.high = s->high, .low = s->low, .stream = s->stream};
    return EMBD_OK;
}

int writers_open(struct writers *writers, const struct stream_opening *opening, uint64_t now_ns,
                 struct embd__error *e)
{
    if (open_memory(writers, e) != EMBD_OK)
        return e->status;
    if (find(writers, &opening->stream) != 0)
        return WRITER_AGAIN;
    uint32_t goes = opening->forgets ? find(writers, &opening->forgotten) : 0;
    uint32_t own = find_principal(writers, opening->principal);
    bool is_own = goes != 0 && writers->streams[goes].principal == own;
    uint32_t n_own = own == 0 ? 0 : writers->principals[own].n;
    if (writers->n - (goes != 0) >= WRITERS_MAX || n_own - is_own >= most_of(opening->principal))
        return embd__error_set(
            e, EMBD_FULL,
            "of push streams others were opened meanwhile: the limits are %u, and %u of "
            "each token",
            WRITERS_MAX, STREAMS_PER_PRINCIPAL);
    if (goes != 0)
        forget(writers, goes);
    uint32_t i = add(writers, &opening->stream, opening->principal);
    see(writers, &writers->streams[i], now_ns);
    return EMBD_OK;
}

/* ---- all ---- */

static int by_id(const void *a, const void *b)
{
    const struct principal_place *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t list_one(const struct writers *writers, const struct principal *p,
                         struct push_stream *out)
{
    uint32_t n = 0;
    for (uint32_t i = p->oldest; i != 0; i = writers->streams[i].newer) {
        const struct writer_stream *s = &writers->streams[i];
        out[n++] = (struct push_stream){s->high, s->low, s->last, s->stream, p->id};
    }
    return n;
}

uint32_t writers_list(const struct writers *writers, struct push_stream *out)
{
    uint32_t n = 0, n_places = 0;
    for (uint32_t i = 1; i <= writers->n_principals; i++)
        if (writers->principals[i].n > 0)
            writers->places[n_places++] = (struct principal_place){writers->principals[i].id, i};
    if (n_places > 0)
        qsort(writers->places, n_places, sizeof *writers->places, by_id);
    for (uint32_t i = 0; i < n_places; i++)
        n += list_one(writers, &writers->principals[writers->places[i].at], out + n);
    return n;
}

static void restore_one(struct writers *writers, const struct push_stream *stream, uint64_t now_ns)
{
    const struct push_writer id = {
        .high = stream->high, .low = stream->low, .stream = stream->stream};
    uint32_t i = find(writers, &id);
    if (i != 0)
        forget(writers, i);
    i = add(writers, &id, stream->principal);
    writers->streams[i].last = stream->last;
    see(writers, &writers->streams[i], now_ns);
}

int writers_check_room(const struct writers *writers, const struct push_stream *list, uint32_t n,
                       struct embd__error *e)
{
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct push_writer id = {
            .high = list[i].high, .low = list[i].low, .stream = list[i].stream};
        n_new += find(writers, &id) == 0;
    }
    if (n_new > WRITERS_MAX - writers->n)
        return embd__error_set(e, EMBD_FULL,
                               "%u push streams more, and the shard has %u: the limit is %u", n_new,
                               writers->n, WRITERS_MAX);
    return EMBD_OK;
}

int writers_restore(struct writers *writers, const struct push_stream *list, uint32_t n,
                    uint64_t now_ns, struct embd__error *e)
{
    if (open_memory(writers, e) != EMBD_OK || writers_check_room(writers, list, n, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n; i++)
        restore_one(writers, &list[i], now_ns);
    return EMBD_OK;
}

int writers_begin_old(struct writers *writers, const struct push_writer *push,
                      struct embd__error *e)
{
    if (open_memory(writers, e) != EMBD_OK)
        return e->status;
    uint32_t everybody = find_principal(writers, PRINCIPAL_EVERYBODY);
    if (writers->n == WRITERS_MAX && everybody == 0)
        return refuse_all("everybody", e);
    if (writers->n == WRITERS_MAX)
        forget(writers, writers->principals[everybody].oldest);
    add(writers, push, PRINCIPAL_EVERYBODY);
    return EMBD_OK;
}
