/* base.c - a journal begins anew: with requests that make what the journaled tables hold now,
 * instead of all that ever changed them.
 *
 * The happy path: the journal has grown beyond its limit; requests that change something wait until
 * the pushes under way are applied, some milliseconds; the tables are frozen, and go on. For each
 * there is a table_create and loads of all its rows, then one request with the writers; a thread of
 * the journal's writes them, a block at a time between two requests, and what was before goes.
 * Requests are built as a client would, and scanned as a server does, so that a replay handles them
 * like all others.
 *
 * A snapshot, and the drop of a table, go first: then this is given up, and tried again. */
#include "server/shard/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "server/snapshot/block.h"
#include "server/shard/commit.h"
#include "server/snapshot/cut.h"
#include "server/journal/journal.h"
#include "server/log/log.h"
#include "server/shard/own_frame.h"

#define BLOCK_BYTES (1u << 20) /* copied in well under a millisecond */
#define WORTH_BYTES                                                                                \
    (64u << 20) /* behind a base, before another one is worth writing though it needs not be */
#define REST_NS       100000000u  /* what is under way is not waited for longer */
#define AGAIN_NS      1000000000u /* after that, */
#define AFTER_FAILURE 10u         /* and so many times after a failure */

/* Owner: the shard's thread. */
struct base {
    struct shard *shard;
    uint32_t n, at;              /* tables; whose rows are read next */
    struct table **tables;       /* [n] */
    uint64_t *steps;             /* [n] */
    struct push_stream *writers; /* [n_writers] */
    uint32_t n_writers;
    bool is_read, is_given_up; /* then no table is touched any more */
    /* Of the table at `at`. */
    bool is_made, has_block;
    void *memory;
    struct store_scan scan;
    struct msg msg;
    struct own_frame own;
};

/* ---- records ---- */

/* What is in b->msg becomes a record. */
static int add(struct base *b, struct embd__error *e)
{
    if (own_frame_scan(&b->own, &b->msg, e) != EMBD_OK)
        return e->status;
    return basefile_add(journal_base(b->shard->journal), &b->own.frame, e);
}

static int add_create(struct base *b, const embd_schema *schema, struct embd__error *e)
{
    embd__msg_request(&b->msg, 0, METHOD_TABLE_CREATE);
    embd__msg_map(&b->msg, 1);
    embd__msg_str(&b->msg, "schema");
    embd__schema_write(&b->msg, schema);
    b->is_made = true;
    return add(b, e);
}

static int add_block(struct base *b, const embd_schema *schema, struct embd__error *e)
{
    struct row_block block = block_of(&b->scan);
    embd__msg_request(&b->msg, 0, METHOD_LOAD);
    embd__msg_map(&b->msg, 4);
    embd__msg_field_str(&b->msg, "table", schema->name);
    embd__msg_field_uint(&b->msg, "rows", block.n_rows);
    embd__msg_field_uint(&b->msg, "candidates", block.n_candidates);
    embd__msg_field_uint(&b->msg, "step", b->steps[b->at]);
    embd__row_block_write(&b->msg, schema, &block);
    b->has_block = true;
    return add(b, e);
}

static int add_writers(struct base *b, struct embd__error *e)
{
    embd__msg_request(&b->msg, 0, METHOD_WRITERS);
    embd__msg_map(&b->msg, 2);
    embd__msg_field_uint(&b->msg, "writers", b->n_writers);
    embd__msg_field_bool(&b->msg, "principals", true);
    embd__msg_bin(&b->msg, b->writers, b->n_writers * sizeof *b->writers);
    return add(b, e);
}

static void next_table(struct base *b)
{
    b->shard->tables.ops->thaw(b->tables[b->at]->store);
    free(b->memory);
    b->memory = NULL;
    b->is_made = b->has_block = false;
    b->at++;
}

