/* lead.c - the steps of a process that serves and has followers.
 *
 * The happy path: it takes the name, in its epoch, with nobody in sync. In turns of a third of the
 * lease it renews that, moves the fence, and publishes which followers are in sync: one more when
 * every shard says that it is even, one less when it has gone, so that changes do not wait for it.
 *
 * When the process ends in order, its shards say when they have finished, and which followers have
 * all of their records. It names one of these, as it gives the name back: that one takes it at
 * once, without asking how far others are.
 *
 * What can fail: etcd is silent (the fence is not moved: the shards stop when it is reached, and
 * go on with the next renewal); the lease lapses (the name is taken again, if nobody else has);
 * another process has taken the name, or its epoch (this one ends). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/member/member_inside.h"

/* ---- the fence ---- */

/* A tenth of the lease is for clocks that run at other speeds, and what is on its way. */
static void extend(struct member *m)
{
    uint64_t lease_ns = (uint64_t)m->config.lease_s * 1000000000u;
    failover_extend(m->config.failover, m->renewed_ns + lease_ns - lease_ns / 10);
}

static void lose(struct member *m, const char *why)
{
    failover_extend(m->config.failover, 0);
    member_lose(m, why);
}

/* ---- the name ---- */

static int check_epoch(struct member *m, const struct entry_epoch *there, struct embd__error *e)
{
    char why[160];
    uint64_t own = atomic_load(&m->config.failover->epoch);
    if (there->epoch < own || (there->epoch == own && there->node == m->config.node))
        return EMBD_OK;
    snprintf(why, sizeof why,
             "another process serves in its place, in epoch %llu, and this one's is %llu",
             (unsigned long long)there->epoch, (unsigned long long)own);
    lose(m, why);
    return embd__error_set(e, EMBD_BUSY, "%s", why);
}

/* The owner of the name, and its revision; 0: nobody has it. */
static int check_name(struct member *m, uint64_t *revision_out, struct embd__error *e)
{
    struct etcd_value there;
    if (etcd_get(m->etcd, m->name_key, &there, e) != EMBD_OK)
        return e->status;
    bool is_others = there.text != NULL && !member_is_own(m, there.text);
    free(there.text);
    m->seen = there.revision;
    *revision_out = there.mod_revision;
    if (!is_others)
        return EMBD_OK;
    if (m->has_had_name)
        lose(m, "another process holds the name of this server in etcd");
    return embd__error_set(e, EMBD_BUSY, "another process is server '%.60s' now", m->self->name);
}

/* The set in etcd is empty from here on, and so is what is required. */
static void begin(struct member *m)
{
    static const struct failover_set nobody = {.n = 0};
    m->published = nobody;
    m->insync_revision = m->name_revision;
    m->is_unsure = false;
    failover_require(m->config.failover, &nobody);
    m->has_had_name = true;
    m->state = MEMBER_UNLISTED;
    extend(m);
}

/* The epoch comes first: a follower may have taken the name since this process found that it is to
 * serve (role.c), and would keep it. */
int lead_begin(struct member *m, struct embd__error *e)
{
    struct entry_epoch epoch;
    uint64_t name_revision, own, won;
    if (entry_read_epoch(m->etcd, m->self->name, &epoch, e) != EMBD_OK ||
        check_epoch(m, &epoch, e) != EMBD_OK || check_name(m, &name_revision, e) != EMBD_OK)
        return e->status;
    own = atomic_load(&m->config.failover->epoch);
    bool is_known = epoch.epoch == own;
    atomic_store(&m->config.failover->kept, is_known ? epoch.kept : own);
    atomic_store(&m->config.failover->kept_replicated, is_known ? epoch.kept_replicated : own);
    if (entry_take_name(m, own, name_revision, epoch.mod_revision, &won, e) != EMBD_OK)
        return e->status;
    if (won == 0)
        return embd__error_set(e, EMBD_BUSY, "another process is taking the name of server '%.60s'",
                               m->self->name);
    m->name_revision = m->seen = won;
    begin(m);
    return EMBD_OK;
}

/* ---- who is in sync ---- */

/* An attempt that is late may come yet, until the entry has changed once more. */
static int publish(struct member *m, const struct failover_set *set, struct embd__error *e)
{
    bool won;
    m->is_unsure = true;
    if (entry_put_insync(m, set, &won, e) != EMBD_OK)
        return e->status;
    if (!won)
        return embd__error_set(e, EMBD_BUSY,
                               "the name of server '%.60s' is not this process's, or an earlier "
                               "change of who is in sync came late",
                               m->self->name);
    m->is_unsure = false;
    m->published = *set;
    return EMBD_OK;
}

static int look_at_published(struct member *m, struct embd__error *e)
{
    struct entry_insync there;
    uint64_t epoch = atomic_load(&m->config.failover->epoch);
    if (entry_read_insync(m->etcd, m->self->name, epoch, &there, e) != EMBD_OK)
        return e->status;
    m->published = there.set;
    m->insync_revision = there.mod_revision;
    return EMBD_OK;
}

/* The required followers: one more that is even, and without those that have gone, as long as
 * enough are left. */
static void choose(const struct member *m, const struct failover_set *live,
                   const struct failover_set *even, struct failover_set *out)
{
    *out = m->published;
    for (uint32_t i = 0; i < even->n; i++)
        failover_add(out, even->ids[i]);
    for (uint32_t i = out->n; i > 0 && out->n > m->config.replicas; i--)
        if (!failover_has(live, out->ids[i - 1]))
            failover_remove(out, out->ids[i - 1]);
}

