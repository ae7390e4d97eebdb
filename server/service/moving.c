/* moving.c - see moving.h. */
#include "server/service/moving.h"

#include <stdlib.h>

#include "server/follow/maps.h"
#include "server/identity/identity.h"
#include "server/journal/journal.h"
#include "server/log/ending.h"
#include "server/log/log.h"
#include "server/service/feeding.h"
#include "server/service/handle_round.h"
#include "server/service/state.h"

int moving_refuse_cut(const struct shard *shard, const char *what, struct embd__error *e)
{
    const struct moving *moving = &shard->moving;
    if (!moving_is_on(moving))
        return EMBD_OK;
    return embd__error_set(e, EMBD_BUSY, "%s: keys are being moved between shards%s; try again",
                           what,
                           moving->mover == NULL ? ", and rows that left are being removed" : "");
}

/* A base says it, and the map with it. */
static void set_foreign(struct shard *shard, bool is_foreign)
{
    struct engine_placed *placed = &shard->engine.placed;
    shard->moving.has_foreign = placed->is_foreign = is_foreign;
    if (!is_foreign || placed->is_set || shard->config.placement == NULL)
        return;
    placed->is_set = true;
    placed->map = *shard->config.placement;
}

int moving_begin_foreign(struct shard *shard, struct embd__error *e)
{
    struct identity *identity = shard->config.identity;
    if (shard->moving.has_foreign)
        return EMBD_OK;
    if (identity != NULL && identity_move_begins(identity, e) != EMBD_OK)
        return e->status;
    set_foreign(shard, true);
    return EMBD_OK;
}

static void end_foreign(struct shard *shard)
{
    if (!shard->moving.has_foreign)
        return;
    set_foreign(shard, false);
    if (shard->config.identity != NULL)
        identity_move_ends(shard->config.identity);
}

void moving_begin(struct shard *shard)
{
    const struct identity *identity = shard->config.identity;
    shard->moving.is_kept = true;
    shard->moving.has_foreign |= identity != NULL && identity_was_moving(identity);
    shard->engine.placed.is_foreign = shard->moving.has_foreign;
}

bool moving_lost_tables(const struct shard *shard)
{
    const struct moving *moving = &shard->moving;
    const struct tables *tables = &shard->engine.tables;
    return moving->n_opened != tables->n_opened || moving->n_tables != tables->n;
}

/* ---- the sweep's keys ---- */

void moving_drop_keys(struct moving *moving)
{
    for (uint32_t i = 0; i < MOVE_ERASES; i++) {
        struct moving_erase *erase = &moving->erases[i];
        if (!erase->is_on)
            erase->n = 0;
    }
}

void moving_read_anew(struct moving *moving)
{
    moving->table[0] = '\0';
    moving->listed = 0;
    moving->is_read = moving->is_swept = false;
    moving_drop_keys(moving);
}

#define REFUSED_NS UINT64_C(60000000000)

int moving_check_pushes(const struct shard *shard, struct embd__error *e)
{
    const struct moving *moving = &shard->moving;
    if (moving->refused_ns == 0 || shard->now_ns - moving->refused_ns >= REFUSED_NS)
        return EMBD_OK;
    return embd__error_set(e, EMBD_BUSY,
                           "move: shard %u refused a push %llu s ago, which other shards may have; "
                           "its trainer repeats it: try again after a minute without a refusal",
                           shard->config.index,
                           (unsigned long long)((shard->now_ns - moving->refused_ns) / 1000000000));
}

/* ---- the map ---- */

static void lose(const struct shard *shard, const struct embd__error *e)
{
    log_exit(EXIT_DISK, "placement_lost",
             "shard=%u version=%llu why=\"keys have moved, and the data directory cannot note it: "
             "%s\"",
             shard->config.index, (unsigned long long)shard->config.placement->version, e->text);
}

void moving_keep(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    struct identity *identity = shard->config.identity;
    if (shard->moving.is_kept || identity == NULL || shard->following != NULL)
        return;
    if (identity_place(identity, shard->config.placement, &e) != EMBD_OK)
        lose(shard, &e);
    shard->moving.is_kept = true;
}

static void note_foreign(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    if (moving_begin_foreign(shard, &e) != EMBD_OK)
        lose(shard, &e);
}

static void set_map(struct shard *shard, const struct placement *place)
{
    struct moving *moving = &shard->moving;
    moving->at_placement ^= 1;
    moving->placements[moving->at_placement] = *place;
    shard->config.placement = &moving->placements[moving->at_placement];
}

