/* pushers.c - streams in an array, found through chained buckets; those of a principal in a list
 * from the one that has not pushed for longest to the one that has just pushed. */
#include "server/engine/pushers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "server/engine/pushers_inside.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define N_BUCKETS           65536u
#define N_PRINCIPAL_BUCKETS 4096u
#define IDLE_NS             (STREAM_IDLE_S * UINT64_C(1000000000))
#define CHOSEN_NS           UINT64_C(60000000000) /* an opening's record is written by then */

#define SETS_BYTES ((PUSHER_STREAMS_MAX + 1) * sizeof(struct table_set))

/* 34 MiB; streams take as much as they need. */
static struct table_set *new_sets(void)
{
    void *sets = mmap(NULL, SETS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return sets == MAP_FAILED ? NULL : sets;
}

void pushers_fini(struct pushers *pushers)
{
    free(pushers->streams);
    if (pushers->sets != NULL)
        munmap(pushers->sets, SETS_BYTES);
    free(pushers->principals);
    free(pushers->places);
    free(pushers->buckets);
    free(pushers->principal_buckets);
    memset(pushers, 0, sizeof *pushers);
}

int pushers_open_memory(struct pushers *pushers, struct embd__error *e)
{
    if (pushers->streams != NULL)
        return EMBD_OK;
    struct pushers own = {
        .streams = calloc(PUSHER_STREAMS_MAX + 1, sizeof *own.streams),
        .sets = new_sets(),
        .principals = calloc(PUSHER_STREAMS_MAX + 1, sizeof *own.principals),
        .places = calloc(PUSHER_STREAMS_MAX + 1, sizeof *own.places),
        .buckets = calloc(N_BUCKETS, sizeof *own.buckets),
        .principal_buckets = calloc(N_PRINCIPAL_BUCKETS, sizeof *own.principal_buckets),
        .since_ns = pushers->since_ns,
    };
    if (own.streams == NULL || own.sets == NULL || own.principals == NULL || own.places == NULL ||
        own.buckets == NULL || own.principal_buckets == NULL ||
        getrandom(&own.seed, sizeof own.seed, 0) != sizeof own.seed) {
        pushers_fini(&own);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to remember pushers");
    }
    *pushers = own;
    return EMBD_OK;
}

/* ---- finding ---- */

static uint32_t *bucket_of(const struct pushers *pushers, uint64_t high, uint64_t low,
                           uint64_t stream)
{
    const uint64_t id[3] = {high, low, stream};
    return &pushers->buckets[XXH3_64bits_withSeed(id, sizeof id, pushers->seed) % N_BUCKETS];
}

uint32_t pushers_find(const struct pushers *pushers, const struct push_number *push)
{
    if (pushers->streams == NULL)
        return 0;
    uint32_t i = *bucket_of(pushers, push->high, push->low, push->stream);
    for (; i != 0; i = pushers->streams[i].chained) {
        const struct pusher_stream *s = &pushers->streams[i];
        if (s->high == push->high && s->low == push->low && s->stream == push->stream)
            break;
    }
    return i;
}

static uint32_t *principal_bucket(const struct pushers *pushers, uint64_t id)
{
    return &pushers->principal_buckets[XXH3_64bits(&id, sizeof id) % N_PRINCIPAL_BUCKETS];
}

/* 0: it has no streams. */
static uint32_t find_principal(const struct pushers *pushers, uint64_t id)
{
    if (pushers->principals == NULL)
        return 0;
    uint32_t i = *principal_bucket(pushers, id);
    while (i != 0 && pushers->principals[i].id != id)
        i = pushers->principals[i].chained;
    return i;
}

uint64_t pushers_last(const struct pushers *pushers, const struct push_number *stream)
{
    uint32_t i = pushers_find(pushers, stream);
    return i == 0 ? 0 : pushers->streams[i].last;
}

bool pushers_are_of(const struct pushers *pushers, const struct push_stream *stream,
                    uint64_t principal)
{
    const struct push_number id = pushers_number_of(stream);
    uint32_t i = pushers_find(pushers, &id);
    return i != 0 && pushers->principals[pushers->streams[i].principal].id == principal;
}

bool pushers_know(const struct pushers *pushers, const struct push_number *stream)
{
    return pushers_find(pushers, stream) != 0;
}

/* ---- principals ---- */

static uint32_t add_principal(struct pushers *pushers, uint64_t id)
{
    uint32_t i = pushers->free_principal;
    if (i != 0)
        pushers->free_principal = pushers->principals[i].chained;
    else
        i = ++pushers->n_principals;
    uint32_t *bucket = principal_bucket(pushers, id);
    pushers->principals[i] = (struct principal){.id = id, .chained = *bucket};
    *bucket = i;
    return i;
}

static void remove_principal(struct pushers *pushers, uint32_t i)
{
    struct principal *p = &pushers->principals[i];
    uint32_t *at = principal_bucket(pushers, p->id);
    while (*at != i)
        at = &pushers->principals[*at].chained;
    *at = p->chained;
    p->chained = pushers->free_principal;
    pushers->free_principal = i;
}

static void unlink_age(struct pushers *pushers, uint32_t i)
{
    struct pusher_stream *s = &pushers->streams[i];
    struct principal *p = &pushers->principals[s->principal];
    *(s->older != 0 ? &pushers->streams[s->older].newer : &p->oldest) = s->newer;
    *(s->newer != 0 ? &pushers->streams[s->newer].older : &p->newest) = s->older;
}

static void link_newest(struct pushers *pushers, uint32_t i)
{
    struct pusher_stream *s = &pushers->streams[i];
    struct principal *p = &pushers->principals[s->principal];
    s->older = p->newest;
    s->newer = 0;
    *(s->older != 0 ? &pushers->streams[s->older].newer : &p->oldest) = i;
    p->newest = i;
}

/* ---- streams ---- */

/* There is room. */
static uint32_t add(struct pushers *pushers, const struct push_number *id, uint64_t principal)
{
    uint32_t i = pushers->free_stream, at = find_principal(pushers, principal);
    if (i != 0)
        pushers->free_stream = pushers->streams[i].chained;
    else
        i = pushers->n + 1;
    if (at == 0)
        at = add_principal(pushers, principal);
    uint32_t *bucket = bucket_of(pushers, id->high, id->low, id->stream);
    pushers->streams[i] = (struct pusher_stream){.high = id->high,
                                                 .low = id->low,
                                                 .stream = (uint32_t)id->stream,
                                                 .principal = at,
                                                 .chained = *bucket};
    pushers->sets[i] = (struct table_set){.may_have_others = 0};
    *bucket = i;
    link_newest(pushers, i);
    pushers->principals[at].n++;
    pushers->n++;
    return i;
}

void pushers_forget(struct pushers *pushers, uint32_t i)
{
    struct pusher_stream *s = &pushers->streams[i];
    uint32_t *at = bucket_of(pushers, s->high, s->low, s->stream);
    while (*at != i)
        at = &pushers->streams[*at].chained;
    *at = s->chained;
    unlink_age(pushers, i);
    if (--pushers->principals[s->principal].n == 0)
        remove_principal(pushers, s->principal);
    s->chained = pushers->free_stream;
    pushers->free_stream = i;
    pushers->n--;
}

/* ---- pushes ---- */

static void see(struct pushers *pushers, struct pusher_stream *s, uint64_t now_ns)
{
    if (pushers->since_ns == 0)
        pushers->since_ns = now_ns;
    s->seen_ns = now_ns;
}

int pushers_look(const struct pushers *pushers, const struct push_number *push,
                 struct embd__error *e)
{
    uint32_t i = pushers_find(pushers, push);
    if (i == 0)
        return embd__error_set(e, EMBD_FORGOTTEN,
                               "the pusher's stream %llu is not known: push %llu may have been "
                               "applied before; a new stream begins with stream_open",
                               (unsigned long long)push->stream,
                               (unsigned long long)push->sequence);
    const struct pusher_stream *s = &pushers->streams[i];
    if (push->sequence <= s->last)
        return PUSH_AGAIN;
    if (push->sequence == s->last + 1)
        return EMBD_OK;
    return embd__error_set(e, EMBD_GAP,
                           "push %llu of the pusher's stream %llu; the last one applied is %llu",
                           (unsigned long long)push->sequence, (unsigned long long)push->stream,
                           (unsigned long long)s->last);
}

void pushers_note(struct pushers *pushers, const struct push_number *push, uint64_t now_ns)
{
    uint32_t i = pushers_find(pushers, push);
    unlink_age(pushers, i);
    link_newest(pushers, i);
    pushers->streams[i].last = push->sequence;
    see(pushers, &pushers->streams[i], now_ns);
}

void pushers_note_table(struct pushers *pushers, const struct push_number *push, uint32_t table)
{
    uint32_t i = pushers_find(pushers, push);
    if (i != 0)
        table_set_add(&pushers->sets[i], table);
}

void pushers_take_back(struct pushers *pushers, const struct push_number *push)
{
    uint32_t i = pushers_find(pushers, push);
    if (i != 0 && pushers->streams[i].last == push->sequence)
        pushers->streams[i].last--;
}

/* ---- deciding ---- */

static uint32_t most_of(uint64_t principal)
{
    return principal == PRINCIPAL_EVERYBODY ? PUSHER_STREAMS_MAX : STREAMS_PER_PRINCIPAL;
}

static bool is_longer_ago(uint64_t then_ns, uint64_t now_ns, uint64_t ns)
{
    return now_ns > then_ns && now_ns - then_ns >= ns;
}

/* 0: none of this principal's that is idle, and not on its way out for another one. */
static uint32_t idle_of(const struct pushers *pushers, uint32_t principal, uint64_t now_ns)
{
    if (principal == 0 || !is_longer_ago(pushers->since_ns, now_ns, IDLE_NS))
        return 0;
    uint32_t i = pushers->principals[principal].oldest;
    for (; i != 0 && is_longer_ago(pushers->streams[i].seen_ns, now_ns, IDLE_NS);
         i = pushers->streams[i].newer) {
        uint64_t chosen_ns = pushers->streams[i].chosen_ns;
        if (chosen_ns == 0 || is_longer_ago(chosen_ns, now_ns, CHOSEN_NS))
            return i;
    }
    return 0;
}

static uint32_t idle_of_the_gone(const struct pushers *pushers, principal_is_gone *is_gone,
                                 const void *arg, uint64_t now_ns)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i <= pushers->n_principals && found == 0; i++)
        if (pushers->principals[i].n > 0 && is_gone(arg, pushers->principals[i].id))
            found = idle_of(pushers, i, now_ns);
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
        PUSHER_STREAMS_MAX, PUSHER_STREAMS_MAX, who, STREAM_IDLE_S);
}

