/* narrow_sweep.c - a sweep over the tables of the server that is followed: which there are, their
 * schemas, and their rounds, part by part. A round whose parts are too many to wait for its end
 * goes into the rows at once, and reads of its table are refused until it ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/service/narrow_inside.h"

#define SLICE_NS    4000000u /* of parts that are applied */
#define QUEUE_BYTES (64u << 20)

/* ---- what goes wrong ---- */

/* The log has each new reason. */
void narrow_lose(struct shard *shard, const char *why)
{
    struct narrow *n = shard->narrow;
    if (!n->is_lost || strncmp(n->lost_why, why, sizeof n->lost_why - 1) != 0)
        log_event(LOG_WARN, "follow_lost", "shard=%u server=%s why=\"%s\"", shard->config.index,
                  shard->config.follow->address, why);
    n->is_lost = true;
    n->is_told = false;
    snprintf(n->lost_why, sizeof n->lost_why, "%s", why);
}

void narrow_leave_out(struct shard *shard, struct narrow_table *t, const char *why)
{
    struct embd__error e = {.status = EMBD_OK};
    if (!t->is_left_out)
        log_event(LOG_WARN, "replica_leaves_out", "shard=%u table=%s why=\"%s\"",
                  shard->config.index, t->name, why);
    t->is_left_out = true;
    narrow_hide(shard, t, &e);
}

/* ---- the sweep ---- */

void narrow_begin_sweep(struct narrow *n)
{
    n->began_ns = clock_ns();
    n->swept_rows = n->swept_bytes = 0;
    n->step = NARROW_LIST;
}

static void end_sweep(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    n->step = NARROW_MAP;
    n->rests = true;
    if (n->lacks)
        return;
    if (!n->is_told)
        log_event(LOG_INFO, "follows", "shard=%u server=%s tables=%u dtype=%s", shard->config.index,
                  n->address, n->n, embd_dtype_name(n->dtype));
    n->is_ready = n->is_told = true;
}

static void next_table(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    const struct narrow_table *t = n->tables[n->at];
    n->lacks = n->lacks || (!t->is_shown && !t->is_left_out);
    n->step = NARROW_DESCRIBE;
    if (++n->at >= n->n)
        end_sweep(shard);
}

static struct narrow_table *find(const struct narrow *n, const char *name)
{
    for (uint32_t i = 0; i < n->n; i++)
        if (strcmp(n->tables[i]->name, name) == 0)
            return n->tables[i];
    return NULL;
}

/* NULL: no memory, or it is another table that cannot go yet. */
static struct narrow_table *get(struct shard *shard, const struct narrow_listed *listed)
{
    struct narrow *n = shard->narrow;
    struct embd__error e = {.status = EMBD_OK};
    struct narrow_table *t = find(n, listed->name);
    if (t == NULL && (t = calloc(1, sizeof *t)) != NULL) {
        snprintf(t->name, sizeof t->name, "%s", listed->name);
        t->last = &t->first;
        n->tables[n->n++] = t;
    }
    if (t == NULL || (t->id != listed->id && narrow_hide(shard, t, &e) != EMBD_OK))
        return NULL;
    if (t->id != listed->id)
        narrow_end_round(shard, t);
    t->id = listed->id;
    return t;
}

/* Those that the list does not have. */
static void drop_others(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < n->n; i++) {
        struct narrow_table *t = n->tables[i];
        struct embd__error e = {.status = EMBD_OK};
        if (t->is_listed || narrow_hide(shard, t, &e) != EMBD_OK) {
            n->lacks = n->lacks || !t->is_listed;
            n->tables[n_left++] = t;
            continue;
        }
        narrow_table_free(shard, t);
    }
    n->n = n_left;
}

void narrow_take_list(struct shard *shard, uint64_t sent_ns)
{
    struct narrow *n = shard->narrow;
    const struct narrow_question *q = &n->question;
    n->lacks = false;
    for (uint32_t i = 0; i < n->n; i++)
        n->tables[i]->is_listed = false;
    for (uint32_t i = 0; i < q->n_listed; i++)
        if (find(n, q->listed[i].name) != NULL)
            find(n, q->listed[i].name)->is_listed = true;
    drop_others(shard);
    for (uint32_t i = 0; i < q->n_listed; i++) {
        struct narrow_table *t = n->n < LIMIT_TABLES ? get(shard, &q->listed[i]) : NULL;
        n->lacks = n->lacks || t == NULL;
        if (t != NULL)
            t->is_listed = true;
    }
    n->listed_ns = sent_ns;
    n->at = 0;
    n->step = NARROW_DESCRIBE;
    if (n->n == 0)
        end_sweep(shard);
}

/* It was refused lately. */
static void pass_refused(struct shard *shard, struct narrow_table *t)
{
    struct embd__error e = {.status = EMBD_OK};
    if (t->is_left_out)
        narrow_hide(shard, t, &e); /* where that could not be before */
    next_table(shard);
}

