/* elect.c - the steps of a process that follows the one that has its name.
 *
 * The happy path: it says under a lease of its own how far it is, and watches the name. When that
 * lapses, every follower waits a moment, in which all say how far they are, and reads what they
 * have said. Those that are in sync have every acknowledged record, so each of them may take the
 * name; the one with the most records does it first. A primary that ends in order names one that
 * has all: that one waits for nobody. It takes name and epoch at once, or not at
 * all; then its shards are promoted in that epoch (server/follow/promotion.h), and it leads.
 *
 * What can fail: another follower was first (it is followed from then on); this one is not in sync,
 * or has not all of its tables yet (it says so, and waits); a shard cannot be promoted (the name is
 * given back, and this one may take it again: nobody can have acknowledged more); etcd is silent
 * while shards are promoted (they go on, and the name is taken anew if its lease has lapsed). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/follow/promotion.h"
#include "server/log/log.h"
#include "server/member/member_inside.h"

#define MOMENT_NS 200000000u  /* for all to say how far they are */
#define HEIR_NS   1000000000u /* for an heir to take the name */
#define TURN_NS   400000000u  /* for the one before to take the name */
#define RISE_MS   2u
#define LISTED_MS 200u /* who has taken the name comes on the map soon */

static int watch(struct member *m, uint32_t ms, struct embd__error *e)
{
    bool changed;
    return etcd_watch(m->etcd, m->name_key, m->seen, ms, &changed, e);
}

static int watch_map(struct member *m, uint64_t seen, struct embd__error *e)
{
    bool changed;
    return etcd_watch(m->etcd, MAP_KEY, seen, LISTED_MS, &changed, e);
}

/* ---- somebody has the name ---- */

static int learn_map(struct member *m, struct embd__error *e)
{
    if (member_learn_map(m, e) != EMBD_OK)
        return e->status;
    if (m->map_revision != 0)
        member_deliver(m);
    return EMBD_OK;
}

static int go_with(struct member *m, const char *entry, struct embd__error *e)
{
    struct failover_place place;
    uint64_t node, seen = m->seen;
    m->absent_ns = 0;
    m->hindrance_is_told = false;
    if (!entry_read_name(entry, &node, &place))
        return embd__error_set(e, EMBD_CORRUPT, "etcd: the value of %s cannot be read",
                               m->name_key);
    m->primary_node = node;
    int status = learn_map(m, e);
    place.is_listed =
        status == EMBD_OK && strcmp(place.address, m->map.addresses[m->self->first_shard]) == 0;
    failover_set_place(m->config.failover, &place);
    if (status != EMBD_OK)
        return status;
    if (!place.is_listed)
        return watch_map(m, m->seen, e);
    m->seen = seen;
    return watch(m, m->config.lease_s * 1000 / 3, e);
}

/* ---- nobody has ---- */

static bool is_before(const struct entry_follower *a, const struct entry_follower *b)
{
    return a->position != b->position ? a->position > b->position : a->id < b->id;
}

static bool may_lead(const struct entry_follower *f, const struct entry_insync *insync)
{
    return f->is_ready && (insync->replicas == 0 || failover_has(&insync->set, f->id));
}

/* An heir has all. One that was in sync has all of replicated tables, and may lack of others what
 * the primary acknowledged last. */
static void note_kept(struct member *m, const struct entry_epoch *epoch, bool is_heir,
                      bool was_in_sync)
{
    struct failover *f = m->config.failover;
    atomic_store(&f->kept, is_heir ? epoch->kept : epoch->epoch + 1);
    atomic_store(&f->kept_replicated,
                 is_heir || was_in_sync ? epoch->kept_replicated : epoch->epoch + 1);
}

