/* compacting.c - see compacting.h. */
#include "server/service/compacting.h"

#include <time.h>

#include "server/engine/joining.h"
#include "server/log/log.h"
#include "server/service/feeding.h"
#include "server/service/state.h"

#define WORTH_BYTES                                                                                \
    (64u << 20) /* behind a base, before another one is worth writing though it needs not be */
#define REST_NS       100000000u   /* what is under way is not waited for longer */
#define AGAIN_NS      1000000000u  /* after that, */
#define SIZE_NS       10000000u    /* between two estimates of the next base's bytes */
#define AFTER_FAILURE 10u          /* and this often after a failure */
#define KEEP_NS       10000000000u /* records that followers lack are kept no longer for them */

void compacting_ask(struct shard *shard)
{
    shard->compacting.is_asked = true;
}

void compacting_mend(struct shard *shard)
{
    shard->compacting.is_damaged = true;
}

bool compacting_is_awaited(struct shard *shard)
{
    struct compacting *c = &shard->compacting;
    c->is_awaited = c->is_resized;
    return c->is_resized;
}

bool compacting_stops(const struct shard *shard, enum touch touch)
{
    bool is_change = touch == TOUCH_CHANGES || touch == TOUCH_STRUCTURE;
    return is_change || (touch == TOUCH_READS && shard->engine.tables.ops->caps.is_async &&
                         shard->engine.n_in_flight > 0);
}

/* ---- outcomes ---- */

static void note_failure(struct shard *shard, const struct embd__error *e)
{
    struct compacting *c = &shard->compacting;
    c->retry_ns = shard->now_ns + AFTER_FAILURE * (uint64_t)AGAIN_NS;
    c->is_asked = true; /* a full disk may have room again later */
    joining_fail(&shard->engine.tables, e->text);
    shard->counters.base_errors++;
    log_event(LOG_ERROR, "journal_not_compacted", "shard=%u why=\"%s\" again_in_s=%u",
              shard->config.index, e->text, AFTER_FAILURE);
}

static void count(struct shard *shard, const struct embd__error *e)
{
    struct compacting *c = &shard->compacting;
    if (e->status != EMBD_OK && e->status != EMBD_CLOSED)
        note_failure(shard, e);
    if (e->status != EMBD_OK)
        return;
    shard->counters.bases++;
    if (c->ends_resized)
        c->is_resized = c->is_awaited = false;
}

static void end(struct shard *shard)
{
    struct compacting *c = &shard->compacting;
    struct embd__error e = {.status = EMBD_OK};
    bool again;
    c->state = COMPACTING_NOT;
    compaction_end(c->compaction, &again, &e);
    c->is_asked = c->is_asked || again;
    count(shard, &e);
}

/* ---- when ---- */

/* So much is behind the base. If it has more, that has to be behind it too, so that compaction
 * writes no more than pushes do; unless the disk is what counts. */
static bool is_beyond_limit(const struct shard *shard)
{
    const struct journal *journal = shard->commit.journal;
    uint64_t limit = shard->config.journal_limit;
    if (limit == 0)
        return false;
    return shard->config.is_journal_strict ? journal_has_behind(journal, limit)
                                           : journal_wants_base(journal, limit);
}

/* What was put off is due at once where the disk has little space: pushes go on, and take it. */
static bool is_too_early(const struct shard *shard)
{
    const struct compacting *c = &shard->compacting;
    return shard->now_ns < c->retry_ns ||
           (shard->now_ns < c->not_before_ns && !journal_lacks_room(shard->commit.journal));
}

static bool is_due(struct shard *shard)
{
    struct compacting *c = &shard->compacting;
    const struct journal *journal = shard->commit.journal;
    uint64_t limit = shard->config.journal_limit;
    if (journal == NULL || shard->draining || is_too_early(shard))
        return false;
    if (c->is_damaged || c->is_awaited || is_beyond_limit(shard) || journal_lacks_room(journal) ||
        shard->engine.tables.n_joining > 0)
        return true;
    bool asked = c->is_asked;
    c->is_asked = false;
    return asked &&
           journal_wants_base(journal, limit > 0 && limit < WORTH_BYTES ? limit : WORTH_BYTES);
}

/* Somebody waits for the base, or for the space that it gives back. */
static bool is_urgent(const struct shard *shard)
{
    const struct compacting *c = &shard->compacting;
    return c->is_damaged || c->is_awaited || shard->config.is_journal_strict ||
           shard->engine.tables.n_joining > 0;
}