int pushers_decide(struct pushers *pushers, struct stream_opening *opening,
                   principal_is_gone *is_gone, const void *arg, const char *who, uint64_t now_ns,
                   struct embd__error *e)
{
    opening->forgets = false;
    if (pushers_open_memory(pushers, e) != EMBD_OK)
        return e->status;
    if (pushers->since_ns == 0)
        pushers->since_ns = now_ns;
    uint32_t own = find_principal(pushers, opening->principal);
    bool is_own_full = own != 0 && pushers->principals[own].n >= most_of(opening->principal);
    if (!is_own_full && pushers->n < PUSHER_STREAMS_MAX)
        return EMBD_OK;
    uint32_t i = idle_of(pushers, own, now_ns);
    if (i == 0 && is_own_full && opening->principal != PRINCIPAL_EVERYBODY)
        return refuse_own(who, e);
    if (i == 0)
        i = idle_of_the_gone(pushers, is_gone, arg, now_ns);
    if (i == 0)
        return refuse_all(who, e);
    struct pusher_stream *s = &pushers->streams[i];
    s->chosen_ns = now_ns;
    opening->forgets = true;
    opening->forgotten = (struct push_number){.high = s->high, .low = s->low, .stream = s->stream};
    return EMBD_OK;
}

int pushers_open(struct pushers *pushers, const struct stream_opening *opening, uint64_t now_ns,
                 struct embd__error *e)
{
    if (pushers_open_memory(pushers, e) != EMBD_OK)
        return e->status;
    if (pushers_find(pushers, &opening->stream) != 0)
        return PUSH_AGAIN;
    uint32_t goes = opening->forgets ? pushers_find(pushers, &opening->forgotten) : 0;
    uint32_t own = find_principal(pushers, opening->principal);
    bool is_own = goes != 0 && pushers->streams[goes].principal == own;
    uint32_t n_own = own == 0 ? 0 : pushers->principals[own].n;
    if (pushers->n - (goes != 0) >= PUSHER_STREAMS_MAX ||
        n_own - is_own >= most_of(opening->principal))
        return embd__error_set(e, EMBD_FULL,
                               "other push streams were opened meanwhile: the limits are %u of a "
                               "shard and %u of a token",
                               PUSHER_STREAMS_MAX, STREAMS_PER_PRINCIPAL);
    if (goes != 0)
        pushers_forget(pushers, goes);
    uint32_t i = add(pushers, &opening->stream, opening->principal);
    see(pushers, &pushers->streams[i], now_ns);
    return EMBD_OK;
}