/* The schema that it has here is another one: its rows are taken anew. */
void narrow_take_schema(struct shard *shard, struct narrow_table *t, uint64_t sent_ns)
{
    struct narrow *n = shard->narrow;
    struct table_schema *found = &n->question.schema;
    narrow_schema(&found->s, n->dtype);
    t->described_ns = sent_ns;
    bool is_same =
        t->schema.s.name[0] != '\0' && embd__schema_difference(&t->schema.s, &found->s) == NULL;
    if (!is_same) {
        embd__schema_fini(&t->schema);
        t->schema = *found;
        *found = (struct table_schema){.sizes = NULL};
        t->is_other = t->subscription != 0;
        t->again_ns = 0;
    }
    n->step = NARROW_ROUND;
    if (clock_ns() < t->again_ns)
        pass_refused(shard, t);
}

/* ---- rounds ---- */

/* Each row of it was acknowledged after the cut of the round before. */
static void count_freshness(struct narrow *n, const struct narrow_table *t)
{
    uint64_t now_ns = clock_ns();
    if (t->n_rows > 0 && t->fresh_ns != 0 && !t->renews)
        histogram_add(&n->freshness, now_ns - t->fresh_ns, t->n_rows);
    if (now_ns - n->turned_ns < STAGES_WINDOW_NS)
        return;
    n->before[1] = n->before[0];
    n->before[0] = n->freshness;
    n->turned_ns = now_ns;
}

/* Its rows are those of the round's cut. */
static void end_round(struct shard *shard, struct narrow_table *t)
{
    struct narrow *n = shard->narrow;
    count_freshness(n, t);
    n->swept_rows += t->n_rows;
    n->swept_bytes += t->n_rows * t->schema.s.dim * sizeof(float);
    t->fresh_ns = t->cut_ns;
    t->is_changing = t->is_left_out = false;
    t->again_ns = 0;
    narrow_end_round(shard, t);
    next_table(shard);
}

void narrow_take_shown(struct shard *shard, struct narrow_table *t)
{
    struct narrow *n = shard->narrow;
    struct embd__error e = {.status = EMBD_OK};
    uint64_t rows = t->n_rows;
    if (narrow_show(shard, t, &e) != EMBD_OK) {
        narrow_lose(shard, e.text);
        n->rests = true;
        return; /* the map is asked for again, and then: */
    }
    log_event(LOG_INFO, "replica_has_table", "shard=%u table=%s rows=%llu dtype=%s",
              shard->config.index, t->name, (unsigned long long)rows,
              embd_dtype_name(t->schema.s.dtype));
    end_round(shard, t);
}

/* What is there of the next part. */
static void begin_part(struct shard *shard, struct narrow_table *t)
{
    const struct changes_answer *a = &shard->narrow->question.answer;
    if (a->is_first) {
        narrow_end_round(shard, t);
        t->renews = a->has_all || !t->is_shown;
        t->cut_ns = t->described_ns;
    }
    t->subscription = a->id;
    t->part = a->part;
    t->chain = a->chain;
}

static void take_part(struct shard *shard, struct narrow_table *t)
{
    struct narrow *n = shard->narrow;
    begin_part(shard, t);
    struct narrow_part *part = n->question.part;
    n->question.part = NULL;
    part->next = NULL;
    *t->last = part;
    t->last = &part->next;
    t->n_queued += part->bytes;
    if (part->is_last || t->renews || t->n_queued > QUEUE_BYTES)
        n->changes = t;
}

/* The next sweep asks again. */
void narrow_skip(struct shard *shard, struct narrow_table *t)
{
    narrow_end_round(shard, t);
    next_table(shard);
}

void narrow_take_round(struct shard *shard, struct narrow_table *t)
{
    const struct changes_answer *a = &shard->narrow->question.answer;
    if (a->gone[0] != '\0') {
        log_event(LOG_INFO, "replica_table_anew", "shard=%u table=%s why=\"%s\"",
                  shard->config.index, t->name,
                  t->is_other ? "its definition has changed" : a->gone);
        t->subscription = t->part = t->chain = 0;
        t->is_other = false;
        narrow_skip(shard, t);
    } else if (a->waits) {
        t->subscription = a->id;
        narrow_skip(shard, t);
    } else if (shard->narrow->question.part != NULL) {
        take_part(shard, t);
    }
}

/* True: there is more to apply. */
bool narrow_go_through(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    struct narrow_table *t = n->changes;
    struct embd__error e = {.status = EMBD_OK};
    uint64_t until_ns = clock_ns() + SLICE_NS;
    while (t->first != NULL && clock_ns() < until_ns)
        if (narrow_apply(shard, t, &e) != EMBD_OK) {
            narrow_lose(shard, e.text);
            return false;
        }
    if (t->first != NULL)
        return true;
    n->changes = NULL;
    if (t->is_whole && t->renews)
        n->step = NARROW_CONFIRM;
    else if (t->is_whole)
        end_round(shard, t);
    return true;
}
