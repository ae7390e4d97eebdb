/* client.c - the handle. Connecting: the map of the cluster is found (map.c); then a link to every
 * shard is opened and pinged, all at once, so that a handle that was made is a handle that works.
 * Admin links are only named here; they connect with their first request. */
#include "client/core/client.h"
#include "client/core/clocks.h"
#include "client/io/inproc.h"
#include "client/io/local.h"
#include "proto/structs.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void embd_options_init_sized(embd_options *options, uint32_t struct_bytes)
{
    const embd_options own = {
        .deadline_ms = 30000, .reconnect_min_ms = 10, .reconnect_max_ms = 1000};
    embd__struct_give(options, struct_bytes, &own, sizeof own);
}

/* ---- links ---- */

static int open_links(embd_client *client)
{
    int status = EMBD_OK;
    for (uint32_t i = 0; i < client->n_shards && status == EMBD_OK; i++)
        status = embd__shard_link(client, i, client->n_shards);
    client->n_linked = client->n_shards;
    return status;
}

/* Exchanges without an answer to speak of, one for each shard. */
struct pings {
    struct job job;
    struct exchange *exchanges;
    struct exchange *list[];
};

static void *on_ping_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to ping has a bin of %u bytes", bytes);
    return NULL;
}

static void on_ping_answer(struct exchange *x, struct reader *reader)
{
    (void)x;
    embd__reader_end(reader);
}

static void begin_ping(embd_client *client, struct pings *pings, uint32_t i, uint64_t deadline_ns)
{
    struct exchange *x = &pings->exchanges[i];
    embd__msg_init(&x->msg);
    embd__client_begin(client, x, 0);
    x->deadline_ns = deadline_ns;
    x->fail_fast = true;
    x->link = client->shards[i].asks_admin ? client->shards[i].admin : client->shards[i].link;
    x->owner = &pings->job;
    x->on_bin = on_ping_bin;
    x->on_answer = on_ping_answer;
    x->on_end = embd__job_on_end;
    x->while_loading = true;
    embd__msg_request(&x->msg, x->msgid, METHOD_PING);
    embd__msg_map(&x->msg, 0);
    pings->list[i] = x;
    if (embd__msg_end(&x->msg) != EMBD_OK)
        embd__error_set(&client->error, x->msg.status, "no memory for a request");
}

/* A shard that leaves the cluster meanwhile is given up by the first call (shrinking.c). */
static bool may_miss(const embd_client *client, const struct exchange *x)
{
    int status = x->error.status;
    return status == EMBD_MOVED || embd__link_is_retired(x->link) ||
           (client->options.partly && embd__is_silence(status));
}

/* Connects every link; the first error by shard is the client's. */
static int ping_all(embd_client *client, uint64_t deadline_ns)
{
    uint32_t n = client->n_shards;
    struct pings *pings = calloc(1, sizeof *pings + n * sizeof pings->list[0]);
    struct exchange *exchanges = calloc(n, sizeof *exchanges);
    if (pings == NULL || exchanges == NULL) {
        free(pings);
        free(exchanges);
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for %u shards", n);
    }
    pings->exchanges = exchanges;
    pings->job.exchanges = pings->list;
    pings->job.n = n;
    for (uint32_t i = 0; i < n; i++)
        begin_ping(client, pings, i, deadline_ns);
    if (client->error.status == EMBD_OK) {
        embd__io_submit(&client->io, &pings->job);
        embd__io_await(&client->io, &pings->job);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (exchanges[i].error.status != EMBD_OK && !may_miss(client, &exchanges[i]))
            embd__error_set(&client->error, exchanges[i].error.status, "%s",
                            exchanges[i].error.text);
        embd__msg_fini(&exchanges[i].msg);
    }
    free(exchanges);
    free(pings);
    return client->error.status;
}

/* ---- open and close ---- */

static int take_options(embd_client *client, const embd_options *options)
{
    embd_options *own = &client->options;
    embd_options_init(own);
    if (options == NULL)
        return EMBD_OK;
    embd_options defaults = *own;
    if (embd__take(embd_options, own, options, &client->error) != EMBD_OK)
        return client->error.status;
    if (own->deadline_ms == 0)
        own->deadline_ms = defaults.deadline_ms;
    if (own->reconnect_min_ms == 0)
        own->reconnect_min_ms = defaults.reconnect_min_ms;
    if (own->reconnect_max_ms < own->reconnect_min_ms)
        own->reconnect_max_ms = own->reconnect_min_ms;
    return EMBD_OK;
}

