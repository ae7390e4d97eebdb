/* cluster_map.c - finds a cluster: the first address that answers has the map of all shards.
 *
 * A list is tried once. A name (dns://) is looked up and all its addresses are tried; while none
 * answers, it is looked up again, until the deadline: servers may be starting, or moving. A server
 * that does not know yet where all shards are is asked again as well. */
#include "client/core/cluster_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "proto/placement_wire.h"

#define SOCKET_PATH_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)

/* ---- reading the map ---- */

int embd__shard_keep(struct client_shard *shard, const struct shard_entry *entry,
                     struct embd__error *e)
{
    size_t bytes = strlen(entry->address) + strlen(entry->admin) + strlen(entry->admin_tcp) + 3;
    shard->texts = malloc(bytes);
    if (shard->texts == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the map of the cluster");
    shard->address = shard->texts;
    shard->admin_address = stpcpy(shard->texts, entry->address) + 1;
    shard->admin_host = stpcpy(shard->admin_address, entry->admin) + 1;
    strcpy(shard->admin_host, entry->admin_tcp);
    return EMBD_OK;
}

static int read_map(embd_client *client, struct reader *r)
{
    struct fields fields;
    struct shard_entry entry;
    const msgpack_object *items;
    embd__read_fields(&fields, r, "cluster");
    client->map_refresh.version = embd__field_uint(&fields, "version", 0, UINT64_MAX - 1, 0);
    uint64_t of = embd__field_uint(&fields, "shard", 0, UINT32_MAX, 0);
    uint32_t n = embd__field_list(&fields, "shards", LIMIT_SHARDS, &items);
    if (r->error->status == EMBD_OK && n == 0)
        embd__error_set(r->error, EMBD_PROTOCOL, "the answer to cluster has 0 shards");
    if (r->error->status != EMBD_OK)
        return r->error->status;
    client->came_by_left = of >= n;
    client->shards = calloc(LIMIT_SHARDS, sizeof *client->shards);
    if (client->shards == NULL)
        return embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for %u shards", n);
    client->n_shards = n;
    if (embd__placement_read(&fields, n, &client->placement) != EMBD_OK)
        return r->error->status;
    client->placement_version = client->placement.version;
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++)
        if (embd__shard_entry_read(r, &items[i], &entry) == EMBD_OK)
            embd__shard_keep(&client->shards[i], &entry, r->error);
    return r->error->status;
}

static int ask_map(embd_client *client, struct link *link, uint32_t deadline_ms)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_CLUSTER);
    struct exchange *x = &client->request;
    x->fail_fast = true;
    x->deadline_ms = deadline_ms;
    x->deadline_ns = uv_hrtime() + (uint64_t)deadline_ms * 1000000;
    embd__msg_map(m, 0);
    int status = embd__request_on(client, link, &answer);
    if (status != EMBD_OK)
        return status;
    status = read_map(client, &answer->reader);
    embd__answer_free(answer);
    return status;
}

/* ---- links ---- */

struct link_config embd__link_config(embd_client *client, const char *address)
{
    return (struct link_config){
        .loop = &client->io.loop,
        .buffer = client->io.buffer,
        .address = address,
        .dialer = client->dialer,
        .credentials = &client->credentials,
        .shard = SHARD_ANY,
        .reconnect_min_ms = client->options.reconnect_min_ms,
        .reconnect_max_ms = client->options.reconnect_max_ms,
    };
}

bool embd__choose_admin(const struct client_shard *shard, struct link_config *config)
{
    config->is_admin = true;
    if (config->dialer != NULL)
        return true;
    const char *path = shard->admin_address, *host = shard->admin_host;
    config->is_path = path[0] != '\0' && (host[0] == '\0' || access(path, W_OK) == 0);
    config->address = config->is_path ? path : host;
    return config->address[0] != '\0';
}

/* ---- one address ---- */

/* An admin socket, for operators on its host, who get in when data connections are used up. */
static bool is_socket(const char *address)
{
    return address[0] == '/';
}

/* Asks one address, on a link of its own that is closed again. `host` is what its certificate is
 * for, NULL: that of the address. Both must outlive the loop's next run. */
static int ask_address(embd_client *client, const char *address, const char *host,
                       uint64_t deadline_ns)
{
    struct link *link;
    struct link_config config = embd__link_config(client, address);
    uint64_t now = uv_hrtime();
    config.tls_host = host;
    config.is_path = is_socket(address);
    if (config.is_path)
        config.credentials = NULL;
    client->error.status = EMBD_OK;
    int status = embd__link_open(&config, &link, &client->error);
    if (status != EMBD_OK)
        return status;
    status = ask_map(client, link,
                     deadline_ns > now ? (uint32_t)((deadline_ns - now) / 1000000 + 1) : 1);
    embd__link_close(link);
    uv_run(&client->io.loop, UV_RUN_NOWAIT);
    client->came_by_socket = config.is_path;
    return status;
}

/* The share of the time left that one of n may take. */
static uint64_t share(uint64_t deadline_ns, uint32_t n)
{
    uint64_t now = uv_hrtime();
    return now >= deadline_ns ? now : now + (deadline_ns - now) / n;
}

/* Everything that a name stands for now. */
static int ask_name(embd_client *client, const struct dns_name *name, uint64_t deadline_ns)
{
    struct resolved *found = malloc(sizeof *found);
    if (found == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory to look up '%s'",
                               name->host);
    client->error.status = EMBD_OK;
    int status = embd__resolve(&client->io.loop, name, deadline_ns, found, &client->error);
    const char *host = name->port[0] != '\0' ? name->host : NULL;
    for (uint32_t i = 0, n = status == EMBD_OK ? found->n : 0; i < n; i++) {
        status = ask_address(client, found->addresses[i], host, share(deadline_ns, n - i));
        if (status == EMBD_OK)
            break;
    }
    free(found);
    return status;
}

