#include "server/service/subscribers.h"

#include <string.h>

#include "server/access/access.h"
#include "server/log/log.h"
#include "server/service/state.h"

static struct table *table_of(const struct shard *shard, const struct subscriber *s)
{
    struct table *table = tables_by_name(&shard->engine.tables, s->table);
    return table != NULL && table->instance == s->instance ? table : NULL;
}

uint64_t subscribers_number(struct shard *shard)
{
    uint64_t number;
    do
        number = shard->config.start + ++shard->subscribers.n_made * UINT64_C(0x9e3779b97f4a7c15);
    while (number == 0);
    return number;
}

/* Whether another cut than this shard's subscribers' is read, or rows of a table are going. */
static bool is_frozen(const struct shard *shard, bool is_cutting)
{
    return is_cutting || shard->compacting.state == COMPACTING_WRITES || shard->engine.set.is_on;
}

/* By another subscriber. */
static bool is_read(const struct shard *shard, const struct subscriber *but)
{
    for (uint32_t i = 0; i < shard->subscribers.top; i++) {
        const struct subscriber *s = &shard->subscribers.list[i];
        if (s != but && s->made != 0 && s->instance == but->instance)
            return true;
    }
    return false;
}

/* ---- one subscriber ---- */

/* On the admin listener, where its connections are not bounded either. */
static bool is_admins(const struct shard_session *session)
{
    return session->is_admin && (session->grant == NULL || session->grant->role == ROLE_ADMIN);
}

/* It is not in the list yet. */
static int check_new(const struct shard *shard, const struct subscriber *new, struct embd__error *e)
{
    uint32_t n = 0, n_of_table = 0, n_of_token = 0, n_admins = 0;
    for (uint32_t i = 0; i < shard->subscribers.top; i++) {
        const struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == 0 || s->is_mover)
            continue;
        n += !s->is_admins;
        n_admins += s->is_admins;
        n_of_table += s->instance == new->instance;
        n_of_token += new->principal != 0 && s->principal == new->principal;
    }
    if (n_of_table == SUBSCRIBERS_OF_TABLE)
        return embd__error_set(e, EMBD_FULL, "changes: table '%s' has %u subscriptions, the limit",
                               new->table, n_of_table);
    if (new->is_admins && n_admins < SUBSCRIBERS_ADMINS)
        return EMBD_OK;
    if (new->is_admins)
        return embd__error_set(e, EMBD_FULL,
                               "changes: the shard has %u subscriptions of admins, "
                               "the limit",
                               n_admins);
    if (n_of_token == SUBSCRIBERS_OF_TOKEN)
        return embd__error_set(e, EMBD_FULL, "changes: the token has %u subscriptions, the limit",
                               n_of_token);
    if (n == SUBSCRIBERS_MAX)
        return embd__error_set(e, EMBD_FULL, "changes: the shard has %u subscriptions, the limit",
                               SUBSCRIBERS_MAX);
    return EMBD_OK;
}

static struct subscriber subscriber_to(const struct shard_session *session,
                                       const struct table *table)
{
    struct subscriber s = {.session = session, .instance = table->instance};
    memcpy(s.table, table->schema.s.name, sizeof s.table);
    return s;
}

/* There is a free one. */
static struct subscriber *add(struct shard *shard, const struct subscriber *new)
{
    struct subscribers *all = &shard->subscribers;
    uint32_t at = 0;
    while (all->list[at].id != 0)
        at++;
    all->list[at] = *new;
    all->list[at].id = subscribers_number(shard);
    all->n++;
    all->top = at < all->top ? all->top : at + 1;
    return &all->list[at];
}

struct subscriber *subscriber_new(struct shard *shard, const struct shard_session *session,
                                  const struct table *table, struct embd__error *e)
{
    struct subscriber new = subscriber_to(session, table);
    new.is_admins = is_admins(session);
    new.principal = session->grant != NULL && !new.is_admins ? session->grant->principal : 0;
    return check_new(shard, &new, e) == EMBD_OK ? add(shard, &new) : NULL;
}

struct subscriber *subscriber_new_mover(struct shard *shard, const struct shard_session *session,
                                        const struct table *table, struct embd__error *e)
{
    if (shard->subscribers.n == SUBSCRIBERS_ALL) {
        embd__error_set(e, EMBD_FULL, "the shard has %u subscriptions, the limit", SUBSCRIBERS_ALL);
        return NULL;
    }
    struct subscriber new = subscriber_to(session, table);
    new.is_mover = true;
    return add(shard, &new);
}

struct subscriber *subscriber_of(struct shard *shard, const struct shard_session *session,
                                 const struct table *table)
{
    for (uint32_t i = 0; i < shard->subscribers.top && shard->subscribers.n > 0; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id != 0 && s->is_mover && s->session == session && s->instance == table->instance)
            return s;
    }
    return NULL;
}

