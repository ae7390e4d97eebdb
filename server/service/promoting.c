/* promoting.c - see promoting.h, and the method `promote`.
 *
 * The happy path: an admin asks one shard, which has all shards of the process vote. Each takes the
 * records that have come, and says that it is ready. When all have, each notes the next epoch,
 * stops following, and serves; its teller (deposing.h) then tells the server that it followed. */
#include "server/service/promoting.h"

#include <stdio.h>

#include "server/follow/maps.h"
#include "server/follow/promotion.h"
#include "server/service/authorize.h"
#include "server/service/deposing.h"
#include "server/service/following_inside.h"
#include "server/service/staging.h"

#define WHY_BYTES 300u

static bool is_under_way(const struct shard *shard)
{
    return shard->config.promotion != NULL && promotion_is_under_way(shard->config.promotion);
}

bool promoting_rests(const struct shard *shard)
{
    return shard->following != NULL && is_under_way(shard);
}

bool promoting_has_voted(const struct shard *shard)
{
    return promoting_rests(shard) &&
           shard->following->attempt == promotion_attempt(shard->config.promotion);
}

/* Records of the other server that have come are being taken. */
static bool is_busy(const struct shard *shard)
{
    struct record record;
    return following_changes(shard) || shard->hold.holders != NULL ||
           shard->compacting.state == COMPACTING_RESTS ||
           (following_next(shard->following, &record) == NEXT_RECORD &&
            !following_holds(shard, &record));
}

bool promoting_is_settled(const struct shard *shard)
{
    const struct following *f = shard->following;
    return promoting_rests(shard) && (f->state != FOLLOWING_RECORDS || !is_busy(shard));
}

static void find_hindrance(const struct shard *shard, char why[WHY_BYTES])
{
    const struct following *f = shard->following;
    uint64_t applied = shard->commit.applied.position, most;
    uint64_t lacks = f->end > applied ? f->end - applied : 0;
    most = promotion_max_behind(shard->config.promotion);
    bool lacks_base = f->state == FOLLOWING_BASE || shard->commit.journal == NULL;
    why[0] = '\0';
    if (lacks_base || (shard->config.failover != NULL && !following_has_all(shard)))
        snprintf(why, WHY_BYTES, "shard %u still takes its base, or the records behind it",
                 shard->config.index);
    else if (most != PROMOTION_ANY && f->answered_ns == 0)
        snprintf(why, WHY_BYTES,
                 "shard %u has not heard of the server that it follows since its start, so what it "
                 "lacks is not known; --force promotes it as it is",
                 shard->config.index);
    else if (lacks > most)
        snprintf(why, WHY_BYTES,
                 "shard %u lacks %llu records that the server had when it answered last, and "
                 "max_behind is %llu; --force promotes it without them",
                 shard->config.index, (unsigned long long)lacks, (unsigned long long)most);
    else
        following_find_map(shard, why, WHY_BYTES);
}

/* Shards of the cluster, as it is promoted. */
static uint32_t count_shards(const struct shard *shard)
{
    uint64_t version;
    uint32_t n = shard->config.maps != NULL ? follow_maps_shards(shard->config.maps, &version) : 0;
    return n > 0 ? n : shard->config.n_shards;
}

static bool is_spare(const struct shard *shard)
{
    return shard->config.index >= count_shards(shard);
}

static void vote(struct shard *shard)
{
    struct following *f = shard->following;
    struct promotion *promotion = shard->config.promotion;
    uint64_t attempt = promotion_attempt(promotion);
    char why[WHY_BYTES];
    struct follow_maps *maps = shard->config.maps;
    bool is_settled =
        maps == NULL || f->state != FOLLOWING_RECORDS || follow_maps_are_settled(maps);
    if (f->attempt == attempt || !is_settled || (f->state == FOLLOWING_RECORDS && is_busy(shard)))
        return;
    f->attempt = attempt;
    why[0] = '\0';
    if (!is_spare(shard))
        find_hindrance(shard, why);
    promotion_vote(promotion, attempt, why);
}

