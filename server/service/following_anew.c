/* following_anew.c - what is asked for again, and a follower that begins anew: its tables and its
 * journal go, and the base of the other server comes. */
#include <stdio.h>
#include <string.h>

#include "server/journal/tail.h"
#include "server/log/log.h"
#include "server/service/following_inside.h"
#include "server/service/handle_round.h"
#include "server/service/materialize.h"
#include "server/snapshot/cut.h"
#include "server/snapshot/cut_read.h"

/* The answer is right: it has the next records, or says that there are none. */
void following_note_right(struct shard *shard)
{
    struct following *f = shard->following;
    f->is_lost = false;
    if (f->is_told)
        return;
    f->is_told = true;
    log_event(LOG_INFO, "follows", "shard=%u server=%s position=%llu of=%llu", shard->config.index,
              f->address, (unsigned long long)f->place.position, (unsigned long long)f->end);
}

/* The answer is of no use: asks again, from the last record that was taken. */
static void ask_anew(struct following *f, uint64_t after_ns)
{
    f->n = f->used = 0;
    f->n_skips = 0;
    following_forget_probes(f);
    f->came = f->place;
    f->file = f->at = 0;
    f->drops = f->has_asked;
    f->ask_at_ns = clock_ns() + after_ns;
}

void following_lose(struct shard *shard, const char *why)
{
    struct following *f = shard->following;
    f->is_told = f->is_told && f->is_lost;
    if (!f->is_lost || strncmp(f->lost_why, why, sizeof f->lost_why - 1) != 0)
        log_event(LOG_WARN, "follow_lost", "shard=%u server=%s position=%llu why=\"%s\"",
                  shard->config.index, shard->config.follow->address,
                  (unsigned long long)f->place.position, why);
    f->is_lost = true;
    snprintf(f->lost_why, sizeof f->lost_why, "%s", why);
}

/* Bytes that are not the other server's next records. */
void following_refuse(struct shard *shard, const char *why)
{
    following_lose(shard, why);
    ask_anew(shard->following, FOLLOWING_AGAIN_NS);
}

/* ---- beginning anew ---- */

/* The owner's settings stay. */
static void empty_commit(struct shard *shard)
{
    struct commit *commit = &shard->commit;
    commit_init(commit, &shard->engine);
    commit->shard = shard->config.index;
    commit->data_dir = shard->data_dir;
    commit->is_deferred = shard->config.wake != NULL;
    commit->follows = true;
}

static void empty_engine(struct shard *shard)
{
    struct engine *engine = &shard->engine;
    struct row_memory *memory = engine->tables.memory;
    void (*before_drop)(void *, const struct table *) = engine->before_drop;
    int (*before_change)(void *, const void *, const struct table *, enum change,
                         struct embd__error *) = engine->before_change;
    void (*on_returned)(void *) = engine->on_returned;
    void (*on_placed)(void *, const struct op_replace *) = engine->on_placed;
    void (*on_loaded)(void *, const struct op_load *) = engine->on_loaded;
    round_close(engine);
    engine_fini(engine);
    engine_init(engine, shard->config.store);
    engine->before_drop = before_drop;
    engine->before_change = before_change;
    engine->is_read = shard->streaming != NULL;
    engine->on_returned = on_returned;
    engine->on_placed = on_placed;
    engine->on_loaded = on_loaded;
    engine->arg = shard;
    engine->tables.memory = memory;
    engine->is_replaying = true;
    round_open(shard);
}

/* Rows of answers that are half sent, from tables that go. */
static int keep_answers(struct shard *shard, struct embd__error *e)
{
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < tables->n; i++)
        if (materialize(shard, NULL, tables->by_name[i], CHANGE_DROP, e) != EMBD_OK)
            return e->status;
    return EMBD_OK;
}

/* Answers that readers take slowly may have no room. They are read, or their connections end
 * (stall_timeout), and no new ones are begun. */
int following_empty(struct shard *shard, struct embd__error *e)
{
    struct embd__error later = {.status = EMBD_OK};
    if (keep_answers(shard, &later) != EMBD_OK)
        return EMBD_OK;
    shard->following->empties = false;
    cut_close(shard);
    cut_read_end(shard);
    mark_end(shard);
    subscribers_end_all(shard);
    compacting_close(shard);
    commit_fini(&shard->commit);
    while (shard->engine.set.is_on)
        tables_sweep(&shard->engine.tables);
    empty_engine(shard);
    moving_forget(shard);
    empty_commit(shard);
    shard->cuts = (struct cuts_known){0};
    return tail_remove(shard->data_dir, shard->config.index, e);
}

/* The note comes first: whatever happens then, the next start knows that the journal goes. */
int following_begin_anew(struct shard *shard, const char *why, struct embd__error *e)
{
    struct following *f = shard->following;
    log_event(LOG_WARN, "follow_begins_anew", "shard=%u server=%s position=%llu why=\"%s\"",
              shard->config.index, shard->config.follow->address,
              (unsigned long long)f->place.position, why);
    f->note =
        (struct note){.state = NOTE_BEGINS, .epoch = f->note.epoch, .lineage = f->note.lineage};
    f->next_note = (struct note){.state = NOTE_NONE};
    f->state = FOLLOWING_BASE;
    f->is_whole = false;
    f->first = f->last = (struct following_sure){0, 0};
    following_mark_fail(shard, "it begins anew");
    f->fresh_ns = 0; /* the base may be older */
    f->empties = true;
    f->place = (struct tail_place){0};
    ask_anew(f, 0);
    if (note_write(shard->data_dir, shard->config.index, &f->note, e) != EMBD_OK)
        return e->status;
    return following_empty(shard, e);
}
