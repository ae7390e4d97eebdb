/* agree.c - see agree.h.
 *
 * Pushes of streams that several clients had are the streams'. Then pushes are put in order, by
 * whose they are, then by shard. A step of several workers is one
 * record with several pushes: if one of these does not count, none of them does, and then later
 * pushes of the others neither. So it is looked through again until nothing changes. */
#include "client/backup/agree.h"

#include <stdlib.h>
#include <string.h>

static int append(struct agree *agree, const struct agree_push *push, struct embd__error *e)
{
    struct agree_push *grown = agree->pushes;
    if ((agree->n & (agree->n - 1)) == 0)
        grown = realloc(grown, (agree->n ? 2 * agree->n : 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to compare shards");
    agree->pushes = grown;
    grown[agree->n++] = *push;
    return EMBD_OK;
}

int agree_add(struct agree *agree, uint32_t shard, uint64_t position,
              const struct archived_deed *deed, struct embd__error *e)
{
    struct agree_push push = {.position = position, .shard = shard};
    uint32_t n_before = deed->n_sources;
    push.sequence = deed->number.sequence;
    push.stream = (struct agree_who){deed->number.high, deed->number.low, deed->number.stream};
    for (uint32_t i = 0; i < deed->n_sources && e->status == EMBD_OK; i++) {
        const struct push_source *source = &deed->sources[i];
        push.who = (struct agree_who){0, source->client, UINT64_MAX};
        push.place = source->place;
        if (source->client == 0)
            n_before--;
        else
            append(agree, &push, e);
    }
    push.who = push.stream;
    push.place = push.sequence;
    if (n_before == 0 && push.sequence > 0 && e->status == EMBD_OK)
        append(agree, &push, e);
    return e->status;
}

void agree_fini(struct agree *agree)
{
    free(agree->pushes);
    *agree = (struct agree){.n = 0};
}

/* ---- order ---- */

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_who(const struct agree_who *a, const struct agree_who *b)
{
    int by = compare(a->high, b->high);
    by = by != 0 ? by : compare(a->low, b->low);
    return by != 0 ? by : compare(a->stream, b->stream);
}

static int by_stream(const void *x, const void *y)
{
    const struct agree_push *a = x, *b = y;
    int by = compare(a->sequence > 0, b->sequence > 0);
    return by != 0 ? by : compare_who(&a->stream, &b->stream);
}

static int by_who(const void *x, const void *y)
{
    const struct agree_push *a = x, *b = y;
    int by = compare_who(&a->who, &b->who);
    by = by != 0 ? by : compare(a->shard, b->shard);
    return by != 0 ? by : compare(a->position, b->position);
}

static int by_place(const void *x, const void *y)
{
    const struct agree_left *a = x, *b = y;
    int by = compare(a->shard, b->shard);
    return by != 0 ? by : compare(a->position, b->position);
}

/* ---- streams of several clients ---- */

/* list[n] are of one stream. */
static void take_stream(struct agree_push *list, uint64_t n)
{
    bool is_shared = false;
    for (uint64_t i = 1; i < n; i++)
        is_shared = is_shared || compare_who(&list[0].who, &list[i].who) != 0;
    for (uint64_t i = 0; i < n && is_shared; i++) {
        list[i].who = list[i].stream;
        list[i].place = list[i].sequence;
    }
}

static void take_streams(struct agree *agree)
{
    struct agree_push *list = agree->pushes;
    if (agree->n > 0)
        qsort(list, agree->n, sizeof *list, by_stream);
    for (uint64_t i = 0, n; i < agree->n; i += n) {
        for (n = 1; i + n < agree->n && by_stream(&list[i], &list[i + n]) == 0;)
            n++;
        if (list[i].sequence > 0)
            take_stream(&list[i], n);
    }
}

/* ---- one client or stream ---- */

/* Its pushes on a shard: those before `end` count. */
struct run {
    const struct agree_push *list;
    uint64_t n, end;
};

static bool has(const struct run *run, uint64_t place, uint64_t *end_out)
{
    for (uint64_t i = run->end; i-- > 0;)
        if (run->list[i].place == place) {
            *end_out = i + 1;
            return true;
        }
    return false;
}

/* Up to the last push that all shards have. Numbers rise by one, and a number that is there again
 * was refused: the greatest that all have is the last. */
static void narrow(struct run *runs, uint32_t n_shards)
{
    for (uint64_t i = runs[0].end; i-- > 0; runs[0].end = i) {
        uint64_t ends[LIMIT_SHARDS];
        uint32_t n = 1;
        ends[0] = i + 1;
        while (n < n_shards && has(&runs[n], runs[0].list[i].place, &ends[n]))
            n++;
        if (n < n_shards)
            continue;
        for (uint32_t s = 0; s < n_shards; s++)
            runs[s].end = ends[s];
        return;
    }
    for (uint32_t s = 0; s < n_shards; s++)
        runs[s].end = 0;
}

/* ---- all ---- */

struct agreeing {
    const struct agree *agree;
    struct agree_left *left; /* [n] by shard and position */
    uint64_t n, capacity;
    struct embd__error *e;
};

static bool is_left(const struct agreeing *a, uint64_t n_sorted, const struct agree_push *push)
{
    const struct agree_left key = {push->shard, push->position};
    return n_sorted > 0 && bsearch(&key, a->left, n_sorted, sizeof key, by_place) != NULL;
}

static int leave(struct agreeing *a, const struct agree_push *push)
{
    if (a->n == a->capacity) {
        uint64_t more = 2 * a->capacity + 64;
        struct agree_left *grown = realloc(a->left, more * sizeof *grown);
        if (grown == NULL)
            return embd__error_set(a->e, EMBD_NO_MEMORY, "no memory to compare shards");
        a->left = grown;
        a->capacity = more;
    }
    a->left[a->n++] = (struct agree_left){push->shard, push->position};
    return EMBD_OK;
}

/* One client's or stream's pushes, list[n]. What is left out ends its run. */
static int judge(struct agreeing *a, const struct agree_push *list, uint64_t n, uint64_t n_sorted)
{
    struct run runs[LIMIT_SHARDS] = {{0}};
    for (uint64_t i = 0; i < n; i++) {
        struct run *run = &runs[list[i].shard];
        run->list = run->n == 0 ? &list[i] : run->list;
        run->n++;
        if (run->end + 1 == run->n && !is_left(a, n_sorted, &list[i]))
            run->end++;
    }
    narrow(runs, a->agree->n_shards);
    for (uint32_t s = 0; s < a->agree->n_shards; s++)
        for (uint64_t i = runs[s].end; i < runs[s].n; i++)
            if (!is_left(a, n_sorted, &runs[s].list[i]) && leave(a, &runs[s].list[i]) != EMBD_OK)
                return a->e->status;
    return EMBD_OK;
}

static int judge_all(struct agreeing *a)
{
    const struct agree_push *list = a->agree->pushes;
    uint64_t n_sorted = a->n;
    for (uint64_t i = 0, n; i < a->agree->n && a->e->status == EMBD_OK; i += n) {
        for (n = 1; i + n < a->agree->n && compare_who(&list[i].who, &list[i + n].who) == 0;)
            n++;
        judge(a, list + i, n, n_sorted);
    }
    return a->e->status;
}

/* A step's record may be left out because of two of its pushes. */
static void sort(struct agreeing *a)
{
    uint64_t n = 0;
    if (a->n > 0)
        qsort(a->left, a->n, sizeof *a->left, by_place);
    for (uint64_t i = 0; i < a->n; i++)
        if (n == 0 || by_place(&a->left[n - 1], &a->left[i]) != 0)
            a->left[n++] = a->left[i];
    a->n = n;
}

int agree_end(struct agree *agree, struct agree_left **out, uint64_t *n_out, struct embd__error *e)
{
    struct agreeing a = {.agree = agree, .e = e};
    uint64_t before;
    take_streams(agree);
    if (agree->n > 0)
        qsort(agree->pushes, agree->n, sizeof *agree->pushes, by_who);
    do {
        before = a.n;
        judge_all(&a);
        sort(&a);
    } while (e->status == EMBD_OK && a.n > before && agree->n_shards > 1);
    *out = e->status == EMBD_OK && agree->n_shards > 1 ? a.left : NULL;
    *n_out = *out == NULL ? 0 : a.n;
    if (*out == NULL)
        free(a.left);
    return e->status;
}
