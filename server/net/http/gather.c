/* gather.c - see gather.h. Two threads meet in struct question alone: `is_asked` says whose the
 * report is, the shard's while it is true. */
#include "server/net/http/gather.h"

#include <stdlib.h>

struct question {
    struct loop_question base;
    struct gather *gather;
    atomic_bool is_asked;
    struct shard_report *report;
};

struct gather {
    struct loop *const *loops;
    uint32_t n;
    struct question *questions; /* [n] */
    struct shard_view *views;   /* [n] */
    char *const *addresses;
    uv_async_t news; /* from the shards' threads */
    uv_timer_t limit;
    bool is_asking, is_stopped;
    gather_done *done;
    void *arg;
};

/* On the shard's thread. */
static void on_shard(struct loop_question *base, const struct shard *shard)
{
    struct question *question = (struct question *)base;
    struct gather *gather = question->gather;
    shard_report(shard, question->report);
    atomic_store(&question->is_asked, false);
    uv_async_send(&gather->news);
}

static void tell(struct gather *gather)
{
    gather->is_asking = false;
    uv_timer_stop(&gather->limit);
    for (uint32_t i = 0; i < gather->n; i++)
        gather->views[i] = (struct shard_view){
            .report =
                atomic_load(&gather->questions[i].is_asked) ? NULL : gather->questions[i].report,
            .address = gather->addresses[i],
        };
    gather->done(gather->arg, gather->views, gather->n);
}

static void on_news(uv_async_t *async)
{
    struct gather *gather = async->data;
    for (uint32_t i = 0; i < gather->n; i++)
        if (atomic_load(&gather->questions[i].is_asked))
            return;
    if (gather->is_asking)
        tell(gather);
}

static void on_limit(uv_timer_t *timer)
{
    tell(timer->data);
}

void gather_ask(struct gather *gather)
{
    if (gather->is_asking || gather->is_stopped)
        return;
    gather->is_asking = true;
    uv_timer_start(&gather->limit, on_limit, GATHER_MS, 0);
    for (uint32_t i = 0; i < gather->n; i++)
        if (!atomic_exchange(&gather->questions[i].is_asked, true))
            loop_ask(gather->loops[i], &gather->questions[i].base);
}

int gather_open(uv_loop_t *uv, struct loop *const *loops, char *const *addresses, uint32_t n,
                gather_done *done, void *arg, struct gather **out)
{
    struct gather *gather = calloc(1, sizeof *gather);
    if (gather == NULL)
        return EMBD_NO_MEMORY;
    *gather =
        (struct gather){.loops = loops, .addresses = addresses, .n = n, .done = done, .arg = arg};
    gather->questions = calloc(n, sizeof *gather->questions);
    gather->views = calloc(n, sizeof *gather->views);
    bool is_ok = gather->questions != NULL && gather->views != NULL;
    for (uint32_t i = 0; is_ok && i < n; i++) {
        gather->questions[i].base.answer = on_shard;
        gather->questions[i].gather = gather;
        gather->questions[i].report = calloc(1, sizeof(struct shard_report));
        is_ok = gather->questions[i].report != NULL;
    }
    if (!is_ok || uv_async_init(uv, &gather->news, on_news) < 0) {
        gather_free(gather);
        return EMBD_NO_MEMORY;
    }
    uv_timer_init(uv, &gather->limit);
    gather->news.data = gather->limit.data = gather;
    *out = gather;
    return EMBD_OK;
}

void gather_stop(struct gather *gather)
{
    gather->is_stopped = true;
    gather->is_asking = false;
    uv_timer_stop(&gather->limit);
}

void gather_free(struct gather *gather)
{
    if (gather == NULL)
        return;
    for (uint32_t i = 0; gather->questions != NULL && i < gather->n; i++)
        free(gather->questions[i].report);
    free(gather->questions);
    free(gather->views);
    free(gather);
}