static void resize(struct shard *shard, const struct placement *place)
{
    struct shard_map *map = NULL;
    struct embd__error e = {.status = EMBD_OK};
    if (shard->config.resize == NULL)
        return;
    if (shard->config.resize(shard->config.resize_arg, place, &map, &e) != EMBD_OK)
        lose(shard, &e);
    if (map != NULL)
        shard_set_map(shard, map);
}

/* Admins ask a follower's process for what all shards of the cluster have. */
static void tell_process(struct shard *shard)
{
    const struct shard_config *config = &shard->config;
    struct embd__error e = {.status = EMBD_OK};
    if (config->index == 0 && config->resize_own != NULL && moving_is_by_records(shard) &&
        config->resize_own(config->resize_arg, config->n_shards, &e) != EMBD_OK)
        log_event(LOG_ERROR, "shards_not_told", "shards=%u why=\"%s\"", config->n_shards, e.text);
}

static void count_with(struct shard *shard, uint32_t n_shards)
{
    struct shard_config *config = &shard->config;
    if (n_shards != config->n_shards)
        log_event(LOG_INFO, n_shards > config->n_shards ? "shards_added" : "shards_retired",
                  "shard=%u shards=%u before=%u", config->index, n_shards, config->n_shards);
    config->n_shards = n_shards;
    config->is_alone = config->own_n == n_shards;
    compacting_note_resized(&shard->compacting);
    tell_process(shard);
}

/* The directory has the map before anybody counts with its shards. */
static void take_shards(struct shard *shard, const struct placement *place)
{
    struct shard_config *config = &shard->config;
    uint32_t n_shards = place->n_shards;
    moving_keep(shard);
    resize(shard, place);
    if (n_shards == config->n_shards)
        return;
    count_with(shard, n_shards);
}

/* The server is of no cluster any more. Its process counts with the shards as before: it asks shard
 * 0 for those of its shards that are still in doubt. */
static void leave(struct shard *shard, const struct placement *place)
{
    struct shard_config *config = &shard->config;
    struct embd__error e = {.status = EMBD_OK};
    if (identity_leave(config->identity, &e) != EMBD_OK)
        lose(shard, &e);
    log_event(LOG_INFO, "shard_left",
              "shard=%u shards=%u why=\"it left the cluster by embctl shard retire: end this "
              "server\"",
              config->index, place->n_shards);
    config->n_shards = place->n_shards;
    resize(shard, place);
    shard->moving.is_kept = true;
}

bool moving_is_by_records(const struct shard *shard)
{
    return shard->following != NULL || (shard->config.promotes && shard->engine.is_replaying);
}

/* Or an archive kept them. */
static bool is_by_records(const struct shard *shard)
{
    return moving_is_by_records(shard) || shard->archived != NULL;
}

/* A server that has just begun may have another map than the even one, of the same version. */
static bool is_later(const struct shard *shard, const struct placement *place)
{
    const struct placement *own = shard->config.placement;
    if (own == NULL || place->version > own->version)
        return true;
    return place->version == own->version && is_by_records(shard) &&
           !embd__placement_is_same(place, own);
}

static void take_map(struct shard *shard, const struct placement *place)
{
    struct moving *moving = &shard->moving;
    bool joins = shard_joins(shard), is_other = place->n_shards != shard->config.n_shards;
    set_map(shard, place);
    moving->is_kept = false;
    if (is_other && moving_is_by_records(shard)) {
        count_with(shard, place->n_shards);
        if (shard->config.failover != NULL)
            resize(shard, place);
    } else if (shard->config.index >= place->n_shards && shard->config.maps != NULL &&
               shard->config.failover == NULL)
        shard->moving.is_kept = true; /* it is spare, and its process has all shards */
    else if (shard->config.index >= place->n_shards)
        leave(shard, place);
    else if (joins || is_other)
        take_shards(shard, place);
    if (joins) /* followers come from now on */
        replicated_begin(shard);
    else
        replicated_note_servers(shard, place->n_shards);
    log_event(LOG_INFO, "placement_moved", "shard=%u version=%llu vshards=%u", shard->config.index,
              (unsigned long long)place->version,
              embd__placement_count(place, shard->config.index));
    shard->cuts = (struct cuts_known){0}; /* keys that went are not gone, for an increment */
    moving_read_anew(moving);
    round_refuse_moved(shard);
    subscribers_end_each(shard);
}

/* With failover and in archives, records of another number of shards are of before. */
static bool may_resize(const struct shard *shard)
{
    if (shard->config.resize == NULL || shard->archived != NULL)
        return false;
    return moving_is_by_records(shard) || !shard_has_left(shard);
}

