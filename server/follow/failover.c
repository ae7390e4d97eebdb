#include "server/follow/failover.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct failover_shard {
    atomic_uint_fast64_t position;
    atomic_bool is_ready;
    struct failover_view view; /* the shard's */
    /* Guarded. */
    uint32_t version;
    struct failover_set live, even, have;
    bool is_finished;
};

struct failover_private {
    pthread_mutex_t mutex;
    void (*wake)(void *arg);
    void *wake_arg;
    /* Guarded. */
    void (*news)(void *arg);
    void *news_arg;
    struct failover_place place;
    struct failover_set required;
};

struct failover *failover_new(uint32_t n_shards, uint64_t start, void (*wake)(void *arg), void *arg)
{
    struct failover *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->n_shards = n_shards;
    f->start = start;
    f->shards = calloc(n_shards, sizeof *f->shards);
    f->hidden = calloc(1, sizeof *f->hidden);
    if (f->shards == NULL || f->hidden == NULL) {
        free(f->shards);
        free(f->hidden);
        free(f);
        return NULL;
    }
    f->hidden->wake = wake;
    f->hidden->wake_arg = arg;
    pthread_mutex_init(&f->hidden->mutex, NULL);
    return f;
}

void failover_free(struct failover *f)
{
    if (f == NULL)
        return;
    pthread_mutex_destroy(&f->hidden->mutex);
    free(f->hidden);
    free(f->shards);
    free(f);
}

/* ---- sets ---- */

bool failover_has(const struct failover_set *set, uint64_t id)
{
    bool has = false;
    for (uint32_t i = 0; i < set->n; i++)
        has = has || set->ids[i] == id;
    return has;
}

bool failover_add(struct failover_set *set, uint64_t id)
{
    if (failover_has(set, id))
        return true;
    if (set->n == FAILOVER_MOST)
        return false;
    set->ids[set->n++] = id;
    return true;
}

void failover_remove(struct failover_set *set, uint64_t id)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (set->ids[i] == id)
            set->ids[i--] = set->ids[--set->n];
}

static bool is_same(const struct failover_set *a, const struct failover_set *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0;
}

static void keep_common(struct failover_set *set, const struct failover_set *other)
{
    for (uint32_t i = set->n; i > 0; i--)
        if (!failover_has(other, set->ids[i - 1]))
            failover_remove(set, set->ids[i - 1]);
}

/* ---- the fence ---- */

void failover_extend(struct failover *f, uint64_t until_ns)
{
    atomic_store_explicit(&f->until_ns, until_ns, memory_order_release);
}

/* ---- a process that follows ---- */

void failover_set_place(struct failover *f, const struct failover_place *place)
{
    struct failover_place *known = &f->hidden->place;
    pthread_mutex_lock(&f->hidden->mutex);
    bool is_other = strcmp(known->admin, place->admin) != 0 ||
                    strcmp(known->address, place->address) != 0 ||
                    known->is_listed != place->is_listed;
    *known = *place;
    pthread_mutex_unlock(&f->hidden->mutex);
    if (!is_other)
        return;
    atomic_fetch_add(&f->n_places, 1);
    f->hidden->wake(f->hidden->wake_arg);
}

void failover_place(struct failover *f, struct failover_place *out)
{
    pthread_mutex_lock(&f->hidden->mutex);
    *out = f->hidden->place;
    pthread_mutex_unlock(&f->hidden->mutex);
}

void failover_note(struct failover *f, uint32_t shard, uint64_t position, bool is_ready)
{
    struct failover_shard *s = &f->shards[shard - f->first_shard];
    atomic_store(&s->position, position);
    atomic_store(&s->is_ready, is_ready);
}

uint64_t failover_position(const struct failover *f, bool *is_ready_out)
{
    uint64_t sum = 0;
    *is_ready_out = true;
    for (uint32_t i = 0; i < f->n_shards; i++) {
        sum += atomic_load(&f->shards[i].position);
        *is_ready_out = *is_ready_out && atomic_load(&f->shards[i].is_ready);
    }
    return sum;
}

/* ---- a primary ---- */

void failover_on_news(struct failover *f, void (*call)(void *arg), void *arg)
{
    pthread_mutex_lock(&f->hidden->mutex);
    f->hidden->news = call;
    f->hidden->news_arg = arg;
    pthread_mutex_unlock(&f->hidden->mutex);
}

void failover_require(struct failover *f, const struct failover_set *set)
{
    pthread_mutex_lock(&f->hidden->mutex);
    f->hidden->required = *set;
    atomic_fetch_add(&f->version, 1);
    pthread_mutex_unlock(&f->hidden->mutex);
    f->hidden->wake(f->hidden->wake_arg);
}

uint32_t failover_required(struct failover *f, struct failover_set *out)
{
    pthread_mutex_lock(&f->hidden->mutex);
    *out = f->hidden->required;
    uint32_t version = (uint32_t)atomic_load(&f->version);
    pthread_mutex_unlock(&f->hidden->mutex);
    return version;
}

struct failover_view *failover_view_of(struct failover *f, uint32_t shard)
{
    return &f->shards[shard - f->first_shard].view;
}

void failover_report(struct failover *f, uint32_t shard, uint32_t version,
                     const struct failover_set *live, const struct failover_set *even)
{
    struct failover_shard *s = &f->shards[shard - f->first_shard];
    pthread_mutex_lock(&f->hidden->mutex);
    bool is_news = s->version != version || !is_same(&s->live, live) || !is_same(&s->even, even);
    s->version = version;
    s->live = *live;
    s->even = *even;
    if (is_news && f->hidden->news != NULL)
        f->hidden->news(f->hidden->news_arg);
    pthread_mutex_unlock(&f->hidden->mutex);
}

/* Those that a shard has let go since it has finished are not gone. */
static const struct failover_set *live_of(const struct failover_shard *s)
{
    return s->is_finished ? &s->have : &s->live;
}

void failover_look(struct failover *f, struct failover_set *live_out, struct failover_set *even_out)
{
    pthread_mutex_lock(&f->hidden->mutex);
    *live_out = *live_of(&f->shards[0]);
    *even_out = f->shards[0].even;
    for (uint32_t i = 0; i < f->n_shards; i++) {
        keep_common(live_out, live_of(&f->shards[i]));
        keep_common(even_out, &f->shards[i].even);
        if (f->shards[i].version != (uint32_t)atomic_load(&f->version))
            even_out->n = 0;
    }
    pthread_mutex_unlock(&f->hidden->mutex);
}

/* ---- a primary that ends ---- */

void failover_finish(struct failover *f, uint32_t shard, const struct failover_set *have)
{
    struct failover_shard *s = &f->shards[shard - f->first_shard];
    pthread_mutex_lock(&f->hidden->mutex);
    s->have = *have;
    s->is_finished = true;
    if (f->hidden->news != NULL)
        f->hidden->news(f->hidden->news_arg);
    pthread_mutex_unlock(&f->hidden->mutex);
}

bool failover_is_finished(struct failover *f, struct failover_set *have_out)
{
    bool all = true;
    pthread_mutex_lock(&f->hidden->mutex);
    *have_out = f->shards[0].have;
    for (uint32_t i = 0; i < f->n_shards; i++) {
        keep_common(have_out, &f->shards[i].have);
        all = all && f->shards[i].is_finished;
    }
    pthread_mutex_unlock(&f->hidden->mutex);
    return all;
}