/* The server of a shard that was being added has the later map, and would go on. */
static int depose_added(struct shard *shard, uint64_t epoch, struct embd__error *e)
{
    const struct following *f = shard->following;
    if (f->is_spare)
        return EMBD_OK; /* there is none */
    shard->epoch = epoch;
    shard->epoch_who = shard->config.start;
    shard->lineage = f->note.lineage;
    return deposing_begin(shard, f->follower, e);
}

/* A spare shard: what it has goes, and no start looks for it again. The others say the epoch. */
static int become_none(struct shard *shard, struct embd__error *e)
{
    struct following *f = shard->following;
    struct promotion_report report;
    if (f->state == FOLLOWING_RECORDS)
        following_begin_anew(shard, "the cluster has fewer shards", e);
    promotion_look(shard->config.promotion, &report);
    if (e->status != EMBD_OK || f->empties || report.epoch == 0)
        return e->status != EMBD_OK ? e->status : EMBD_BUSY;
    shard->commit.follows = false;
    shard->engine.is_replaying = false;
    if (depose_added(shard, report.epoch, e) == EMBD_OK)
        promotion_count_done(shard->config.promotion, 0);
    return e->status;
}

/* Leaves the directory as a start with --promote does. */
static int become_own(struct shard *shard, struct embd__error *e)
{
    const struct journal *journal = shard->commit.journal;
    struct note note = shard->following->note;
    if (!moving_promote(shard, count_shards(shard)))
        return become_none(shard, e);
    if (deposing_promote(shard, &note, e) != EMBD_OK)
        return e->status;
    succession_begin(&shard->feeding.succession, &shard->following->place,
                     journal_position(journal), journal_chain(journal));
    shard->epoch = note.epoch;
    shard->lineage = note.lineage;
    shard->epoch_who = note.who;
    shard->commit.follows = false;
    shard->engine.is_replaying = false;
    shard->engine.tables.apart.n = 0;
    staging_lock(shard);
    if (deposing_begin(shard, shard->following->follower, e) == EMBD_OK)
        promotion_count_done(shard->config.promotion, note.epoch);
    return e->status;
}

bool promoting_look(struct shard *shard, struct embd__error *e)
{
    if (!is_under_way(shard))
        return false;
    if (promotion_state(shard->config.promotion) != PROMOTION_ASKED)
        return become_own(shard, e) == EMBD_OK;
    vote(shard);
    return false;
}

/* ---- the method ---- */

static int ask(struct call *call, uint64_t max_behind)
{
    struct shard *shard = call->shard;
    if (shard->config.failover != NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "promote: this cluster has failover, and etcd says who serves: stop "
                               "the process that does, and a follower takes its place");
    if (shard->following == NULL || shard->config.promotion == NULL)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "promote: shard %u follows no server; nothing was promoted",
                               shard->config.index);
    return promotion_ask(shard->config.promotion, max_behind, &call->error);
}

static void tell(struct call *call)
{
    static const char *const names[] = {
        [PROMOTION_NOT] = "not",   [PROMOTION_ASKED] = "asked",     [PROMOTION_GOES] = "goes",
        [PROMOTION_DONE] = "done", [PROMOTION_REFUSED] = "refused",
    };
    struct promotion_report report = {.state = PROMOTION_NOT};
    if (call->shard->config.promotion != NULL)
        promotion_look(call->shard->config.promotion, &report);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 4);
    embd__msg_field_str(call->answer, "state", names[report.state]);
    embd__msg_field_str(call->answer, "why", report.why);
    embd__msg_field_uint(call->answer, "epoch", report.epoch);
    embd__msg_field_uint(call->answer, "us", report.us);
}

int handle_promote(struct call *call)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "promote");
    bool looks = embd__field_bool(&f, "look", false);
    bool forces = embd__field_bool(&f, "force", false);
    uint64_t max_behind = embd__field_uint(&f, "max_behind", 0, INT64_MAX, 0);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (!looks && ask(call, forces ? PROMOTION_ANY : max_behind) != EMBD_OK)
        return call->error.status;
    tell(call);
    return EMBD_OK;
}