/* The move that it began with no row of others' took none of its keys: what came is its own now. */
static bool stays_clean(const struct shard *shard, const struct placement *place)
{
    const struct moving *moving = &shard->moving;
    return moving->mover != NULL && !moving->loses && place->version == moving->next.version;
}

void moving_adopt(void *arg, const struct op_replace *replace)
{
    struct shard *shard = arg;
    bool is_moved = replace->step == REPLACE_DONE;
    bool is_other = replace->place->n_shards != shard->config.n_shards;
    if (is_other && !may_resize(shard))
        return;
    bool is_news = is_later(shard, replace->place);
    bool is_clean = is_moved && is_news && stays_clean(shard, replace->place);
    if (is_news)
        take_map(shard, replace->place);
    if (is_clean)
        shard->moving.is_swept = true;
    if (shard_has_left(shard)) /* it had no keys */
        return;
    if ((is_news && is_moved) || replace->is_moving)
        note_foreign(shard);
    else if (!is_moved && is_by_records(shard))
        end_foreign(shard);
}

void moving_take_place(struct shard *shard, const struct placement *place)
{
    set_map(shard, place);
    shard->moving.is_kept = true;
    log_event(LOG_INFO, "placement_taken", "shard=%u version=%llu vshards=%u", shard->config.index,
              (unsigned long long)place->version,
              embd__placement_count(place, shard->config.index));
}

/* ---- a follower, or an archive ---- */

/* Of a base, its own record says it: earlier versions took rows that nobody looks for. A follower
 * that takes one has no journal. */
static bool is_behind_base(const struct shard *shard)
{
    bool is_read = shard->reading != NULL && !journal_reading_is_in_base(shard->reading);
    return is_by_records(shard) &&
           (is_read || shard->commit.journal != NULL || shard->archived != NULL);
}

static bool is_other(const struct shard *shard, const struct table *table, const uint16_t *slots,
                     const uint64_t *keys, uint32_t i)
{
    return embd__placement_shard(shard->config.placement, table->schema.s.partition,
                                 slots != NULL ? slots[i] : 0, keys[i]) != shard->config.index;
}

static bool has_other(const struct shard *shard, const struct op_load *load)
{
    const struct row_block *block = &load->block;
    bool has = false;
    for (uint32_t i = 0; i < block->n_rows && !has; i++)
        has = is_other(shard, load->table, block->slots, block->keys, i);
    for (uint32_t i = 0; i < block->n_candidates && !has; i++)
        has = is_other(shard, load->table, block->candidate_slots, block->candidate_keys, i);
    return has;
}

/* What a coordinator that has left had sent may be applied behind where the sweep has come to. */
void moving_note_loaded(void *arg, const struct op_load *load)
{
    struct shard *shard = arg;
    struct moving *moving = &shard->moving;
    bool is_late = moving->has_foreign && moving->mover == NULL;
    bool is_first = !moving->has_foreign && is_behind_base(shard);
    if (shard->config.placement == NULL || !(is_late || is_first) || !has_other(shard, load))
        return;
    if (!is_late) {
        note_foreign(shard);
        return;
    }
    subscribers_leave(shard, &moving->own); /* cuts of before */
    moving_read_anew(moving);
}

void moving_forget(struct shard *shard)
{
    moving_forget_with(shard, shard->config.n_shards);
}

void moving_forget_with(struct shard *shard, uint32_t n_shards)
{
    struct placement even;
    end_foreign(shard);
    bool is_other = n_shards != shard->config.n_shards;
    shard->config.n_shards = n_shards;
    shard->config.is_alone = shard->config.own_n == n_shards;
    if (is_other)
        tell_process(shard);
    shard->engine.placed = (struct engine_placed){.is_set = false};
    if (shard->config.identity != NULL && moving_is_by_records(shard))
        identity_forget_placement(shard->config.identity);
    if (shard->config.placement == NULL)
        return;
    embd__placement_even(&even, 1, shard->config.n_shards);
    set_map(shard, &even);
    shard->moving.is_kept = true;
}

/* That of shard 0, which others that are prepared do not have yet. */
static bool has_last_map(const struct shard *shard)
{
    uint64_t version = 0;
    return shard->config.maps == NULL || (follow_maps_shards(shard->config.maps, &version) > 0 &&
                                          version == moving_version(shard));
}