/* The published followers, and those that take records now. */
static void require(struct member *m, const struct failover_set *live)
{
    struct failover_set now, next = m->published;
    for (uint32_t i = 0; i < live->n; i++)
        failover_add(&next, live->ids[i]);
    failover_required(m->config.failover, &now);
    bool is_same = now.n == next.n;
    for (uint32_t i = 0; i < next.n; i++)
        is_same = is_same && failover_has(&now, next.ids[i]);
    if (!is_same)
        failover_require(m->config.failover, &next);
}

static int note_insync(struct member *m, struct embd__error *e)
{
    struct failover_set live, even, next;
    if (m->config.replicas == 0)
        return EMBD_OK;
    if (m->is_unsure && look_at_published(m, e) != EMBD_OK)
        return e->status;
    failover_look(m->config.failover, &live, &even);
    choose(m, &live, &even, &next);
    bool is_same = next.n == m->published.n && !m->is_unsure;
    for (uint32_t i = 0; i < next.n; i++)
        is_same = is_same && failover_has(&m->published, next.ids[i]);
    if (!is_same && publish(m, &next, e) != EMBD_OK)
        return e->status;
    if (!is_same)
        log_event(LOG_INFO, "in_sync", "server=%s followers=%u replicas=%u", m->self->name, next.n,
                  m->config.replicas);
    require(m, &live);
    return EMBD_OK;
}

/* ---- a turn ---- */

static void say_fence(struct member *m)
{
    bool is_fenced = failover_is_fenced(m->config.failover);
    if (is_fenced && !m->fence_is_told)
        log_event(LOG_ERROR, "fenced",
                  "server=%s why=\"etcd has not renewed the lease of %u s: nothing is acknowledged "
                  "or answered until it does\"",
                  m->self->name, m->config.lease_s);
    else if (!is_fenced && m->fence_is_told)
        log_event(LOG_WARN, "fence_lifted", "server=%s", m->self->name);
    m->fence_is_told = is_fenced;
}

static int renew(struct member *m, struct embd__error *e)
{
    bool lives = false;
    uint64_t asked_ns = failover_now_ns();
    if (etcd_lease_keep(m->etcd, m->lease, &lives, e) != EMBD_OK) {
        say_fence(m);
        return e->status;
    }
    if (!lives) {
        log_event(LOG_WARN, "lease_lost",
                  "server=%s why=\"etcd no longer has this server's lease: it acknowledges nothing "
                  "until it has its name again\"",
                  m->self->name);
        m->state = MEMBER_LEASELESS;
        return EMBD_OK;
    }
    m->renewed_ns = asked_ns;
    extend(m);
    say_fence(m);
    return EMBD_OK;
}

/* 0: nobody. */
static uint64_t choose_heir(struct member *m, struct embd__error *e)
{
    struct failover_set have;
    if (!failover_is_finished(m->config.failover, &have) ||
        (m->is_unsure && look_at_published(m, e) != EMBD_OK))
        return 0;
    for (uint32_t i = 0; i < have.n; i++)
        if (m->config.replicas == 0 || failover_has(&m->published, have.ids[i]))
            return have.ids[i];
    return 0;
}

int lead_hand_over(struct member *m, struct embd__error *e)
{
    uint64_t heir = m->state == MEMBER_LISTED ? choose_heir(m, e) : 0;
    if (heir == 0)
        return e->status;
    failover_extend(m->config.failover, 0);
    if (entry_hand_over(m, heir, e) != EMBD_OK)
        return e->status;
    log_event(LOG_INFO, "handed_over", "server=%s heir=%016llx", m->self->name,
              (unsigned long long)heir);
    m->state = MEMBER_LEAVES;
    return EMBD_OK;
}

int lead_leave(struct member *m, struct embd__error *e)
{
    (void)e;
    member_pause(m, m->config.lease_s * 1000);
    return EMBD_OK;
}

/* Other servers move, too. A turn watches the name, and one key can be watched. */
static int learn_map(struct member *m, struct embd__error *e)
{
    uint64_t seen = m->seen;
    if (atomic_load(&m->is_restanding)) {
        m->state = MEMBER_UNLISTED;
        return EMBD_OK;
    }
    if (member_learn_map(m, e) != EMBD_OK)
        return e->status;
    member_deliver(m);
    m->seen = seen;
    if (m->map.version < m->newest_version) /* etcd came back with an earlier one */
        m->state = MEMBER_UNLISTED;
    return EMBD_OK;
}

int lead_keep(struct member *m, struct embd__error *e)
{
    uint64_t revision;
    bool changed = false;
    if (lead_hand_over(m, e) != EMBD_OK || m->state == MEMBER_LEAVES)
        return e->status;
    if (renew(m, e) != EMBD_OK || m->state != MEMBER_LISTED)
        return e->status;
    if (check_name(m, &revision, e) != EMBD_OK)
        return e->status;
    if (revision != m->name_revision) { /* somebody has removed it */
        failover_extend(m->config.failover, 0);
        m->state = MEMBER_LEASELESS;
        return EMBD_OK;
    }
    if (note_insync(m, e) != EMBD_OK || learn_map(m, e) != EMBD_OK || m->state != MEMBER_LISTED)
        return e->status;
    return etcd_watch(m->etcd, m->name_key, m->seen, m->config.lease_s * 1000 / 3, &changed, e);
}
