/* placement.c - which map of keys to shards a start has: that of the data directory, or the one of
 * the configuration where the directory is new. A later version of the configuration takes its
 * place if no shard of the process has rows, or has applied a push: rows do not move yet.
 *
 * Keys may move to a later map while servers run (server/service/moving.h): then that one is the
 * directory's, whatever the configuration says.
 *
 * All servers of a cluster have the same map. One that meets another one with another map is
 * refused, as a foreign directory is; --accept-empty does not change that. A server that stopped
 * while keys moved finds in its journal whether it has the earlier map or the later one. */
#include <inttypes.h>
#include <stdio.h>

#include "server/identity/identity_internal.h"
#include "server/log/log.h"

static int refuse(const struct identity *identity, const struct placement *asked, const char *why,
                  struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           "placement is version %" PRIu64 " in the configuration, and the data "
                           "directory has version %" PRIu64 ": %s",
                           asked->version, identity->placement.version, why);
}

/* What the directory has; one of an earlier version has the even map. */
static bool is_recorded(struct identity *identity)
{
    struct identity_file *file = &identity->file;
    uint32_t n = identity->config.n_shards;
    embd__placement_even(&identity->placement, 1, n);
    if (file->has_placement && file->placement.n_shards == n)
        identity->placement = file->placement;
    return file->is_there || file->own.has_journal;
}

static void keep(struct identity *identity, const struct placement *p)
{
    identity->file.placement = *p;
    identity->file.has_placement = true;
    identity->file.is_moved = false;
}

/* It has no key until a later map makes it a member. */
static int choose_none(struct identity *identity, struct embd__error *e)
{
    struct placement *p = &identity->placement;
    uint32_t n = identity->config.n_shards;
    if (n == 1)
        return embd__error_set(e, EMBD_INVALID,
                               "--join: this server has all shards of the configuration; list the "
                               "servers of the cluster before it");
    embd__placement_begin(p, 1, n, n, e);
    embd__placement_add(p, 0, PLACEMENT_VSHARDS, e);
    embd__placement_end(p, e);
    p->version = 0;
    return e->status;
}

static int choose(struct identity *identity, struct embd__error *e)
{
    if (identity->file.joins)
        return choose_none(identity, e);
    const struct placement *asked = identity->config.placement, *own = &identity->placement;
    bool is_used = is_recorded(identity);
    if (asked == NULL)
        return EMBD_OK;
    if (identity->file.is_moved && asked->version <= own->version)
        return EMBD_OK;
    if (!is_used) {
        identity->placement = *asked;
        keep(identity, asked);
        return EMBD_OK;
    }
    bool is_same = embd__placement_is_same(asked, own);
    if (asked->version < own->version)
        return refuse(identity, asked, "versions do not go back; take the directory's", e);
    if (asked->version == own->version && !is_same)
        return refuse(identity, asked,
                      "the maps differ; raise the version, which needs shards without rows, or "
                      "take the directory's map",
                      e);
    identity->n_to_be_empty = is_same ? 0 : identity_self(identity)->n_shards;
    identity->placement = *asked;
    if (is_same)
        keep(identity, asked);
    return EMBD_OK;
}

int identity_choose_placement(struct identity *identity, struct embd__error *e)
{
    choose(identity, e);
    identity->current = identity->placement;
    identity->was_moving = identity->file.is_moving;
    identity->n_moving = identity->was_moving ? identity_self(identity)->n_shards : 0;
    return e->status;
}

const struct placement *identity_placement(const struct identity *identity)
{
    return &identity->placement;
}

bool identity_placement_waits(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    bool waits = identity->n_to_be_empty > 0;
    pthread_mutex_unlock(&identity->mutex);
    return waits;
}

int identity_is_empty(struct identity *identity, struct embd__error *e)
{
    bool was_last = false;
    pthread_mutex_lock(&identity->mutex);
    if (identity->n_to_be_empty == 1) {
        keep(identity, &identity->placement);
        identity_file_write(identity->dir, &identity->file, e);
        was_last = e->status == EMBD_OK;
    }
    identity->n_to_be_empty -= e->status == EMBD_OK;
    pthread_mutex_unlock(&identity->mutex);
    if (!was_last)
        return e->status;
    log_event(LOG_INFO, "placement", "version=%" PRIu64, identity->placement.version);
    identity->config.changed(identity->config.arg);
    return EMBD_OK;
}