/* A table without rows gets one block: it has the step. */
static int add_rows(struct base *b, struct embd__error *e)
{
    const struct table *table = b->tables[b->at];
    const embd_schema *schema = &table->schema.s;
    uint32_t max_rows = block_rows_in(schema, BLOCK_BYTES);
    bool is_last;
    max_rows += max_rows == 0;
    if (b->memory == NULL)
        b->memory = block_new(schema, max_rows, &b->scan);
    if (b->memory == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the base of table '%s'",
                               schema->name);
    if (b->shard->tables.ops->scan_frozen(table->store, max_rows, &b->scan, &is_last, e) != EMBD_OK)
        return e->status;
    bool has_rows = b->scan.n_rows + b->scan.n_candidates > 0;
    if ((has_rows || (is_last && !b->has_block)) && add_block(b, schema, e) != EMBD_OK)
        return e->status;
    if (is_last)
        next_table(b);
    return EMBD_OK;
}

/* ---- beginning ---- */

/* The tables may change again. */
static void let_go(struct base *b)
{
    for (; b->at < b->n; b->at++)
        b->shard->tables.ops->thaw(b->tables[b->at]->store);
    b->is_read = true;
}

static void base_free(struct base *b)
{
    b->shard->base = NULL;
    embd__msg_fini(&b->msg);
    free(b->memory);
    free(b->tables);
    free(b->steps);
    free(b->writers);
    free(b);
}

static struct base *base_new(struct shard *shard, struct embd__error *e)
{
    uint32_t n = shard->tables.n + 1;
    struct base *b = calloc(1, sizeof *b);
    if (b == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a journal's base");
        return NULL;
    }
    shard->base = b;
    b->shard = shard;
    embd__msg_init(&b->msg);
    b->tables = malloc(n * sizeof *b->tables);
    b->steps = malloc(n * sizeof *b->steps);
    b->writers = malloc((shard->journaled_writers.n + 1) * sizeof *b->writers);
    if (b->tables != NULL && b->steps != NULL && b->writers != NULL)
        return b;
    embd__error_set(e, EMBD_NO_MEMORY, "no memory for a journal's base");
    base_free(b);
    return NULL;
}

static int freeze(struct base *b, struct embd__error *e)
{
    const struct tables *tables = &b->shard->tables;
    struct store_cut cut = {.id = 0};
    for (uint32_t i = 0; i < tables->n; i++) {
        struct table *table = tables->by_name[i];
        struct store_stats stats;
        if (!commit_is_kept(table))
            continue;
        if (tables->ops->freeze(table->store, &cut, e) != EMBD_OK)
            return e->status;
        tables->ops->stats(table->store, &stats);
        b->steps[b->n] = stats.steps;
        b->tables[b->n++] = table;
    }
    b->n_writers = writers_list(&b->shard->journaled_writers, b->writers);
    return EMBD_OK;
}

static int begin(struct shard *shard, struct embd__error *e)
{
    struct base *b = base_new(shard, e);
    if (b == NULL)
        return e->status;
    if (freeze(b, e) == EMBD_OK && journal_base_begin(shard->journal, e) == EMBD_OK)
        return EMBD_OK;
    let_go(b);
    base_free(b);
    return e->status;
}

/* ---- going on, and the end ---- */

static void give_up(struct base *b)
{
    if (b->is_read)
        return;
    b->is_given_up = true;
    basefile_stop(journal_base(b->shard->journal));
    let_go(b);
}

/* The next record; after the last one the tables may change again. */
static int go_on(struct base *b, struct embd__error *e)
{
    if (b->at < b->n && !b->is_made)
        add_create(b, &b->tables[b->at]->schema.s, e);
    else if (b->at < b->n)
        add_rows(b, e);
    else if (add_writers(b, e) == EMBD_OK) {
        let_go(b);
        basefile_end(journal_base(b->shard->journal));
    }
    if (e->status != EMBD_OK)
        give_up(b);
    return e->status;
}

static int end(struct base *b, struct embd__error *e)
{
    struct shard *shard = b->shard;
    let_go(b);
    int status = journal_base_take(shard->journal, e);
    shard->base_asked = shard->base_asked || b->is_given_up;
    base_free(b);
    return status;
}

static void note_failure(struct shard *shard, const struct embd__error *e)
{
    shard->base_not_before_ns = shard->now_ns + AFTER_FAILURE * (uint64_t)AGAIN_NS;
    shard->counters.base_errors++;
    shard->base_asked = true; /* a full disk may have room again later */
    log_event(LOG_ERROR, "journal_not_compacted", "shard=%u why=\"%s; the server tries again\"",
              shard->config.index, e->text);
}

