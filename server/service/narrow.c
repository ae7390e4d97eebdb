/* narrow.c - see narrow.h.
 *
 * The happy path is a sweep: the map of keys, the list of tables, then of each table its schema and
 * the parts of its round. A round of changes is applied when its last part has come; rows of a
 * round that has all go into a staged table at once. That takes its place when the map is still the
 * one that was asked for before: subscriptions end where keys begin to move, so rounds of changes
 * are all of one map.
 *
 * What can fail: the connection, or a part that does not follow the one before. Then all tables
 * begin anew, and are shown as they were meanwhile. A round whose parts are too many to wait for
 * its end goes into the rows at once, and reads of its table are refused until it ends. */
#include "server/service/narrow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/service/narrow_inside.h"

#define SLICE_NS      4000000u /* of parts that are applied */
#define PAUSE_MS      50u      /* between two sweeps, at least, and as long as the last one took: */
#define PAUSE_MOST_MS 2000u    /* the server looks at all rows of a table where some have changed */
#define FULL_NS       1000000000u  /* a table that was refused is asked for again: it may be */
#define REFUSED_NS    10000000000u /* others, of that name */
#define QUEUE_BYTES   (64u << 20)

/* ---- opening ---- */

static int open_follower(struct shard *shard, struct narrow *n, struct embd__error *e)
{
    struct follower_config config = *shard->config.follow;
    config.shard = shard->config.index;
    config.n_shards = shard->config.n_shards;
    config.n_loaded = NULL;
    config.wake = shard->config.wake;
    config.wake_arg = shard->config.wake_arg;
    return follower_open(&config, &n->follower, e);
}

int narrow_open(struct shard *shard, struct embd__error *e)
{
    if (!shard->config.is_narrow)
        return EMBD_OK;
    struct narrow *n = calloc(1, sizeof *n);
    struct narrow_table **tables = calloc(LIMIT_TABLES, sizeof *tables);
    if (n == NULL || tables == NULL) {
        free(n);
        free(tables);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to follow a server");
    }
    n->tables = tables;
    n->dtype = shard->config.serve_dtype;
    shard->narrow = n;
    shard->engine.is_replaying = true;
    return open_follower(shard, n, e);
}

void narrow_close(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    if (n == NULL)
        return;
    follower_close(n->follower);
    narrow_question_fini(&n->question);
    while (n->n > 0)
        narrow_table_free(shard, n->tables[--n->n]);
    free(n->tables);
    free(n);
    shard->narrow = NULL;
}

/* ---- what goes wrong ---- */

/* The log has each new reason. */
static void lose(struct shard *shard, const char *why)
{
    struct narrow *n = shard->narrow;
    if (!n->is_lost || strncmp(n->lost_why, why, sizeof n->lost_why - 1) != 0)
        log_event(LOG_WARN, "follow_lost", "shard=%u server=%s why=\"%s\"", shard->config.index,
                  shard->config.follow->address, why);
    n->is_lost = true;
    n->is_told = false;
    snprintf(n->lost_why, sizeof n->lost_why, "%s", why);
}

/* Subscriptions end with their connection. */
static void begin_anew(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    for (uint32_t i = 0; i < n->n; i++) {
        struct narrow_table *t = n->tables[i];
        narrow_end_round(shard, t);
        t->subscription = t->part = t->chain = 0;
        t->is_other = false;
    }
    n->changes = NULL;
    n->step = NARROW_MAP;
    n->rests = false;
}

/* Rows of another map: none of them counts. */
static void take_map(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    moving_take_place(shard, &n->question.map);
    begin_anew(shard);
    follower_leave(n->follower);
    n->empties = n->has_map;
    n->has_map = true;
    n->is_ready = false;
}

/* False: later. */
static bool empty(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    struct embd__error e = {.status = EMBD_OK};
    for (uint32_t i = 0; i < n->n; i++)
        if (narrow_hide(shard, n->tables[i], &e) != EMBD_OK)
            return false;
    n->empties = false;
    return true;
}

static void leave_out(struct shard *shard, struct narrow_table *t, const char *why)
{
    struct embd__error e = {.status = EMBD_OK};
    if (!t->is_left_out)
        log_event(LOG_WARN, "replica_leaves_out", "shard=%u table=%s why=\"%s\"",
                  shard->config.index, t->name, why);
    t->is_left_out = true;
    narrow_hide(shard, t, &e);
}

/* ---- the sweep ---- */

static void begin_sweep(struct narrow *n)
{
    n->began_ns = clock_ns();
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

static void take_list(struct shard *shard, uint64_t sent_ns)
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
static void take_schema(struct shard *shard, struct narrow_table *t, uint64_t sent_ns)
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
    t->fresh_ns = t->cut_ns;
    t->is_changing = t->is_left_out = false;
    t->again_ns = 0;
    narrow_end_round(shard, t);
    next_table(shard);
}