/* The credentials have their own copies of the options' paths and token. */
static int identify(embd_client *client)
{
    embd_options *own = &client->options;
    int status = embd__credentials_open(own, &client->credentials, &client->error);
    own->token = own->token_file = own->tls_ca = own->tls_cert = own->tls_key = NULL;
    return status;
}

/* Any number will do that no other client has. */
static int choose_id(embd_client *client)
{
    if (uv_random(NULL, NULL, &client->id, sizeof client->id, 0, NULL) != 0)
        return embd__error_set(&client->error, EMBD_INTERNAL, "the system gives no random numbers");
    client->id += client->id == 0;
    return EMBD_OK;
}

static int establish(embd_client *client, const char *servers)
{
    int status = embd__inproc_is(servers)
                     ? embd__inproc_open(servers, &client->dialer, &client->error)
                     : EMBD_OK;
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)client->options.deadline_ms * 1000000;
    if (status == EMBD_OK)
        status = embd__transport_read(&client->transport, &client->error);
    if (status == EMBD_OK)
        status = embd__shared_new(&client->shared, &client->error);
    if (status == EMBD_OK)
        status = identify(client);
    if (status == EMBD_OK)
        status = choose_id(client);
    if (status == EMBD_OK)
        status = embd__map_refresh_open(client, servers, &client->error);
    if (status == EMBD_OK)
        status = embd__map_find(client, servers, deadline_ns);
    if (status == EMBD_OK)
        status = open_links(client);
    if (status == EMBD_OK)
        status = embd__replicas_open(client);
    if (status == EMBD_OK)
        status = ping_all(client, deadline_ns);
    if (status == EMBD_OK && client->options.own_thread)
        status = embd__io_start_thread(&client->io, &client->error);
    return status == EMBD_DEADLINE || status == EMBD_CLOSED ? EMBD_UNREACHABLE : status;
}

int embd_connect(const char *servers, const embd_options *options, embd_client **client_out)
{
    struct embd__error e = {0};
    *client_out = NULL;
    embd_client *client = calloc(1, sizeof *client);
    int status = client == NULL ? embd__error_set(&e, EMBD_NO_MEMORY, "no memory for a client")
                                : embd__io_init(&client->io, &e);
    if (status == EMBD_OK) {
        embd__msg_init(&client->request.msg);
        embd__calls_init(client);
        embd__device_calls_init(client);
        embd__device_nodes_init(client);
        status = take_options(client, options);
        if (status == EMBD_OK)
            status = establish(client, servers);
        if (status == EMBD_OK) {
            *client_out = client;
            return EMBD_OK;
        }
        e = client->error;
        embd_close(client);
    } else {
        free(client);
    }
    return embd__error_keep(&e, status);
}

void embd_close(embd_client *client)
{
    if (client == NULL)
        return;
    embd__members_fini(client);
    embd__io_stop_thread(&client->io);
    for (uint32_t i = 0; client->shards != NULL && i < LIMIT_SHARDS; i++) {
        if (client->shards[i].link != NULL)
            embd__link_close(client->shards[i].link);
        if (client->shards[i].admin != NULL)
            embd__link_close(client->shards[i].admin);
    }
    embd__left_close(client);
    embd__replicas_close(client);
    embd__map_refresh_close(client);
    embd__io_fini(&client->io);
    embd__map_refresh_fini(client);
    for (uint32_t i = 0; client->shards != NULL && i < LIMIT_SHARDS; i++)
        free(client->shards[i].texts);
    free(client->shards);
    embd__left_fini(client);
    embd__replicas_fini(client);
    embd__calls_fini(client);
    embd__opened_fini(&client->opened);
    embd__numbering_fini(&client->numbering);
    embd__tables_fini(client);
    embd__device_nodes_fini(client);
    embd__device_calls_fini(client);
    embd__device_run_fini(client);
    embd__devices_fini(client);
    embd__distinct_fini(&client->distinct);
    embd__msg_fini(&client->request.msg);
    embd__shared_leave(client->shared);
    embd__credentials_fini(&client->credentials);
    embd__inproc_close(client->dialer);
    free(client);
}

uint32_t embd_shard_count(const embd_client *client)
{
    return client->n_shards;
}

const char *embd_shard_address(const embd_client *client, uint32_t shard)
{
    return shard < client->n_shards ? client->shards[shard].address : NULL;
}