static void begin(struct shard *shard)
{
    struct compacting *c = &shard->compacting;
    struct embd__error e = {.status = EMBD_OK};
    c->not_before_ns = 0; /* it was how long to wait for rest */
    c->position = journal_position(shard->commit.journal);
    c->kept_until_ns = is_urgent(shard) ? 0 : shard->now_ns + KEEP_NS;
    c->is_damaged = false;
    c->ends_resized = c->is_resized;
    subscribers_give_way(shard);
    moving_keep(shard); /* the journal loses its record */
    if (shard->config.wake == NULL) {
        compaction_make_now(&shard->commit, &e);
        count(shard, &e);
    } else if (compaction_begin(&shard->commit, &c->compaction, &e) == EMBD_OK) {
        c->state = COMPACTING_WRITES;
    } else {
        note_failure(shard, &e);
    }
}

/* Not now. */
static void put_off(struct shard *shard)
{
    struct compacting *c = &shard->compacting;
    c->state = COMPACTING_NOT;
    c->is_asked = true;
    c->not_before_ns = shard->now_ns + AGAIN_NS;
}

static void size(struct shard *shard)
{
    struct compacting *c = &shard->compacting;
    if (shard->now_ns - c->sized_ns < SIZE_NS || (shard->is_loading && shard->following == NULL))
        return;
    c->sized_ns = shard->now_ns;
    journal_set_need(shard->commit.journal, compaction_bytes(&shard->commit));
}

/* A base is of no moment while a holder makes a cut of all shards. What a shard in doubt holds back
 * is another matter: it may last, and the disk may need what the base gives back. A follower with a
 * table apart begins anew. */
static bool is_put_off(const struct shard *shard, bool is_cutting)
{
    return is_cutting || shard->hold.holders != NULL || shard->engine.tables.apart.n > 0;
}

bool compacting_look(struct shard *shard, bool is_cutting)
{
    struct compacting *c = &shard->compacting;
    size(shard);
    bool gave_up = c->state == COMPACTING_RESTS && shard->now_ns >= c->not_before_ns;
    if (gave_up)
        put_off(shard);
    if (c->state != COMPACTING_NOT || !is_due(shard))
        return gave_up;
    if (is_put_off(shard, is_cutting)) {
        put_off(shard);
    } else if (shard_n_in_flight(shard) == 0) {
        begin(shard);
    } else {
        c->state = COMPACTING_RESTS;
        c->not_before_ns = shard->now_ns + REST_NS;
    }
    return gave_up;
}

/* The compaction in progress has ended. */
static bool begin_at_rest(struct shard *shard, bool is_cutting)
{
    if (shard->compacting.state != COMPACTING_RESTS || shard_n_in_flight(shard) > 0)
        return false;
    shard->compacting.state = COMPACTING_NOT;
    if (is_put_off(shard, is_cutting) || shard->draining)
        put_off(shard);
    else
        begin(shard);
    return true;
}

/* The files that the base replaces have records that a follower has not taken yet. */
static bool is_read(struct shard *shard)
{
    const struct compacting *c = &shard->compacting;
    return shard->now_ns < c->kept_until_ns && feeding_lacks(shard, c->position) &&
           journal_has_ample_room(shard->commit.journal);
}

bool compacting_collect(struct shard *shard, bool is_cutting, bool *rested_out)
{
    struct compacting *c = &shard->compacting;
    struct embd__error e = {.status = EMBD_OK};
    bool has_more = false;
    *rested_out = begin_at_rest(shard, is_cutting);
    if (c->state != COMPACTING_WRITES)
        return false;
    if (compaction_is_over(c->compaction)) {
        end(shard);
        return false;
    }
    if (compaction_step(c->compaction, is_read(shard), &has_more, &e) != EMBD_OK)
        note_failure(shard, &e);
    return has_more;
}

void compacting_give_up(struct shard *shard)
{
    if (shard->compacting.state == COMPACTING_WRITES)
        compaction_give_up(shard->compacting.compaction);
}

void compacting_stop(struct shard *shard)
{
    compacting_give_up(shard);
    if (shard->compacting.state == COMPACTING_RESTS)
        shard->compacting.state = COMPACTING_NOT;
}

void compacting_close(struct shard *shard)
{
    compacting_stop(shard);
    if (shard->compacting.state == COMPACTING_WRITES)
        end(shard);
}

/* ---- figures ---- */

static uint64_t age_us(uint64_t made_s)
{
    uint64_t now_s = (uint64_t)time(NULL);
    return made_s == 0 || now_s < made_s ? 0 : (now_s - made_s) * 1000000u;
}

struct compacting_figures compacting_figures(const struct shard *shard)
{
    struct journal_figures journal = {0};
    if (shard->commit.journal != NULL)
        journal_figures(shard->commit.journal, &journal);
    return (struct compacting_figures){
        .bytes = journal.bytes,
        .base_bytes = journal.base_bytes,
        .reserved_bytes = journal.reserved_bytes,
        .base_age_us = age_us(journal.base_made_s),
        .syncs = journal.syncs,
        .sync_us = journal.sync_ns / 1000,
        .sync_longest_us = journal.sync_longest_ns / 1000,
    };
}
