/* map_refresh.c - clients follow shards that move.
 *
 * When a link could not connect, a server does not serve yet, an answer named a newer map, or the
 * answer of a shard is late (its process hangs, and may have been replaced), another link that is
 * up is asked for the map. If that is newer than ours, links take its addresses, waiting ones
 * connect at once, and links to a shard's earlier address are closed.
 *
 * The first requests follow each other quickly, since a follower takes the place of a server that
 * ends in order within moments; each pause is twice the one before. In a cluster whose map never
 * changes that comes to a request a second while a server is down. Where no link is up, each server
 * of the list is asked in turn: one may not have heard of the new map yet, and the next one has. An
 * older or damaged map is not used. Of a map of more or fewer shards the addresses are taken of
 * those that both have: a call may wait for one of them. A client learns of shards that were added
 * by EMBD_MOVED (placement.c). A later map that lacks the last shards says that these have left:
 * what waits for them is told so, and the caller's thread learns the map (shrinking.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "proto/placement_wire.h"

#define REFRESH_MSGID (UINT32_MAX - 1) /* no other exchange has it */
#define ANSWER_MS     2000u
#define CHECK_MS      1000u
#define NEXT_MS       1u
#define LATE_PAUSE_NS UINT64_C(3000000000)

/* ---- the link to ask ---- */

/* The next item of the list to which a link can be opened. False: none. */
static bool next_seed(struct map_refresh *f)
{
    const char *item;
    size_t bytes;
    for (int round = 0; round < 2; round++) {
        const char *rest = f->rest != NULL ? f->rest : f->servers;
        while (rest != NULL) {
            struct dns_name name;
            struct embd__error ignored = {.status = EMBD_OK};
            rest = embd__address_next(rest, &item, &bytes);
            f->rest = rest;
            if (item[0] == '/') /* of an admin, who asks no second time */
                continue;
            if (!embd__is_dns(item, bytes)) {
                snprintf(f->seed_address, sizeof f->seed_address, "%.*s", (int)bytes, item);
                return true;
            }
            if (embd__dns_read(item, bytes, &name, &ignored) == EMBD_OK && name.port[0] != '\0') {
                const char *format = strchr(name.host, ':') != NULL ? "[%s]:%s" : "%s:%s";
                snprintf(f->seed_address, sizeof f->seed_address, format, name.host, name.port);
                return true;
            }
        }
    }
    return false;
}

/* It was asked, and is needed only until its answer. */
static void close_seed(struct map_refresh *f)
{
    if (f->seed == NULL || f->is_asking)
        return;
    embd__link_close(f->seed);
    f->seed = NULL;
}

/* A link that may have a newer map; NULL: none can be asked. */
static struct link *choose(struct map_refresh *f, uint64_t now)
{
    embd_client *client = f->client;
    struct embd__error ignored = {.status = EMBD_OK};
    f->asks_seed = false;
    for (uint32_t i = 0; i < client->n_linked; i++)
        if (embd__link_is_up(client->shards[i].link) &&
            !embd__link_is_loading(client->shards[i].link) &&
            !embd__link_is_late(client->shards[i].link, now))
            return client->shards[i].link;
    f->asks_seed = true;
    if (!next_seed(f))
        return NULL;
    struct link_config config = embd__link_config(client, f->seed_address);
    close_seed(f); /* it is of the item before */
    if (f->seed == NULL)
        embd__link_open(&config, &f->seed, &ignored);
    return f->seed;
}

/* ---- the answer ---- */

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to cluster has a bin of %u bytes", bytes);
    return NULL;
}

/* Replaces a text. False: it is the same, or there is no memory. */
static bool replace(struct map_refresh *f, char *_Atomic *at, const char *text)
{
    if (strcmp(*at, text) == 0)
        return false;
    size_t bytes = strlen(text) + 1;
    struct old_text *kept = malloc(sizeof *kept + bytes);
    if (kept == NULL)
        return false;
    memcpy(kept->text, text, bytes);
    kept->next = f->old;
    f->old = kept;
    *at = kept->text;
    return true;
}

static void move_shard(struct map_refresh *f, struct client_shard *shard,
                       const struct shard_entry *to)
{
    struct embd__error ignored = {.status = EMBD_OK};
    if (replace(f, &shard->address, to->address)) {
        embd__link_leave(shard->link);
        embd__link_move(shard->link, shard->address, false, &ignored);
    }
    bool is_other = replace(f, &shard->admin_address, to->admin);
    is_other |= replace(f, &shard->admin_host, to->admin_tcp);
    struct link_config config = {.dialer = NULL};
    if (is_other && shard->admin != NULL && embd__choose_admin(shard, &config))
        embd__link_move(shard->admin, config.address, config.is_path, &ignored);
}

/* The link that has answered is in the midst of it: its server says so itself. */
static void note_left(const struct exchange *x, embd_client *client, uint32_t n,
                      struct fields *fields)
{
    struct placement place;
    if (n == 0 || embd__placement_read(fields, n, &place) != EMBD_OK ||
        place.version <= client->placement_version)
        return;
    for (uint32_t i = n; i < client->n_linked; i++)
        if (client->shards[i].link != x->link)
            embd__link_retire(client->shards[i].link, "the shard has left the cluster");
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    struct map_refresh *f = x->owner;
    embd_client *client = f->client;
    struct fields fields;
    struct shard_entry entry;
    const msgpack_object *items;
    embd__read_fields(&fields, reader, "cluster");
    uint64_t version = embd__field_uint(&fields, "version", 0, UINT64_MAX - 1, 0);
    uint32_t n = embd__field_list(&fields, "shards", LIMIT_SHARDS, &items);
    if (reader->error->status == EMBD_OK && n < client->n_linked)
        note_left(x, client, n, &fields);
    if (reader->error->status != EMBD_OK || version <= f->version)
        return;
    if (n >= client->n_linked) { /* else another server may tell of those that this one lacks */
        f->version = version;
        f->has_news = true;
        f->pause_ns = f->next_ns = 0; /* where it moves again, that is another time */
    }
    for (uint32_t i = 0; i < n && i < client->n_linked && reader->error->status == EMBD_OK; i++)
        if (embd__shard_entry_read(reader, &items[i], &entry) == EMBD_OK)
            move_shard(f, &client->shards[i], &entry);
}

