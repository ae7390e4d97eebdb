/* replicated.c - see replicated.h. */
#include "server/service/replicated.h"

#include "server/follow/failover.h"
#include "server/journal/syncs.h"
#include "server/service/answer.h"
#include "server/service/feeding.h"
#include "server/service/request_list.h"
#include "server/service/state.h"

/* A follower that asks nothing for so long stands still, or its host is gone. */
#define SILENT_NS 5000000000u

/* ---- what followers have ---- */

static bool takes_records(const struct feed *feed, uint64_t now_ns)
{
    bool is_silent =
        feed->request == NULL && feed->read == NULL && now_ns - feed->answered_ns > SILENT_NS;
    return feed->session != NULL && feed->is_ours && !feed->ask.is_base && !feed->ask.reads &&
           !is_silent;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The greatest number that at least `wanted` of the list reach. */
static uint64_t reached_by(const uint64_t *list, uint32_t n, uint32_t wanted)
{
    uint64_t most = wanted == 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < n && wanted > 0; i++) {
        uint32_t n_others = 0;
        for (uint32_t k = 0; k < n; k++)
            n_others += list[k] >= list[i];
        if (n_others >= wanted && list[i] > most)
            most = list[i];
    }
    return most;
}

/* Nobody has more than was sent: a question says what it likes. */
static uint64_t at_most_sent(const struct shard *shard, const struct feed *feed, uint64_t claimed)
{
    return lesser(claimed, lesser(feed->ask.position, shard->commit.ended.position));
}

static void count_any(struct shard *shard, uint64_t now_ns)
{
    struct replicated *r = &shard->replicated;
    uint64_t applied[FOLLOWERS_MAX], disk[FOLLOWERS_MAX];
    r->n = 0;
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        const struct feed *feed = &shard->feeding.list[i];
        if (!takes_records(feed, now_ns))
            continue;
        applied[r->n] = at_most_sent(shard, feed, feed->ask.applied);
        disk[r->n++] = at_most_sent(shard, feed, feed->ask.disk);
    }
    uint64_t to = reached_by(applied, r->n, shard->config.replicas);
    uint64_t synced = reached_by(disk, r->n, shard->config.replicas);
    r->applied = to > r->applied ? to : r->applied;
    r->disk = synced > r->disk ? synced : r->disk;
}

/* ---- with failover: those that are required ---- */

static const struct feed *feed_of(const struct shard *shard, uint64_t start, uint64_t now_ns)
{
    const struct feed *found = NULL;
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++)
        if (shard->feeding.list[i].ask.start == start &&
            takes_records(&shard->feeding.list[i], now_ns))
            found = &shard->feeding.list[i];
    return found;
}

static void count_required(struct shard *shard, const struct failover_set *required,
                           uint64_t now_ns)
{
    struct replicated *r = &shard->replicated;
    uint64_t to = UINT64_MAX, synced = UINT64_MAX;
    r->n = 0;
    for (uint32_t i = 0; i < required->n; i++) {
        const struct feed *feed = feed_of(shard, required->ids[i], now_ns);
        to = lesser(to, feed == NULL ? 0 : at_most_sent(shard, feed, feed->ask.applied));
        synced = lesser(synced, feed == NULL ? 0 : at_most_sent(shard, feed, feed->ask.disk));
        r->n += feed != NULL;
    }
    if (required->n < shard->config.replicas)
        return;
    r->applied = to > r->applied ? to : r->applied;
    r->disk = synced > r->disk ? synced : r->disk;
}

/* Whom the shard feeds, and who has all that may have been acknowledged before it was required. */
static void report(struct shard *shard, const struct failover_view *view, uint64_t now_ns)
{
    struct failover_set live = {.n = 0}, even = {.n = 0};
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        const struct feed *feed = &shard->feeding.list[i];
        uint64_t start = feed->ask.start;
        if (start == 0 || !takes_records(feed, now_ns))
            continue;
        failover_add(&live, start);
        if (failover_has(&view->required, start) &&
            at_most_sent(shard, feed, feed->ask.applied) >= view->floor &&
            at_most_sent(shard, feed, feed->ask.disk) >= view->floor)
            failover_add(&even, start);
    }
    failover_report(shard->config.failover, shard->config.index, view->version, &live, &even);
}

