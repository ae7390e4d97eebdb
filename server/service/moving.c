/* moving.c - see moving.h. */
#include "server/service/moving.h"

#include <stdlib.h>

#include "server/identity/identity.h"
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

int moving_begin_foreign(struct shard *shard, struct embd__error *e)
{
    struct identity *identity = shard->config.identity;
    if (shard->moving.has_foreign)
        return EMBD_OK;
    if (identity != NULL && identity_move_begins(identity, e) != EMBD_OK)
        return e->status;
    shard->moving.has_foreign = true;
    return EMBD_OK;
}

void moving_begin(struct shard *shard)
{
    const struct identity *identity = shard->config.identity;
    shard->moving.is_kept = true;
    shard->moving.has_foreign |= identity != NULL && identity_was_moving(identity);
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
    free(moving->block);
    moving->block = NULL;
    moving->n_keys = 0;
}

void moving_read_anew(struct moving *moving)
{
    moving->table[0] = '\0';
    moving->is_read = false;
    if (!moving->is_erasing)
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
    if (shard->moving.is_kept || identity == NULL)
        return;
    if (identity_place(identity, shard->config.placement, &e) != EMBD_OK)
        lose(shard, &e);
    shard->moving.is_kept = true;
}

void moving_adopt(void *arg, const struct placement *place)
{
    struct shard *shard = arg;
    struct moving *moving = &shard->moving;
    const struct placement *own = shard->config.placement;
    struct embd__error e = {.status = EMBD_OK};
    if (place->n_shards != shard->config.n_shards ||
        (own != NULL && place->version <= own->version))
        return;
    moving->at_placement ^= 1;
    moving->placements[moving->at_placement] = *place;
    shard->config.placement = &moving->placements[moving->at_placement];
    moving->is_kept = false;
    if (moving_begin_foreign(shard, &e) != EMBD_OK)
        lose(shard, &e);
    log_event(LOG_INFO, "placement_moved", "shard=%u version=%llu vshards=%u", shard->config.index,
              (unsigned long long)place->version,
              embd__placement_count(place, shard->config.index));
    shard->cuts = (struct cuts_known){0}; /* keys that went are not gone, for an increment */
    moving_read_anew(moving);
    round_refuse_moved(shard);
    subscribers_end_each(shard);
}

/* ---- what must not be while keys move ---- */

uint64_t moving_version(const struct shard *shard)
{
    return shard->config.placement != NULL ? shard->config.placement->version : 1;
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

int moving_check_followers(const struct shard *shard, struct embd__error *e)
{
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < tables->n; i++)
        if (embd__durability_is_replicated(table_durability(tables->by_name[i])))
            return embd__error_set(e, EMBD_UNSUPPORTED,
                                   "move: table '%s' has the durability replicated, and followers "
                                   "take the even placement alone",
                                   tables->by_name[i]->schema.s.name);
    if (feeding_figures(shard).n > 0 || shard->config.failover != NULL)
        return embd__error_set(
            e, EMBD_UNSUPPORTED,
            "move: another server follows this one, or is to, and followers take the even "
            "placement alone: stop it first");
    return EMBD_OK;
}
