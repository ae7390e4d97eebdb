/* member.c - the happy path: take the name under a lease, put our shards on the map, then keep the
 * lease and watch the map, in turns of a third of the lease.
 *
 *     LEASELESS -> NAMELESS -> UNLISTED -> LISTED
 *
 * A process that is no member yet has its name, and is on the map once it is one. One that has left
 * goes from the map, gives its name back, and only reads the map (LEFT).
 *
 * What can fail: etcd does not answer (again after a pause, from the state we are in; the lease may
 * run out meanwhile, and everything begins again); another process has the name (before we had it:
 * wait until its lease ends; after: this process must end, because clients go there now); the map
 * cannot be read (it is left alone, and so are the shards). */
#include "server/member/member.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/log/log.h"
#include "server/member/map.h"
#include "server/member/member_inside.h"

#define PAUSE_MIN_MS 100u
#define PAUSE_MAX_MS 2000u

/* ---- the name ---- */

static int take_lease(struct member *m, struct embd__error *e)
{
    m->renewed_ns = failover_now_ns();
    int status = etcd_lease_grant(m->etcd, m->config.lease_s, &m->lease, e);
    if (status == EMBD_OK)
        m->state = m->follows ? MEMBER_FOLLOWS : MEMBER_NAMELESS;
    return status;
}

