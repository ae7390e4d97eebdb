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
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL; i++) {
        const struct subscriber *s = &shard->subscribers.list[i];
        if (s != but && s->made != 0 && s->instance == but->instance)
            return true;
    }
    return false;
}

/* ---- one subscriber ---- */

static int check_new(const struct shard *shard, const struct table *table, uint64_t principal,
                     struct embd__error *e)
{
    uint32_t n = 0, n_of_table = 0, n_of_token = 0;
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL; i++) {
        const struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == 0 || s->is_mover)
            continue;
        n++;
        n_of_table += s->instance == table->instance;
        n_of_token += principal != 0 && s->principal == principal;
    }
    if (n_of_table == SUBSCRIBERS_OF_TABLE)
        return embd__error_set(e, EMBD_FULL, "changes: table '%s' has %u subscriptions, the limit",
                               table->schema.s.name, n_of_table);
    if (n_of_token == SUBSCRIBERS_OF_TOKEN)
        return embd__error_set(e, EMBD_FULL, "changes: the token has %u subscriptions, the limit",
                               n_of_token);
    if (n == SUBSCRIBERS_MAX)
        return embd__error_set(e, EMBD_FULL, "changes: the shard has %u subscriptions, the limit",
                               SUBSCRIBERS_MAX);
    return EMBD_OK;
}

/* There is a free one. */
static struct subscriber *add(struct shard *shard, const struct shard_session *session,
                              const struct table *table, uint64_t principal)
{
    struct subscriber *s = shard->subscribers.list;
    while (s->id != 0)
        s++;
    *s = (struct subscriber){.session = session,
                             .id = subscribers_number(shard),
                             .instance = table->instance,
                             .principal = principal};
    memcpy(s->table, table->schema.s.name, sizeof s->table);
    shard->subscribers.n++;
    return s;
}

struct subscriber *subscriber_new(struct shard *shard, const struct shard_session *session,
                                  const struct table *table, struct embd__error *e)
{
    uint64_t principal = session->grant != NULL ? session->grant->principal : 0;
    if (check_new(shard, table, principal, e) != EMBD_OK)
        return NULL;
    return add(shard, session, table, principal);
}

struct subscriber *subscriber_new_mover(struct shard *shard, const struct shard_session *session,
                                        const struct table *table, struct embd__error *e)
{
    if (shard->subscribers.n == SUBSCRIBERS_ALL) {
        embd__error_set(e, EMBD_FULL, "the shard has %u subscriptions, the limit", SUBSCRIBERS_ALL);
        return NULL;
    }
    struct subscriber *s = add(shard, session, table, 0);
    s->is_mover = true;
    return s;
}

struct subscriber *subscriber_of(struct shard *shard, const struct shard_session *session,
                                 const struct table *table)
{
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL && shard->subscribers.n > 0; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id != 0 && s->is_mover && s->session == session && s->instance == table->instance)
            return s;
    }
    return NULL;
}

struct subscriber *subscriber_find(struct shard *shard, const struct shard_session *session,
                                   uint64_t id)
{
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL && id != 0; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == id && s->session == session)
            return s;
    }
    return NULL;
}

bool subscriber_freeze(struct shard *shard, struct subscriber *s, struct table *table,
                       bool is_cutting, struct embd__error *e)
{
    struct store_cut cut = {.id = subscribers_number(shard), .since = s->held};
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
    *s = (struct subscriber){.id = 0};
    shard->subscribers.n--;
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
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL && shard->subscribers.n > 0; i++)
        subscriber_give_up_round(shard, &shard->subscribers.list[i]);
}

void subscribers_drop(struct shard *shard, const struct table *table)
{
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL && shard->subscribers.n > 0; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == 0 || s->instance != table->instance)
            continue;
        subscriber_give_up_round(shard, s);
        set_free(shard, s);
    }
}

void subscribers_leave(struct shard *shard, const struct shard_session *session)
{
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL && shard->subscribers.n > 0; i++)
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

void subscribers_look(struct shard *shard, bool is_cutting)
{
    uint64_t now_ns = clock_ns();
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL; i++) {
        struct subscriber *s = &shard->subscribers.list[i];
        if (s->id == 0)
            continue;
        if (!s->is_leaving && !s->is_mover && now_ns - s->asked_ns > SUBSCRIBER_IDLE_NS) {
            log_event(LOG_INFO, "subscription_ended", "shard=%u table=%s why=\"it asked nothing\"",
                      shard->config.index, s->table);
            subscriber_end(shard, s);
        }
        if (s->is_leaving)
            forget(shard, s, is_cutting);
    }
}

void subscribers_end_each(struct shard *shard)
{
    for (uint32_t i = 0; i < SUBSCRIBERS_ALL && shard->subscribers.n > 0; i++)
        if (shard->subscribers.list[i].id != 0 && !shard->subscribers.list[i].is_leaving)
            subscriber_end(shard, &shard->subscribers.list[i]);
}

void subscribers_end_all(struct shard *shard)
{
    subscribers_give_way(shard);
    shard->subscribers = (struct subscribers){.n_made = shard->subscribers.n_made};
}