/* How many others are to go first; FAILOVER_MOST: this one may not. */
static int find_rank(struct member *m, const struct entry_epoch *epoch, bool is_heir,
                     uint32_t *rank_out, struct embd__error *e)
{
    struct entry_follower list[FAILOVER_MOST], *own = NULL;
    struct entry_insync insync;
    uint32_t n;
    *rank_out = FAILOVER_MOST;
    if (entry_read_insync(m->etcd, m->self->name, epoch->epoch, &insync, e) != EMBD_OK ||
        entry_list_followers(m->etcd, m->self->name, list, &n, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n; i++)
        own = list[i].id == m->config.failover->start ? &list[i] : own;
    /* It took the name in that epoch, perhaps without hearing so, and nobody has served in it. */
    bool was_last = epoch->node == m->config.node && insync.set.n == 0;
    if (own == NULL || !own->is_ready || !(was_last || may_lead(own, &insync)))
        return EMBD_OK;
    note_kept(m, epoch, is_heir, was_last || insync.replicas > 0);
    *rank_out = 0;
    for (uint32_t i = 0; i < n && !is_heir; i++)
        *rank_out += may_lead(&list[i], &insync) && is_before(&list[i], own);
    return EMBD_OK;
}

static int say_hindrance(struct member *m, struct embd__error *e)
{
    if (!m->hindrance_is_told)
        log_event(LOG_ERROR, "no_primary",
                  "server=%s why=\"nobody has the name, and this follower was not in sync, or has "
                  "not all of its tables: it may lack acknowledged changes, and does not take the "
                  "name. Start the process that served last, or one that was in sync\"",
                  m->self->name);
    m->hindrance_is_told = true;
    return watch(m, m->config.lease_s * 1000 / 3, e);
}

/* The name is ours, in that epoch. */
static int rise(struct member *m, uint64_t epoch, bool is_heir, struct embd__error *e)
{
    atomic_store(&m->config.failover->epoch, epoch);
    log_event(LOG_WARN, "takes_over", "server=%s epoch=%llu named=%s", m->self->name,
              (unsigned long long)epoch, is_heir ? "yes" : "no");
    m->has_had_name = true;
    m->absent_ns = 0;
    m->state = MEMBER_RISES;
    return promotion_ask(m->config.promotion, PROMOTION_ANY, e);
}

/* The lease was renewed in this step. */
static int take(struct member *m, const struct entry_epoch *epoch, bool is_heir,
                struct embd__error *e)
{
    uint64_t won = 0;
    if (entry_take_name(m, epoch->epoch + 1, 0, epoch->mod_revision, &won, e) != EMBD_OK)
        return e->status;
    return won != 0 ? rise(m, epoch->epoch + 1, is_heir, e) : EMBD_OK;
}

/* An attempt has succeeded whose answer was lost. */
static int find_taken(struct member *m, struct embd__error *e)
{
    struct entry_epoch epoch;
    if (entry_read_epoch(m->etcd, m->self->name, &epoch, e) != EMBD_OK)
        return e->status;
    if (epoch.node != m->config.node)
        return EMBD_OK;
    atomic_store(&m->config.failover->kept, epoch.kept);
    atomic_store(&m->config.failover->kept_replicated, epoch.kept_replicated);
    return rise(m, epoch.epoch, false, e);
}

/* The server has left, and its primary died before it removed its keys. Another server that has the
 * name by now has keys of its own. */
static int forget(struct member *m, struct embd__error *e)
{
    struct entry_epoch epoch;
    if (entry_read_epoch(m->etcd, m->self->name, &epoch, e) == EMBD_OK && epoch.epoch != 0 &&
        epoch.node == m->primary_node && entry_forget(m, epoch.mod_revision, e) == EMBD_OK)
        log_event(LOG_INFO, "name_removed",
                  "server=%s why=\"its shards have left the cluster: end this process\"",
                  m->self->name);
    return e->status == EMBD_OK ? watch(m, m->config.lease_s * 1000 / 3, e) : e->status;
}

static int elect(struct member *m, struct embd__error *e)
{
    struct entry_epoch epoch;
    uint32_t rank;
    uint64_t heir, now_ns = failover_now_ns();
    m->absent_ns = m->absent_ns != 0 ? m->absent_ns : now_ns;
    if (member_standing(m).is == MEMBERSHIP_LEFT) /* nobody is to have it */
        return forget(m, e);
    if (entry_read_epoch(m->etcd, m->self->name, &epoch, e) != EMBD_OK)
        return e->status;
    if (epoch.epoch == 0) /* nobody ever had it */
        return watch(m, m->config.lease_s * 1000 / 3, e);
    if (entry_read_heir(m->etcd, m->self->name, epoch.epoch, &heir, e) != EMBD_OK)
        return e->status;
    bool is_heir = heir != 0 && heir == m->config.failover->start;
    uint64_t moment_ns = heir == 0 ? MOMENT_NS : HEIR_NS;
    if (!is_heir && now_ns - m->absent_ns < moment_ns)
        return watch(m, (uint32_t)((moment_ns - (now_ns - m->absent_ns)) / 1000000) + 1, e);
    if (find_rank(m, &epoch, is_heir, &rank, e) != EMBD_OK)
        return e->status;
    if (rank == FAILOVER_MOST)
        return say_hindrance(m, e);
    uint64_t at_ns = m->absent_ns + moment_ns + rank * (uint64_t)TURN_NS;
    if (!is_heir && now_ns < at_ns)
        return watch(m, (uint32_t)((at_ns - now_ns) / 1000000) + 1, e);
    return take(m, &epoch, is_heir, e);
}

int elect_follow(struct member *m, struct embd__error *e)
{
    struct etcd_value there;
    bool lives = false, is_ready;
    m->renewed_ns = failover_now_ns();
    if (etcd_lease_keep(m->etcd, m->lease, &lives, e) != EMBD_OK)
        return e->status;
    if (!lives) {
        m->state = MEMBER_LEASELESS;
        m->told_entry[0] = '\0';
        return EMBD_OK;
    }
    uint64_t position = failover_position(m->config.failover, &is_ready);
    if (entry_put_follower(m, position, is_ready, e) != EMBD_OK ||
        etcd_get(m->etcd, m->name_key, &there, e) != EMBD_OK)
        return e->status;
    m->seen = there.revision;
    if (there.text == NULL)
        return elect(m, e);
    if (member_is_own(m, there.text))
        find_taken(m, e);
    else
        go_with(m, there.text, e);
    free(there.text);
    return e->status;
}

/* ---- rising ---- */

static int give_up(struct member *m, const char *why, struct embd__error *e)
{
    log_event(LOG_ERROR, "not_promoted", "server=%s why=\"%s\"", m->self->name, why);
    m->has_had_name = false;
    m->told_entry[0] = '\0';
    m->state = MEMBER_LEASELESS;
    return etcd_lease_revoke(m->etcd, m->lease, e);
}

/* So that the name stays while shards are promoted. */
static int keep_lease(struct member *m, struct embd__error *e)
{
    bool lives;
    uint64_t asked_ns = failover_now_ns();
    if (asked_ns - m->renewed_ns <= (uint64_t)m->config.lease_s * 300000000u)
        return EMBD_OK;
    if (etcd_lease_keep(m->etcd, m->lease, &lives, e) == EMBD_OK && lives)
        m->renewed_ns = asked_ns;
    return e->status;
}

int elect_rise(struct member *m, struct embd__error *e)
{
    struct promotion_report report;
    promotion_look(m->config.promotion, &report);
    if (report.state == PROMOTION_REFUSED)
        return give_up(m, report.why, e);
    if (report.state == PROMOTION_DONE) {
        m->follows = false;
        m->state = MEMBER_NAMELESS; /* it has it, and begins to lead */
        return EMBD_OK;
    }
    if (keep_lease(m, e) != EMBD_OK)
        return e->status;
    member_pause(m, RISE_MS);
    return EMBD_OK;
}