struct subscriber *subscriber_find(struct shard *shard, const struct shard_session *session,
                                   uint64_t id)
{
    for (uint32_t i = 0; i < shard->subscribers.top && id != 0; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == id && s->session == session)
            return s;
    }
    return NULL;
}

bool subscriber_freeze(struct shard *shard, struct subscriber *s, struct table *table,
                       bool is_cutting, struct embd__error *e)
{
    struct store_cut cut = {
        .id = subscribers_number(shard), .since = s->held, .no_states = !s->is_mover};
    struct store_stats stats;
    if (s->made != 0)
        return true;
    if (is_frozen(shard, is_cutting) || is_read(shard, s) ||
        tables_freeze(&shard->engine.tables, table, &cut, e) != EMBD_OK)
        return false;
    shard->engine.tables.ops->stats(table->store, &stats);
    s->made = cut.id;
    s->has_all = cut.has_all;
    s->step = stats.steps;
    s->is_begun = false;
    s->round++;
    return true;
}

void subscriber_end_round(struct shard *shard, struct subscriber *s)
{
    const struct table *table = table_of(shard, s);
    const struct store_ops *ops = shard->engine.tables.ops;
    ops->thaw(table->store);
    ops->forget(table->store, s->held);
    s->held = s->made;
    s->made = 0;
    s->from_now = false;
}

void subscriber_give_up_round(struct shard *shard, struct subscriber *s)
{
    const struct table *table = table_of(shard, s);
    const struct store_ops *ops = shard->engine.tables.ops;
    if (s->made == 0 || table == NULL)
        return;
    ops->thaw(table->store);
    ops->forget(table->store, s->made);
    s->made = 0;
    s->round--;
}

static void set_free(struct shard *shard, struct subscriber *s)
{
    struct subscribers *all = &shard->subscribers;
    *s = (struct subscriber){.id = 0};
    all->n--;
    while (all->top > 0 && all->list[all->top - 1].id == 0)
        all->top--;
}

void subscriber_end(struct shard *shard, struct subscriber *s)
{
    subscriber_give_up_round(shard, s);
    s->session = NULL;
    s->is_leaving = true;
}

/* ---- all ---- */

void subscribers_give_way(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->subscribers.top && shard->subscribers.n > 0; i++)
        subscriber_give_up_round(shard, &shard->subscribers.list[i]);
}

void subscribers_drop(struct shard *shard, const struct table *table)
{
    for (uint32_t i = 0; i < shard->subscribers.top && shard->subscribers.n > 0; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == 0 || s->instance != table->instance)
            continue;
        subscriber_give_up_round(shard, s);
        set_free(shard, s);
    }
}

void subscribers_leave(struct shard *shard, const struct shard_session *session)
{
    for (uint32_t i = 0; i < shard->subscribers.top && shard->subscribers.n > 0; i++)
        if (shard->subscribers.list[i].id != 0 && shard->subscribers.list[i].session == session)
            subscriber_end(shard, &shard->subscribers.list[i]);
}

/* A frozen table can forget no cut. */
static void forget(struct shard *shard, struct subscriber *s, bool is_cutting)
{
    const struct table *table = table_of(shard, s);
    if (table != NULL && (is_frozen(shard, is_cutting) || is_read(shard, s)))
        return;
    if (table != NULL)
        shard->engine.tables.ops->forget(table->store, s->held);
    set_free(shard, s);
}

/* Its cut would keep copies of all that changes. */
static void look_at_idle(struct shard *shard, struct subscriber *s, uint64_t idle_ns)
{
    if (s->is_leaving || s->is_mover || idle_ns <= SUBSCRIBER_IDLE_NS)
        return;
    if (s->is_admins && idle_ns <= SUBSCRIBER_ADMINS_NS) {
        subscriber_give_up_round(shard, s);
        return;
    }
    log_event(LOG_INFO, "subscription_ended", "shard=%u table=%s why=\"it asked nothing\"",
              shard->config.index, s->table);
    subscriber_end(shard, s);
}

void subscribers_look(struct shard *shard, bool is_cutting)
{
    uint64_t now_ns = clock_ns();
    for (uint32_t i = 0; i < shard->subscribers.top; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == 0)
            continue;
        look_at_idle(shard, s, now_ns - s->asked_ns);
        if (s->is_leaving)
            forget(shard, s, is_cutting);
    }
}

void subscribers_end_each(struct shard *shard)
{
    for (uint32_t i = 0; i < shard->subscribers.top && shard->subscribers.n > 0; i++)
        if (shard->subscribers.list[i].id != 0 && !shard->subscribers.list[i].is_leaving)
            subscriber_end(shard, &shard->subscribers.list[i]);
}

void subscribers_end_all(struct shard *shard)
{
    subscribers_give_way(shard);
    struct subscribers *all = &shard->subscribers;
    memset(all->list, 0, all->top * sizeof *all->list);
    all->n = all->top = 0;
}