/* ---- keys that move ---- */

static int write_file(struct identity *identity, struct embd__error *e)
{
    return identity_file_write(identity->dir, &identity->file, e);
}

int identity_place(struct identity *identity, const struct placement *place, struct embd__error *e)
{
    pthread_mutex_lock(&identity->mutex);
    const struct placement *own = &identity->current;
    bool is_news = place->version > own->version ||
                   (place->version == own->version && !embd__placement_is_same(place, own));
    if (is_news && !identity_resize(identity, place->n_shards)) {
        embd__error_set(e, EMBD_IO, "identity.json does not say where shard %u is",
                        identity->config.n_shards);
    } else if (is_news) {
        identity->current = *place;
        keep(identity, place);
        identity->file.is_moved = true;
        identity->file.joins = false;
        write_file(identity, e);
    }
    identity->is_by_records = identity->is_by_records && e->status != EMBD_OK;
    pthread_mutex_unlock(&identity->mutex);
    return e->status;
}

/* Where the file cannot be written the next start forgets it, too. */
void identity_forget_placement(struct identity *identity)
{
    struct embd__error ignored = {.status = EMBD_OK};
    pthread_mutex_lock(&identity->mutex);
    embd__placement_even(&identity->current, 1, identity->config.n_shards);
    identity->is_by_records = true;
    if (identity->file.has_placement) {
        identity->file.has_placement = identity->file.is_moved = false;
        write_file(identity, &ignored);
    }
    pthread_mutex_unlock(&identity->mutex);
}

int identity_move_begins(struct identity *identity, struct embd__error *e)
{
    pthread_mutex_lock(&identity->mutex);
    if (!identity->file.is_moving) {
        identity->file.is_moving = true;
        write_file(identity, e);
        identity->file.is_moving = e->status == EMBD_OK;
    }
    identity->n_moving += e->status == EMBD_OK;
    pthread_mutex_unlock(&identity->mutex);
    return e->status;
}

/* Where the note cannot be removed, the next start looks for such rows in vain. */
void identity_move_ends(struct identity *identity)
{
    struct embd__error ignored = {.status = EMBD_OK};
    pthread_mutex_lock(&identity->mutex);
    if (--identity->n_moving == 0) {
        identity->file.is_moving = false;
        write_file(identity, &ignored);
    }
    pthread_mutex_unlock(&identity->mutex);
}

bool identity_can_ask(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    bool can =
        !identity->is_believed || identity_self(identity)->n_shards == identity->config.n_shards;
    pthread_mutex_unlock(&identity->mutex);
    return can;
}

bool identity_was_moving(const struct identity *identity)
{
    return identity->was_moving;
}

/* ---- other servers ---- */

void identity_tell_placement(const struct identity *identity, struct identity_answer *out)
{
    out->placement = identity->current.version;
    out->placement_digest = embd__placement_digest(&identity->current);
    out->is_moving = identity->file.is_moving || identity->file.joins;
    out->shards = identity->file.most_shards > 0 ? identity->config.n_shards : 0;
}

/* Servers of earlier versions have the even map, and say nothing. */
static uint64_t digest_of(const struct identity *identity, const struct identity_answer *answer)
{
    struct placement even;
    if (answer->placement_digest != 0)
        return answer->placement_digest;
    embd__placement_even(&even, 1, identity->config.n_shards);
    return embd__placement_digest(&even);
}

/* Keys are on their way between both maps: the one of the two that has the earlier version finds
 * the later one in its journal, or will hear of it. */
static bool is_on_the_way(const struct identity *identity, const struct identity_answer *answer)
{
    return answer->placement > identity->current.version
               ? identity->file.is_moving || identity->file.joins
               : answer->is_moving;
}

int64_t identity_other_placement(const struct identity *identity)
{
    uint64_t own = embd__placement_digest(&identity->current);
    for (uint32_t i = 0; i < identity->config.n_servers; i++) {
        const struct identity_answer *answer = &identity->answers[i];
        if (answer->is_there && digest_of(identity, answer) != own &&
            !is_on_the_way(identity, answer))
            return i;
    }
    return -1;
}