static void on_check(uv_timer_t *timer);

static void on_end(struct exchange *x)
{
    struct map_refresh *f = x->owner;
    bool is_answered = x->error.status == EMBD_OK;
    f->is_asking = false;
    f->n_vain = f->has_news || (is_answered && !f->asks_seed) ? 0 : f->n_vain + 1;
    if (f->n_vain % f->n_servers == 0)
        return;
    f->goes_on = true; /* the others of the list may have it */
    uv_timer_start(&f->timer, on_check, NEXT_MS, CHECK_MS);
}

static bool may_ask(const struct map_refresh *f, uint64_t now)
{
    return !f->is_asking && now >= f->next_ns && f->servers != NULL;
}

/* Less than the pause between two attempts to connect, or every other one would ask. It begins
 * anew when nothing was asked for twice the longest. */
static void set_pause(struct map_refresh *f, uint64_t now)
{
    const struct embd_options *options = &f->client->options;
    uint64_t least = (uint64_t)options->reconnect_min_ms * 750000;
    uint64_t most = (uint64_t)options->reconnect_max_ms * 750000;
    bool begins = f->pause_ns == 0 || now > f->next_ns + 2 * most;
    f->pause_ns = begins ? least : 2 * f->pause_ns < most ? 2 * f->pause_ns : most;
    f->next_ns = now + f->pause_ns;
}

static void send_request(struct map_refresh *f, struct link *link, uint64_t now)
{
    struct exchange *x = &f->x;
    f->is_asking = true;
    f->has_news = false;
    if (!f->goes_on)
        set_pause(f, now);
    x->msgid = REFRESH_MSGID;
    x->deadline_ms = ANSWER_MS;
    x->deadline_ns = now + (uint64_t)ANSWER_MS * 1000000;
    x->fail_fast = x->while_loading = true;
    x->held = 0;
    x->error.status = EMBD_OK;
    x->link = link;
    x->owner = f;
    x->on_bin = on_bin;
    x->on_answer = on_answer;
    x->on_end = on_end;
    embd__msg_request(&x->msg, x->msgid, METHOD_CLUSTER);
    embd__msg_map(&x->msg, 0);
    if (embd__msg_end(&x->msg) == EMBD_OK)
        embd__link_send(link, x);
    else
        f->is_asking = false;
}

void embd__map_refresh(void *arg)
{
    embd_client *client = arg;
    struct map_refresh *f = &client->map_refresh;
    uint64_t now = uv_hrtime();
    struct link *link = may_ask(f, now) ? choose(f, now) : NULL;
    if (link != NULL)
        send_request(f, link, now);
}

void embd__map_refresh_from(embd_client *client, struct link *link)
{
    struct map_refresh *f = &client->map_refresh;
    uint64_t now = uv_hrtime();
    if (may_ask(f, now))
        send_request(f, link, now);
}

/* ---- when ---- */

/* A shard whose process hangs while its host lives may have been replaced: others know. */
static void on_check(uv_timer_t *timer)
{
    embd_client *client = timer->data;
    struct map_refresh *f = &client->map_refresh;
    uint64_t now = uv_hrtime();
    bool is_late = false;
    close_seed(f);
    if (f->goes_on) { /* it is the same attempt */
        struct link *link = f->is_asking ? NULL : choose(f, now);
        if (link != NULL)
            send_request(f, link, now);
        f->goes_on = false;
    }
    for (uint32_t i = 0; i < client->n_linked; i++) {
        struct link *link = client->shards[i].link;
        if (link == NULL)
            continue;
        embd__link_check_peer(link);
        is_late |= embd__link_is_late(link, now);
    }
    if (!is_late || now < f->asked_late_ns + LATE_PAUSE_NS)
        return;
    f->asked_late_ns = now;
    embd__map_refresh(client);
}

/* ---- open and close ---- */

int embd__map_refresh_open(embd_client *client, const char *servers, struct embd__error *e)
{
    struct map_refresh *f = &client->map_refresh;
    f->client = client;
    embd__msg_init(&f->x.msg);
    uv_timer_init(&client->io.loop, &f->timer);
    f->timer.data = client;
    f->is_open = true;
    uv_timer_start(&f->timer, on_check, CHECK_MS, CHECK_MS);
    uv_unref((uv_handle_t *)&f->timer);
    f->servers = strdup(servers);
    f->n_servers = 1;
    for (const char *c = servers; *c != '\0'; c++)
        f->n_servers += *c == ',';
    return f->servers != NULL ? EMBD_OK
                              : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a client");
}

void embd__map_refresh_close(embd_client *client)
{
    if (client->map_refresh.is_open)
        uv_close((uv_handle_t *)&client->map_refresh.timer, NULL);
    if (client->map_refresh.seed != NULL)
        embd__link_close(client->map_refresh.seed);
}

void embd__map_refresh_fini(embd_client *client)
{
    struct map_refresh *f = &client->map_refresh;
    while (f->old != NULL) {
        struct old_text *old = f->old;
        f->old = old->next;
        free(old);
    }
    free(f->servers);
    embd__msg_fini(&f->x.msg);
}