bool moving_promote(struct shard *shard, uint32_t n_shards)
{
    struct shard_config *config = &shard->config;
    struct embd__error e = {.status = EMBD_OK};
    config->n_shards = n_shards;
    if (shard_has_left(shard) || config->placement == NULL)
        return !shard_has_left(shard);
    if (config->failover == NULL)
        config->own_n = n_shards;
    config->is_alone = config->own_n == n_shards;
    if (config->identity != NULL && has_last_map(shard) &&
        identity_place(config->identity, config->placement, &e) != EMBD_OK)
        lose(shard, &e);
    shard->moving.is_kept = true;
    if (config->failover != NULL)
        resize(shard, config->placement);
    if (config->resize_own != NULL &&
        config->resize_own(config->resize_arg, n_shards, &e) != EMBD_OK)
        lose(shard, &e);
    return true;
}

/* ---- a journal that does not say it ---- */

/* Of an earlier version, of a shard without records, or with a map of the configuration. */
static bool is_unsaid(const struct shard *shard)
{
    const struct engine_placed *placed = &shard->engine.placed;
    const struct placement *own = shard->config.placement;
    if (own == NULL || shard->commit.journal == NULL || shard->engine.prepared.id != 0 ||
        shard_joins(shard)) /* its map is none that a record says */
        return false;
    if (!placed->is_set)
        return !own->is_even || own->version > 1 || placed->is_foreign;
    return placed->map.version != own->version;
}

void moving_record(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    if (is_unsaid(shard) && commit_place(&shard->commit, shard->config.placement, &e) != EMBD_OK)
        log_event(LOG_WARN, "placement_not_recorded",
                  "shard=%u why=\"%s; followers have the map with the next base\"",
                  shard->config.index, e.text);
}

/* ---- what must not be while keys move ---- */

uint64_t moving_version(const struct shard *shard)
{
    return shard->config.placement != NULL ? shard->config.placement->version : 1;
}

#define EPOCH_VERSIONS (UINT64_C(1) << 20) /* of maps, beyond any number of moves in an epoch */

uint64_t moving_next_version(const struct shard *shard)
{
    uint64_t next = moving_version(shard) + 1;
    uint64_t first = shard->epoch > 1 ? shard->epoch * EPOCH_VERSIONS : 0;
    return next < first ? first : next;
}

bool moving_may_be_next(const struct shard *shard, uint64_t version)
{
    uint64_t next = moving_next_version(shard);
    if (shard->config.failover != NULL) /* servers are of different epochs */
        return version > moving_version(shard);
    return version == next || (version > next && version % EPOCH_VERSIONS == 0);
}

int moving_check_tables(const struct shard *shard, struct embd__error *e)
{
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < tables->n && shard->config.data_dir != NULL; i++)
        if (!table_is_journaled(tables->by_name[i]))
            return embd__error_set(
                e, EMBD_UNSUPPORTED,
                "move: table '%s' has the durability snapshot, and no snapshot holds behind a "
                "move; first: embctl table set %s durability=durable",
                tables->by_name[i]->schema.s.name, tables->by_name[i]->schema.s.name);
    return EMBD_OK;
}

static bool is_follower(const struct feed *feed)
{
    return feed->session != NULL && !feed->ask.reads;
}

static int check_follower(const struct shard *shard, const struct feed *feed,
                          const struct placement *next, struct embd__error *e)
{
    bool is_other = next->n_shards != shard->config.n_shards;
    if (!feed->ask.takes_maps || (is_other && feed->ask.room == 0))
        embd__error_set(e, EMBD_UNSUPPORTED,
                        "move: '%s' follows this server, and its version takes %s: upgrade it "
                        "first, or stop it",
                        feed->ask.name,
                        feed->ask.takes_maps ? "no map of another number of shards"
                                             : "the even placement alone");
    return e->status;
}

int moving_check_followers(const struct shard *shard, const struct placement *next,
                           struct embd__error *e)
{
    for (uint32_t i = 0; i < FOLLOWERS_MAX && e->status == EMBD_OK; i++)
        if (is_follower(&shard->feeding.list[i]))
            check_follower(shard, &shard->feeding.list[i], next, e);
    return e->status;
}

uint32_t moving_count_unready(const struct shard *shard, const struct placement *next)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        const struct feed *feed = &shard->feeding.list[i];
        n += is_follower(feed) && feed->ask.bases < next->n_shards;
    }
    return n;
}

/* A copy that lacked a shard would be none of the cluster. */
int moving_check_ready(const struct shard *shard, const struct placement *next,
                       struct embd__error *e)
{
    if (next->n_shards <= shard->config.n_shards || moving_count_unready(shard, next) == 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_BUSY,
                           "move: a server that follows this one has not the base of each of %u "
                           "shards yet; its log says why; try again",
                           next->n_shards);
}