static void count(struct shard *shard, const struct embd__error *e)
{
    if (e->status == EMBD_OK)
        shard->counters.bases++;
    else if (e->status != EMBD_CLOSED)
        note_failure(shard, e);
}

int base_make_now(struct shard *shard, struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK}, closed = {.status = EMBD_OK};
    if (begin(shard, e) != EMBD_OK)
        return e->status;
    struct basefile *file = journal_base(shard->journal);
    while (!basefile_is_over(file))
        if (shard->base->is_read || !basefile_has_room(file))
            basefile_wait(file);
        else
            go_on(shard->base, &own);
    if (end(shard->base, &closed) == EMBD_OK)
        return EMBD_OK;
    *e = own.status != EMBD_OK ? own : closed;
    return e->status;
}

/* ---- when ---- */

void base_ask(struct shard *shard)
{
    shard->base_asked = true;
}

static bool is_due(struct shard *shard)
{
    uint64_t limit = shard->config.journal_limit;
    if (shard->journal == NULL || shard->base != NULL || shard->draining ||
        shard->now_ns < shard->base_not_before_ns)
        return false;
    if (limit > 0 && journal_wants_base(shard->journal, limit))
        return true;
    bool asked = shard->base_asked;
    shard->base_asked = false;
    return asked && journal_wants_base(shard->journal,
                                       limit > 0 && limit < WORTH_BYTES ? limit : WORTH_BYTES);
}

/* A snapshot that is being made goes first. */
static bool may_begin(const struct shard *shard)
{
    return !hold_is_on(&shard->hold) && !cut_is_writing(shard);
}

static void begin_now(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    if (shard->config.wake == NULL) {
        base_make_now(shard, &e);
        count(shard, &e);
    } else if (begin(shard, &e) != EMBD_OK) {
        note_failure(shard, &e);
    }
}

/* Not now. */
static void put_off(struct shard *shard)
{
    shard->base_rests = false;
    shard->base_asked = true;
    shard->base_not_before_ns = shard->now_ns + AGAIN_NS;
}

void base_look(struct shard *shard)
{
    if (shard->base_rests) {
        if (shard->now_ns >= shard->base_not_before_ns) {
            put_off(shard);
            dispatch_parked(shard);
        }
        return;
    }
    if (!is_due(shard))
        return;
    if (!may_begin(shard)) {
        put_off(shard);
    } else if (shard->hold.n_in_flight == 0) {
        begin_now(shard);
    } else {
        shard->base_rests = true;
        shard->base_not_before_ns = shard->now_ns + REST_NS;
    }
}

/* What is under way has ended. */
static void begin_at_rest(struct shard *shard)
{
    if (!shard->base_rests || shard->hold.n_in_flight > 0)
        return;
    shard->base_rests = false;
    if (may_begin(shard) && !shard->draining)
        begin_now(shard);
    else
        put_off(shard);
    dispatch_parked(shard);
}

bool base_collect(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    begin_at_rest(shard);
    struct base *b = shard->base;
    if (b == NULL)
        return false;
    struct basefile *file = journal_base(shard->journal);
    if (basefile_is_over(file)) {
        end(b, &e);
        count(shard, &e);
        return false;
    }
    if (b->is_read || !basefile_has_room(file))
        return false;
    if (go_on(b, &e) != EMBD_OK)
        note_failure(shard, &e);
    return true;
}

void base_give_up(struct shard *shard)
{
    if (shard->base != NULL)
        give_up(shard->base);
}

void base_close(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    base_give_up(shard);
    if (shard->base != NULL)
        end(shard->base, &e);
}

/* ---- figures ---- */

static uint64_t age_us(uint64_t made_s)
{
    uint64_t now_s = (uint64_t)time(NULL);
    return made_s == 0 || now_s < made_s ? 0 : (now_s - made_s) * 1000000u;
}

struct base_figures base_figures(const struct shard *shard)
{
    struct journal_figures journal = {0};
    if (shard->journal != NULL)
        journal_figures(shard->journal, &journal);
    return (struct base_figures){
        .bytes = journal.bytes,
        .base_bytes = journal.base_bytes,
        .base_age_us = age_us(journal.base_made_s),
        .syncs = journal.syncs,
        .sync_us = journal.sync_ns / 1000,
        .sync_longest_us = journal.sync_longest_ns / 1000,
    };
}