static int take_name(struct member *m, struct embd__error *e)
{
    struct etcd_value there;
    bool won = false;
    if (etcd_get(m->etcd, m->name_key, &there, e) != EMBD_OK)
        return e->status;
    if (there.text != NULL && !member_is_own(m, there.text)) {
        free(there.text);
        if (m->has_had_name)
            member_lose(m, "another process holds the name of this server in etcd");
        return embd__error_set(e, EMBD_BUSY, "another process is server '%.60s' now",
                               m->self->name);
    }
    free(there.text);
    json_t *entry =
        json_pack("{s:s,s:s}", "id", m->id, "address", m->start.addresses[m->self->first_shard]);
    char *text = entry != NULL ? json_dumps(entry, JSON_COMPACT) : NULL;
    json_decref(entry);
    if (text == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for an entry in etcd");
    else
        etcd_swap(m->etcd, m->name_key, there.mod_revision, text, m->lease, &won, e);
    free(text);
    if (e->status != EMBD_OK)
        return e->status;
    if (!won)
        return embd__error_set(e, EMBD_BUSY, "another process is taking the name of server '%.60s'",
                               m->self->name);
    m->has_had_name = true;
    m->state = MEMBER_UNLISTED;
    return EMBD_OK;
}

/* ---- the map ---- */

static void note_standing(struct member *m, struct member_standing *out)
{
    atomic_store(&m->is_restanding, false);
    *out = member_standing(m);
    while (m->n_servers > 0 && m->config.servers[m->n_servers - 1].first_shard >= out->n_shards)
        m->n_servers--; /* others may have their shards */
}

/* Whether a change is won, the next turn will see. The text is taken. */
static int put(struct member *m, char *text, uint64_t mod_revision, struct embd__error *e)
{
    bool won;
    etcd_swap(m->etcd, MAP_KEY, mod_revision, text, 0, &won, e);
    free(text);
    return e->status;
}

static int give_back_lease(struct member *m, struct embd__error *e)
{
    if (m->config.failover != NULL && m->lease != 0 && entry_forget(m, 0, e) != EMBD_OK)
        return e->status;
    if (m->lease != 0 && etcd_lease_revoke(m->etcd, m->lease, e) != EMBD_OK)
        return e->status;
    m->lease = 0;
    if (m->config.failover != NULL) /* it tells where the others are */
        failover_extend(m->config.failover, UINT64_MAX);
    m->state = MEMBER_LEFT;
    member_deliver(m);
    return EMBD_OK;
}

static int go_from_map(struct member *m, struct embd__error *e)
{
    struct etcd_value there;
    if (member_read_map(m, &there, e) != EMBD_OK)
        return e->status;
    char *text = map_remove(there.text, m->self, &m->start, m->newest_version, e);
    free(there.text);
    if (text != NULL)
        return put(m, text, there.mod_revision, e);
    return e->status == EMBD_OK ? give_back_lease(m, e) : e->status;
}

/* This server decides about its own shards, whatever the map says. So the shards get a map that has
 * this server on it, and never one that still has its predecessor. */
static int put_on_map(struct member *m, struct embd__error *e)
{
    struct etcd_value there;
    struct member_standing standing;
    char *text = NULL;
    note_standing(m, &standing);
    if (standing.is == MEMBERSHIP_LEFT)
        return go_from_map(m, e);
    if (member_read_map(m, &there, e) != EMBD_OK)
        return e->status;
    if (standing.is == MEMBERSHIP_HELD)
        text = map_write(there.text, m->self, &m->start, m->newest_version, &standing, e);
    free(there.text);
    if (text != NULL)
        return put(m, text, there.mod_revision, e);
    if (e->status == EMBD_OK) {
        m->newest_version = m->map.version; /* a later one is for others to write, if any */
        m->state = MEMBER_LISTED;
        member_deliver(m);
    }
    return e->status;
}

/* One turn of a process that has left: so long as it runs, it tells where the others are. */
static int read_on(struct member *m, struct embd__error *e)
{
    bool changed;
    if (member_learn_map(m, e) != EMBD_OK)
        return e->status;
    member_deliver(m);
    return etcd_watch(m->etcd, MAP_KEY, m->seen, m->config.lease_s * 1000 / 3, &changed, e);
}

/* One turn of a third of the lease. An etcd that was away may have come back as it was earlier,
 * with an earlier map: what would be watched for is not to come then. */
static int keep(struct member *m, struct embd__error *e)
{
    bool lives = false, changed = m->last_status != EMBD_OK;
    if (etcd_lease_keep(m->etcd, m->lease, &lives, e) != EMBD_OK)
        return e->status;
    if (!lives) {
        log_event(LOG_WARN, "lease_lost",
                  "server=%s why=\"etcd no longer has this server's lease: it registers again\"",
                  m->self->name);
        m->state = MEMBER_LEASELESS;
        return EMBD_OK;
    }
    if (!changed &&
        etcd_watch(m->etcd, MAP_KEY, m->seen, m->config.lease_s * 1000 / 3, &changed, e) != EMBD_OK)
        return e->status;
    if (m->last_status != EMBD_OK) /* or with another one of the same revision */
        m->map_revision = m->told = 0;
    if (changed || atomic_load(&m->is_restanding))
        m->state = MEMBER_UNLISTED; /* are we still there? */
    return EMBD_OK;
}

/* ---- the thread ---- */

/* A failure of the step from `state` is logged once, and is over when that step succeeds, not one
 * before it. Returns whether all is well. */
static bool note(struct member *m, enum member_state state, int status, const struct embd__error *e)
{
    if (status == EMBD_OK && m->last_status != EMBD_OK && state < m->failed_state)
        return false;
    if (status != m->last_status && status != EMBD_CLOSED) {
        if (status != EMBD_OK)
            log_event(LOG_WARN, "etcd", "why=\"%s\"", e->text);
        else
            log_event(LOG_INFO, "etcd", "why=\"answers again\"");
    }
    if (status != EMBD_CLOSED) /* another process with our name is not etcd's silence */
        m->config.on_etcd(m->config.arg, status == EMBD_OK || status == EMBD_BUSY);
    m->last_status = status;
    m->failed_state = state;
    return status == EMBD_OK;
}

static void *run(void *arg)
{
    struct member *m = arg;
    static int (*const alone[])(struct member *, struct embd__error *) = {
        [MEMBER_LEASELESS] = take_lease, [MEMBER_NAMELESS] = take_name,
        [MEMBER_UNLISTED] = put_on_map,  [MEMBER_LISTED] = keep,
        [MEMBER_LEFT] = read_on,
    };
    static int (*const with_followers[])(struct member *, struct embd__error *) = {
        [MEMBER_LEASELESS] = take_lease, [MEMBER_NAMELESS] = lead_begin,
        [MEMBER_UNLISTED] = put_on_map,  [MEMBER_LISTED] = lead_keep,
        [MEMBER_FOLLOWS] = elect_follow, [MEMBER_RISES] = elect_rise,
        [MEMBER_LEAVES] = lead_leave,    [MEMBER_LEFT] = read_on,
    };
    int (*const *steps)(struct member *, struct embd__error *) =
        m->config.failover != NULL ? with_followers : alone;
    while (!atomic_load(&m->stops)) {
        struct embd__error e = {.status = EMBD_OK};
        enum member_state state = m->state;
        int status = steps[state](m, &e);
        if (note(m, state, status, &e))
            m->pause_ms = PAUSE_MIN_MS;
        if (status == EMBD_OK)
            continue;
        if (m->state == MEMBER_NAMELESS || m->state == MEMBER_UNLISTED)
            m->state = MEMBER_LEASELESS; /* the lease may have ended by the next time */
        member_pause(m, m->pause_ms);
        m->pause_ms = m->pause_ms * 2 < m->pause_max_ms ? m->pause_ms * 2 : m->pause_max_ms;
    }
    return NULL;
}

/* ---- opening ---- */

static void name_process(struct member *m)
{
    uint64_t id = m->config.failover != NULL ? m->config.failover->start : 0;
    if (id == 0 && getrandom(&id, sizeof id, 0) != sizeof id)
        id = (uint64_t)time(NULL);
    snprintf(m->id, sizeof m->id, "%016llx", (unsigned long long)id);
    snprintf(m->name_key, sizeof m->name_key, "servers/%.63s", m->self->name);
}

static void on_report(void *arg)
{
    struct member *m = arg;
    etcd_nudge(m->etcd);
}

/* Always true. */
static bool listen_to_shards(struct member *m)
{
    if (m->config.failover == NULL)
        return true;
    etcd_set_patience(m->etcd, m->config.lease_s * 1000 / 4);
    m->pause_max_ms = m->config.lease_s * 1000 / 12;
    failover_on_news(m->config.failover, on_report, m);
    return true;
}

int member_open(const struct member_config *config, struct member **out, struct embd__error *e)
{
    struct member *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a member of a cluster");
    m->config = *config;
    m->self = &config->servers[config->self];
    m->pause_ms = PAUSE_MIN_MS;
    m->pause_max_ms = PAUSE_MAX_MS;
    m->follows = config->promotion != NULL;
    m->n_servers = config->n_servers;
    m->standing = config->standing;
    name_process(m);
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->woken, NULL);
    if (map_copy(config->start, &m->start, e) != EMBD_OK ||
        map_copy(config->start, &m->map, e) != EMBD_OK ||
        etcd_open(&config->place, &m->stops, &m->etcd, e) != EMBD_OK || !listen_to_shards(m) ||
        (pthread_create(&m->thread, NULL, run, m) != 0 &&
         embd__error_set(e, EMBD_NO_MEMORY, "cannot start the thread that asks etcd"))) {
        etcd_close(m->etcd);
        map_fini(&m->map);
        map_fini(&m->start);
        free(m);
        return e->status;
    }
    *out = m;
    return EMBD_OK;
}

static void give_name_back(struct member *m)
{
    struct embd__error ignored = {.status = EMBD_OK};
    atomic_store(&m->stops, false); /* for these questions */
    if (m->config.failover != NULL)
        lead_hand_over(m, &ignored);
    else if (member_standing(m).is == MEMBERSHIP_LEFT && m->state == MEMBER_LISTED)
        go_from_map(m, &ignored);
    ignored.status = EMBD_OK;
    if (m->lease != 0)
        etcd_lease_revoke(m->etcd, m->lease, &ignored);
}

void member_close(struct member *m)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->mutex);
    atomic_store(&m->stops, true);
    pthread_cond_signal(&m->woken);
    pthread_mutex_unlock(&m->mutex);
    etcd_wake(m->etcd);
    pthread_join(m->thread, NULL);
    if (m->config.failover != NULL)
        failover_on_news(m->config.failover, NULL, NULL);
    if (m->last_status == EMBD_OK || m->last_status == EMBD_CLOSED)
        give_name_back(m);
    etcd_close(m->etcd);
    map_fini(&m->map);
    map_fini(&m->start);
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->woken);
    free(m);
}
