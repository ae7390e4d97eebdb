/* follow.c - the happy path: a link could not connect, an answer told that there is a newer map,
 * or the answer of a shard is late (its process hangs, and may have been replaced); another link
 * that is up is asked for the map; where it is newer than ours, links take the addresses it has,
 * those that wait connect at once, and those that are connected to where a shard was give that up.
 *
 * In a cluster whose map never changes this costs a question a second while a server is down. What
 * an older or damaged map says is not taken, and neither is one of another number of shards: keys
 * would belong elsewhere. */
#include "client/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define FOLLOW_MSGID  (UINT32_MAX - 1) /* no other exchange has it */
#define ANSWER_MS     2000u
#define WATCH_MS      1000u
#define LATE_PAUSE_NS UINT64_C(3000000000)

/* ---- what is asked ---- */

/* The next item of the list that a link can be opened to. False: there is none. */
static bool next_seed(struct follower *f)
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

/* A link that may know more; NULL: nobody can be asked. */
static struct link *choose(struct follower *f, uint64_t now)
{
    embd_client *client = f->client;
    struct embd__error ignored = {.status = EMBD_OK};
    for (uint32_t i = 0; i < client->n_shards; i++)
        if (embd__link_is_up(client->shards[i].link) &&
            !embd__link_is_late(client->shards[i].link, now))
            return client->shards[i].link;
    if (!next_seed(f))
        return NULL;
    struct link_config config = embd__link_config(client, f->seed_address);
    if (f->seed == NULL)
        embd__link_open(&config, &f->seed, &ignored);
    else if (embd__link_move(f->seed, f->seed_address, false, &ignored) != EMBD_OK)
        return NULL;
    return f->seed;
}

/* ---- the answer ---- */

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to cluster has a bin of %u bytes", bytes);
    return NULL;
}

/* Puts a text where another was. False: it is the same, or there is no memory. */
static bool replace(struct follower *f, char *_Atomic *at, const char *text)
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

static void move_shard(struct follower *f, struct client_shard *shard, const struct map_entry *to)
{
    struct embd__error ignored = {.status = EMBD_OK};
    if (replace(f, &shard->address, to->address)) {
        embd__link_leave(shard->link);
        embd__link_move(shard->link, shard->address, false, &ignored);
    }
    bool is_other = replace(f, &shard->admin_address, to->admin);
    is_other |= replace(f, &shard->admin_host, to->admin_tcp);
    struct link_config config;
    if (is_other && shard->admin != NULL && embd__choose_admin(shard, &config))
        embd__link_move(shard->admin, config.address, config.is_path, &ignored);
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    struct follower *f = x->owner;
    embd_client *client = f->client;
    struct fields fields;
    struct map_entry entry;
    const msgpack_object *items;
    embd__read_fields(&fields, reader, "cluster");
    uint64_t version = embd__field_uint(&fields, "version", 0, UINT64_MAX - 1, 0);
    uint32_t n = embd__field_list(&fields, "shards", LIMIT_SHARDS, &items);
    if (reader->error->status != EMBD_OK || version <= f->version || n != client->n_shards)
        return;
    f->version = version;
    for (uint32_t i = 0; i < n && reader->error->status == EMBD_OK; i++)
        if (embd__map_entry_read(reader, &items[i], &entry) == EMBD_OK)
            move_shard(f, &client->shards[i], &entry);
}

static void on_end(struct exchange *x)
{
    struct follower *f = x->owner;
    f->is_asking = false;
}

static bool may_ask(const struct follower *f, uint64_t now)
{
    return !f->is_asking && now >= f->next_ns && f->servers != NULL;
}

static void ask(struct follower *f, struct link *link, uint64_t now)
{
    struct exchange *x = &f->x;
    f->is_asking = true;
    f->next_ns = now + (uint64_t)f->client->options.reconnect_max_ms * 1000000;
    x->msgid = FOLLOW_MSGID;
    x->deadline_ms = ANSWER_MS;
    x->deadline_ns = now + (uint64_t)ANSWER_MS * 1000000;
    x->fail_fast = true;
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

void embd__follow(void *arg)
{
    embd_client *client = arg;
    struct follower *f = &client->follower;
    uint64_t now = uv_hrtime();
    struct link *link = may_ask(f, now) ? choose(f, now) : NULL;
    if (link != NULL)
        ask(f, link, now);
}

void embd__follow_told(embd_client *client, struct link *link, uint64_t version)
{
    struct follower *f = &client->follower;
    uint64_t now = version > f->version ? uv_hrtime() : 0;
    if (version > f->version && may_ask(f, now))
        ask(f, link, now);
}

/* ---- watching ---- */

/* It has been asked, and is no more needed than until then. */
static void close_seed(struct follower *f)
{
    if (f->seed == NULL || f->is_asking)
        return;
    embd__link_close(f->seed);
    f->seed = NULL;
}

/* A shard whose process hangs while its host lives may have been replaced: others know. */
static void on_watch(uv_timer_t *timer)
{
    embd_client *client = timer->data;
    struct follower *f = &client->follower;
    uint64_t now = uv_hrtime();
    bool is_late = false;
    close_seed(f);
    for (uint32_t i = 0; i < client->n_shards; i++) {
        struct link *link = client->shards[i].link;
        if (link == NULL)
            continue;
        embd__link_look(link);
        is_late |= embd__link_is_late(link, now);
    }
    if (!is_late || now < f->asked_late_ns + LATE_PAUSE_NS)
        return;
    f->asked_late_ns = now;
    embd__follow(client);
}

/* ---- open and close ---- */

int embd__follow_open(embd_client *client, const char *servers, struct embd__error *e)
{
    struct follower *f = &client->follower;
    f->client = client;
    embd__msg_init(&f->x.msg);
    uv_timer_init(&client->courier.loop, &f->watch);
    f->watch.data = client;
    f->is_watching = true;
    uv_timer_start(&f->watch, on_watch, WATCH_MS, WATCH_MS);
    uv_unref((uv_handle_t *)&f->watch);
    f->servers = strdup(servers);
    return f->servers != NULL ? EMBD_OK
                              : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a client");
}

void embd__follow_close(embd_client *client)
{
    if (client->follower.is_watching)
        uv_close((uv_handle_t *)&client->follower.watch, NULL);
    if (client->follower.seed != NULL)
        embd__link_close(client->follower.seed);
}

void embd__follow_fini(embd_client *client)
{
    struct follower *f = &client->follower;
    while (f->old != NULL) {
        struct old_text *old = f->old;
        f->old = old->next;
        free(old);
    }
    free(f->servers);
    embd__msg_fini(&f->x.msg);
}