/* ---- all ---- */

static int by_id(const void *a, const void *b)
{
    const struct principal_place *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t list_one(const struct pushers *pushers, const struct principal *p,
                         struct push_stream *out, struct table_set *sets_out)
{
    uint32_t n = 0;
    for (uint32_t i = p->oldest; i != 0; i = pushers->streams[i].newer) {
        const struct pusher_stream *s = &pushers->streams[i];
        if (sets_out != NULL)
            sets_out[n] = pushers->sets[i];
        out[n++] = (struct push_stream){s->high, s->low, s->last, s->stream, p->id};
    }
    return n;
}

uint32_t pushers_list(const struct pushers *pushers, struct push_stream *out,
                      struct table_set *sets_out)
{
    uint32_t n = 0, n_places = 0;
    for (uint32_t i = 1; i <= pushers->n_principals; i++)
        if (pushers->principals[i].n > 0)
            pushers->places[n_places++] = (struct principal_place){pushers->principals[i].id, i};
    if (n_places > 0)
        qsort(pushers->places, n_places, sizeof *pushers->places, by_id);
    for (uint32_t i = 0; i < n_places; i++)
        n += list_one(pushers, &pushers->principals[pushers->places[i].at], out + n,
                      sets_out == NULL ? NULL : sets_out + n);
    return n;
}

uint32_t pushers_put(struct pushers *pushers, const struct push_stream *entry,
                     const struct table_set *tables, uint64_t now_ns)
{
    const struct push_number id = pushers_number_of(entry);
    uint32_t i = pushers_find(pushers, &id);
    if (i != 0)
        pushers_forget(pushers, i);
    i = add(pushers, &id, entry->principal);
    pushers->streams[i].last = entry->last;
    pushers->streams[i].lost = tables->may_have_others & TABLES_BEYOND ? entry->last : 0;
    pushers->sets[i] = *tables;
    see(pushers, &pushers->streams[i], now_ns);
    return i;
}

int pushers_check_room(const struct pushers *pushers, const struct push_stream *list, uint32_t n,
                       struct embd__error *e)
{
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct push_number id = pushers_number_of(&list[i]);
        n_new += pushers_find(pushers, &id) == 0;
    }
    if (n_new > PUSHER_STREAMS_MAX - pushers->n)
        return embd__error_set(
            e, EMBD_FULL,
            "writers: %u push streams more than the shard's %u exceed the limit of %u", n_new,
            pushers->n, PUSHER_STREAMS_MAX);
    return EMBD_OK;
}

int pushers_restore(struct pushers *pushers, const struct push_stream *list,
                    const struct table_set *sets, uint32_t n, uint64_t now_ns,
                    struct embd__error *e)
{
    static const struct table_set unknown = {.may_have_others = TABLES_UNKNOWN};
    if (pushers_open_memory(pushers, e) != EMBD_OK ||
        pushers_check_room(pushers, list, n, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n; i++)
        pushers_put(pushers, &list[i], sets == NULL ? &unknown : &sets[i], now_ns);
    return EMBD_OK;
}

int pushers_begin_old(struct pushers *pushers, const struct push_number *push,
                      struct embd__error *e)
{
    if (pushers_open_memory(pushers, e) != EMBD_OK)
        return e->status;
    uint32_t everybody = find_principal(pushers, PRINCIPAL_EVERYBODY);
    if (pushers->n == PUSHER_STREAMS_MAX && everybody == 0)
        return refuse_all("everybody", e);
    if (pushers->n == PUSHER_STREAMS_MAX)
        pushers_forget(pushers, pushers->principals[everybody].oldest);
    add(pushers, push, PRINCIPAL_EVERYBODY);
    return EMBD_OK;
}