static void count_for_failover(struct shard *shard, uint64_t now_ns)
{
    struct failover *failover = shard->config.failover;
    struct failover_view *view = failover_view_of(failover, shard->config.index);
    if (view->version != (uint32_t)atomic_load(&failover->version)) {
        view->version = failover_required(failover, &view->required);
        view->floor = shard->commit.ended.position;
    }
    count_required(shard, &view->required, now_ns);
    report(shard, view, now_ns);
}

static void count(struct shard *shard, uint64_t now_ns)
{
    if (shard->config.failover != NULL)
        count_for_failover(shard, now_ns);
    else
        count_any(shard, now_ns);
}

/* ---- what is missing ---- */

static bool is_fenced(const struct shard *shard)
{
    return shard->config.failover != NULL && failover_is_fenced(shard->config.failover);
}

static void note_lack(struct shard *shard, uint64_t now_ns)
{
    struct replicated *r = &shard->replicated;
    bool lacks = r->n < shard->config.replicas;
    if (!lacks)
        r->lacks_ns = 0;
    else if (r->lacks_ns == 0)
        r->lacks_ns = now_ns;
}

/* ---- answers that wait ---- */

static bool is_there(const struct replicated *r, const struct request *request)
{
    const struct op_record *record = &request->work->op.record;
    return record->position < (record->is_synced ? r->disk : r->applied);
}

static void take_out(struct replicated *r, struct request *request)
{
    request_list_remove(&r->first, &r->last, request);
    r->n_waiting--;
    r->n_synced -= request->work->op.record.is_synced;
}

/* `is_sent`: with its answer; else its connection ends, since nothing can be said of the change. */
static void end(struct request *request, bool is_sent)
{
    if (request->times.weight > 0)
        stage_end(&request->times, STAGE_STORE, monotonic_ns());
    request->has_answer = is_sent;
    request->state = REQUEST_ANSWERED;
    request->on_answer(request);
}

/* `is_over`: the others are given up. */
static void send_answers(struct replicated *r, bool is_over, bool is_fenced)
{
    struct request *next;
    for (struct request *request = r->first; request != NULL; request = next) {
        next = request->next;
        bool is_sent = is_there(r, request) && !is_fenced;
        if (!is_sent && !is_over)
            continue;
        take_out(r, request);
        end(request, is_sent);
    }
}

static bool lacks_for_long(const struct replicated *r, uint64_t now_ns)
{
    return r->lacks_ns != 0 && now_ns - r->lacks_ns >= REPLICATED_PATIENCE_NS;
}

/* Made by an operator, or by a trainer that begins: no number brings it again. */
static bool is_of_table(const struct op *op)
{
    return op->kind == OP_TABLE_CREATE || op->kind == OP_TABLE_DROP || op->kind == OP_TABLE_SET ||
           op->kind == OP_LOAD || op->kind == OP_STAGE;
}

static int say_lack(const struct shard *shard, const char *what, const char *so, uint64_t now_ns,
                    struct embd__error *e)
{
    const struct replicated *r = &shard->replicated;
    return embd__error_set(e, EMBD_BUSY,
                           "%s, and %u of %u followers (replicas) of shard %u are there, for %.0f "
                           "s now: start followers, or set replicas lower; %s",
                           what, r->n, shard->config.replicas, shard->config.index,
                           (double)(now_ns - r->lacks_ns) / 1e9, so);
}