static void take_shown(struct shard *shard, struct narrow_table *t)
{
    struct narrow *n = shard->narrow;
    struct embd__error e = {.status = EMBD_OK};
    uint64_t rows = t->n_rows;
    if (narrow_show(shard, t, &e) != EMBD_OK) {
        lose(shard, e.text);
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
static void skip(struct shard *shard, struct narrow_table *t)
{
    narrow_end_round(shard, t);
    next_table(shard);
}

static void take_round(struct shard *shard, struct narrow_table *t)
{
    const struct changes_answer *a = &shard->narrow->question.answer;
    if (a->gone[0] != '\0') {
        log_event(LOG_INFO, "replica_table_anew", "shard=%u table=%s why=\"%s\"",
                  shard->config.index, t->name,
                  t->is_other ? "its definition has changed" : a->gone);
        t->subscription = t->part = t->chain = 0;
        t->is_other = false;
        skip(shard, t);
    } else if (a->waits) {
        t->subscription = a->id;
        skip(shard, t);
    } else if (shard->narrow->question.part != NULL) {
        take_part(shard, t);
    }
}

/* True: there is more to apply. */
static bool apply(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    struct narrow_table *t = n->changes;
    struct embd__error e = {.status = EMBD_OK};
    uint64_t until_ns = clock_ns() + SLICE_NS;
    while (t->first != NULL && clock_ns() < until_ns)
        if (narrow_apply(shard, t, &e) != EMBD_OK) {
            lose(shard, e.text);
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

/* ---- answers ---- */

/* The server has answered, on a connection that stays. */
static void take_refusal(struct shard *shard, const struct embd__error *e)
{
    struct narrow *n = shard->narrow;
    struct narrow_table *t =
        n->step == NARROW_MAP || n->step == NARROW_LIST ? NULL : n->tables[n->at];
    if (t == NULL || n->step == NARROW_CONFIRM) {
        lose(shard, e->text);
        begin_anew(shard);
        follower_leave(n->follower);
        n->rests = true;
        return;
    }
    bool is_lasting = e->status == EMBD_UNSUPPORTED || e->status == EMBD_FULL;
    if (is_lasting)
        t->again_ns = clock_ns() + (e->status == EMBD_FULL ? FULL_NS : REFUSED_NS);
    if (is_lasting && (e->status == EMBD_UNSUPPORTED || !t->is_shown))
        leave_out(shard, t, e->text);
    else if (e->status != EMBD_UNKNOWN_TABLE)
        lose(shard, e->text);
    skip(shard, t);
}

static void take_found(struct shard *shard, const struct follower_answer *answer)
{
    struct narrow *n = shard->narrow;
    bool is_map = n->step == NARROW_MAP || n->step == NARROW_CONFIRM;
    if (is_map &&
        (!n->has_map || !embd__placement_is_same(&n->question.map, shard->config.placement)))
        take_map(shard);
    else if (n->step == NARROW_MAP)
        begin_sweep(n);
    else if (n->step == NARROW_LIST)
        take_list(shard, answer->sent_ns);
    else if (n->step == NARROW_DESCRIBE)
        take_schema(shard, n->tables[n->at], answer->sent_ns);
    else if (n->step == NARROW_ROUND)
        take_round(shard, n->tables[n->at]);
    else
        take_shown(shard, n->tables[n->at]);
}

static void take_answer(struct shard *shard, const struct follower_answer *answer)
{
    struct narrow *n = shard->narrow;
    n->has_asked = false;
    n->is_connected = !answer->is_lost;
    if (answer->is_lost) {
        lose(shard, answer->error.text);
        begin_anew(shard);
    } else if (answer->error.status != EMBD_OK) {
        take_refusal(shard, &answer->error);
    } else {
        n->is_lost = n->is_lost && n->step != NARROW_LIST;
        snprintf(n->address, sizeof n->address, "%s", answer->address);
        take_found(shard, answer);
    }
}

static uint32_t pause_ms(const struct narrow *n)
{
    uint64_t ms = (clock_ns() - n->began_ns) / 1000000;
    ms = ms < PAUSE_MOST_MS ? ms : PAUSE_MOST_MS;
    return ms > PAUSE_MS ? (uint32_t)ms : PAUSE_MS;
}

static void ask(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    struct narrow_question *q = &n->question;
    if (n->step == NARROW_MAP || n->step == NARROW_CONFIRM)
        narrow_ask_map(q, shard->config.n_shards);
    else if (n->step == NARROW_LIST)
        narrow_ask_list(q);
    else if (n->step == NARROW_DESCRIBE)
        narrow_ask_table(q, n->tables[n->at]->name);
    else
        narrow_ask_round(q, n->tables[n->at]);
    q->as.pause_ms = n->rests ? pause_ms(n) : 0;
    n->rests = false;
    n->has_asked = true;
    follower_ask_else(n->follower, &q->as);
}

bool narrow_go_on(struct shard *shard)
{
    struct narrow *n = shard->narrow;
    struct follower_answer answer;
    if (n->empties && !empty(shard))
        return false;
    if (n->changes != NULL)
        return apply(shard);
    bool has_more = n->has_asked && follower_take(n->follower, &answer);
    if (has_more)
        take_answer(shard, &answer);
    if (!n->has_asked && n->changes == NULL && !n->empties)
        ask(shard);
    return has_more;
}
