/* narrow.c - see narrow.h; narrow_sweep.c has the tables and rounds of a sweep.
 *
 * The happy path is a sweep: the map of keys, the list of tables, then of each table its schema and
 * the parts of its round. A round of changes is applied when its last part has come; rows of a
 * round that has all go into a staged table at once. That takes its place when the map is still the
 * one that was asked for before: subscriptions end where keys begin to move, so rounds of changes
 * are all of one map.
 *
 * What can fail: the connection, or a part that does not follow the one before. Then all tables
 * begin anew, and are shown as they were meanwhile. */
#include "server/service/narrow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/service/narrow_inside.h"
#include "server/service/narrow_rest.h"

#define FULL_NS    1000000000u  /* a table that was refused is asked for again: it may be */
#define REFUSED_NS 10000000000u /* others, of that name */

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

/* ---- answers ---- */

/* The server has answered, on a connection that stays. */
static void take_refusal(struct shard *shard, const struct embd__error *e)
{
    struct narrow *n = shard->narrow;
    struct narrow_table *t =
        n->step == NARROW_MAP || n->step == NARROW_LIST ? NULL : n->tables[n->at];
    if (t == NULL || n->step == NARROW_CONFIRM) {
        narrow_lose(shard, e->text);
        begin_anew(shard);
        follower_leave(n->follower);
        n->rests = true;
        return;
    }
    bool is_lasting = e->status == EMBD_UNSUPPORTED || e->status == EMBD_FULL;
    if (is_lasting)
        t->again_ns = clock_ns() + (e->status == EMBD_FULL ? FULL_NS : REFUSED_NS);
    if (is_lasting && (e->status == EMBD_UNSUPPORTED || !t->is_shown))
        narrow_leave_out(shard, t, e->text);
    else if (e->status != EMBD_UNKNOWN_TABLE)
        narrow_lose(shard, e->text);
    narrow_skip(shard, t);
}

static void take_found(struct shard *shard, const struct follower_answer *answer)
{
    struct narrow *n = shard->narrow;
    bool is_map = n->step == NARROW_MAP || n->step == NARROW_CONFIRM;
    if (is_map &&
        (!n->has_map || !embd__placement_is_same(&n->question.map, shard->config.placement)))
        take_map(shard);
    else if (n->step == NARROW_MAP)
        narrow_begin_sweep(n);
    else if (n->step == NARROW_LIST)
        narrow_take_list(shard, answer->sent_ns);
    else if (n->step == NARROW_DESCRIBE)
        narrow_take_schema(shard, n->tables[n->at], answer->sent_ns);
    else if (n->step == NARROW_ROUND)
        narrow_take_round(shard, n->tables[n->at]);
    else
        narrow_take_shown(shard, n->tables[n->at]);
}

static void take_answer(struct shard *shard, const struct follower_answer *answer)
{
    struct narrow *n = shard->narrow;
    n->has_asked = false;
    n->is_connected = !answer->is_lost;
    if (answer->is_lost) {
        narrow_lose(shard, answer->error.text);
        begin_anew(shard);
    } else if (answer->error.status != EMBD_OK) {
        take_refusal(shard, &answer->error);
    } else {
        n->is_lost = n->is_lost && n->step != NARROW_LIST;
        snprintf(n->address, sizeof n->address, "%s", answer->address);
        take_found(shard, answer);
    }
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
    if (n->rests)
        q->as.pause_ms =
            narrow_rest_ms((clock_ns() - n->began_ns) / 1000000, n->swept_rows, n->swept_bytes);
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
        return narrow_go_through(shard);
    bool has_more = n->has_asked && follower_take(n->follower, &answer);
    if (has_more)
        take_answer(shard, &answer);
    if (!n->has_asked && n->changes == NULL && !n->empties)
        ask(shard);
    return has_more;
}