/* ---- a server that is no member yet ---- */

static int read_joining(struct reader *r, struct shard_entry **list_out, uint32_t *n_out)
{
    struct fields f;
    const msgpack_object *items;
    embd__read_fields(&f, r, "cluster");
    uint32_t n = *n_out = embd__field_list(&f, "shards", LIMIT_SHARDS, &items);
    struct shard_entry *list = *list_out = calloc(n + 1u, sizeof *list);
    if (list == NULL)
        return embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for %u shards", n);
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++)
        embd__shard_entry_read(r, &items[i], &list[i]);
    return r->error->status;
}

/* On a link of its own; the loop is the caller's. */
static int ask_joining(embd_client *client, const char *address, struct shard_entry **list_out,
                       uint32_t *n_out)
{
    struct link *link;
    struct answer *answer;
    const struct link_config config = embd__link_config(client, address);
    int status = embd__link_open(&config, &link, &client->error);
    if (status != EMBD_OK)
        return status;
    struct msg *m = embd__request_begin(client, METHOD_CLUSTER);
    client->request.fail_fast = true;
    embd__msg_map(m, 1);
    embd__msg_field_bool(m, "joins", true);
    status = embd__request_on(client, link, &answer);
    if (status == EMBD_OK) {
        status = read_joining(&answer->reader, list_out, n_out);
        embd__answer_free(answer);
    }
    embd__link_close(link);
    uv_run(&client->io.loop, UV_RUN_NOWAIT);
    return status;
}

int embd__map_of_joining(embd_client *client, const char *address, struct shard_entry **list_out,
                         uint32_t *n_out)
{
    bool has_thread = client->io.has_thread;
    *list_out = NULL;
    embd__io_stop_thread(&client->io);
    int status = ask_joining(client, address, list_out, n_out);
    return has_thread && embd__io_go_on(&client->io, &client->error) != EMBD_OK
               ? client->error.status
               : status;
}

/* ---- the list ---- */

static int check_path(const char *item, size_t bytes, struct embd__error *e)
{
    if (bytes < SOCKET_PATH_BYTES)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "the path %.*s has %zu bytes, the limit is %zu", 120,
                           item, bytes, SOCKET_PATH_BYTES - 1);
}

/* No item of the list may be unreadable, also when an earlier one answers. */
static int check_list(const char *servers, uint32_t *n_out, bool *has_names_out,
                      struct embd__error *e)
{
    const char *item;
    size_t bytes;
    *n_out = 0;
    *has_names_out = false;
    for (const char *rest = servers; rest != NULL; ++*n_out) {
        struct address address;
        struct dns_name name;
        rest = embd__address_next(rest, &item, &bytes);
        bool is_name = embd__is_dns(item, bytes);
        int status = is_socket(item) ? check_path(item, bytes, e)
                     : is_name       ? embd__dns_read(item, bytes, &name, e)
                                     : embd__address_read(item, bytes, &address, e);
        if (status != EMBD_OK)
            return status;
        *has_names_out |= is_name;
    }
    return EMBD_OK;
}

static int ask_item(embd_client *client, const char *item, size_t bytes, uint64_t deadline_ns)
{
    char address[ADDRESS_TEXT_BYTES];
    struct dns_name name;
    struct embd__error ignored = {.status = EMBD_OK}; /* the list was checked */
    if (embd__is_dns(item, bytes)) {
        embd__dns_read(item, bytes, &name, &ignored);
        return ask_name(client, &name, deadline_ns);
    }
    snprintf(address, sizeof address, "%.*s", (int)bytes, item); /* at least SOCKET_PATH_BYTES */
    return ask_address(client, address, NULL, deadline_ns);
}

static int ask_all(embd_client *client, const char *servers, uint32_t n, uint64_t deadline_ns)
{
    const char *item;
    size_t bytes;
    int status = EMBD_UNREACHABLE;
    for (const char *rest = servers; rest != NULL && status != EMBD_OK; n--) {
        rest = embd__address_next(rest, &item, &bytes);
        status = ask_item(client, item, bytes, share(deadline_ns, n));
    }
    return status;
}

/* Whether a later try may help: a cluster that is forming, or names without an address yet. */
static bool may_change(int status, bool has_names)
{
    if (status == EMBD_BUSY)
        return true;
    if (!has_names)
        return false;
    return status == EMBD_UNREACHABLE || status == EMBD_CLOSED || status == EMBD_DEADLINE ||
           status == EMBD_DRAINING;
}

int embd__map_find(embd_client *client, const char *servers, uint64_t deadline_ns)
{
    uint32_t n, pause_ms = client->options.reconnect_min_ms;
    bool has_names;
    if (client->dialer != NULL)
        return ask_address(client, servers, NULL, deadline_ns);
    int status = check_list(servers, &n, &has_names, &client->error);
    if (status != EMBD_OK)
        return status;
    for (;;) {
        status = ask_all(client, servers, n, deadline_ns);
        uint64_t again_ns = uv_hrtime() + (uint64_t)pause_ms * 1000000;
        if (status == EMBD_OK || !may_change(status, has_names) || again_ns >= deadline_ns)
            return status;
        usleep(pause_ms * 1000);
        pause_ms *= 2;
        if (pause_ms > client->options.reconnect_max_ms)
            pause_ms = client->options.reconnect_max_ms;
    }
}