/* Else its caller hears of a deadline only. */
static void answer_with_lack(struct shard *shard, uint64_t now_ns)
{
    struct request *next;
    for (struct request *request = shard->replicated.first; request != NULL; request = next) {
        struct embd__error e = {.status = EMBD_OK};
        next = request->next;
        if (!is_of_table(&request->work->op))
            continue;
        say_lack(shard, "a table is replicated", "this server alone has the change", now_ns, &e);
        take_out(&shard->replicated, request);
        request_fail(request, &e);
        shard->counters.errors++;
        end(request, true);
    }
}

void replicated_look(struct shard *shard)
{
    struct replicated *r = &shard->replicated;
    uint64_t now_ns = monotonic_ns();
    if (shard->commit.journal == NULL || shard->following != NULL)
        return;
    if (!shard->is_deposed)
        count(shard, now_ns);
    note_lack(shard, now_ns);
    if (r->first != NULL)
        send_answers(r,
                     shard->is_deposed || is_fenced(shard) || (shard->draining && r->lacks_ns != 0),
                     is_fenced(shard));
    if (r->first != NULL && lacks_for_long(r, now_ns))
        answer_with_lack(shard, now_ns);
}

/* With failover followers find a server once it is a member. It has no row until then. */
static bool has_no_followers_yet(const struct shard *shard)
{
    return shard->config.failover != NULL && shard_joins(shard);
}

bool replicated_keeps(struct shard *shard, struct request *request)
{
    struct replicated *r = &shard->replicated;
    struct op_record *record = &request->work->op.record;
    if (!record->is_written && record->position == 0) /* it was there: by an earlier record */
        record->position = shard->commit.reached - (shard->commit.reached > 0);
    if (shard->config.replicas == 0 || has_no_followers_yet(shard) || is_there(r, request))
        return false;
    request->state = REQUEST_PARKED;
    request->waits = WAITS_FOLLOWERS;
    request_list_add(&r->first, &r->last, request);
    r->n_waiting++;
    r->n_synced += record->is_synced;
    return true;
}

void replicated_forget(struct shard *shard, struct request *request)
{
    take_out(&shard->replicated, request);
}

/* ---- changes ---- */

void replicated_note_servers(struct shard *shard, uint32_t n_shards)
{
    const struct shard_config *config = &shard->config;
    bool has_others = n_shards > config->own_n || config->own_first > 0;
    shard->engine.replicates_maps =
        config->failover != NULL && config->replicas > 0 && has_others && !shard_joins(shard);
}

void replicated_begin(struct shard *shard)
{
    replicated_note_servers(shard, shard->config.n_shards);
    shard->replicated.lacks_ns = shard->config.replicas > 0 ? monotonic_ns() : 0;
}

/* It stays as it is: a trainer that begins may read it. */
static bool is_table_there(const struct op *op)
{
    return op->kind == OP_TABLE_CREATE &&
           tables_by_name(&op->engine->tables, op->as.create.schema.s.name) != NULL;
}

int replicated_check(const struct shard *shard, const struct op *op, struct embd__error *e)
{
    const struct replicated *r = &shard->replicated;
    embd_durability durability;
    if (r->lacks_ns == 0 || has_no_followers_yet(shard))
        return EMBD_OK;
    uint64_t now_ns = monotonic_ns();
    if (!lacks_for_long(r, now_ns) || op_durability(op, &durability, e) != EMBD_OK ||
        !embd__durability_is_replicated(durability) || is_table_there(op))
        return e->status;
    bool is_map = op->engine->replicates_maps && (op->kind == OP_REPLACE || op->kind == OP_PREPARE);
    return say_lack(
        shard, is_map ? "what all shards do at once waits for followers" : "a table is replicated",
        "nothing was changed", now_ns, e);
}

void replicated_again(struct op *op)
{
    embd_durability durability;
    struct embd__error e = {.status = EMBD_OK};
    if (op_durability(op, &durability, &e) != EMBD_OK)
        return;
    op->record.is_replicated = embd__durability_is_replicated(durability);
    op->record.is_synced = embd__durability_is_synced(durability);
}
