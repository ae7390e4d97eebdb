/* replicas.c - see replicas.h. A replica has all shards of the cluster in one server, whose shards
 * listen on consecutive ports. */
#include "client/core/replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"

#define ADDRESS_BYTES 280u

/* "HOST:PORT": where the port begins, and its number. */
static int read_port(const char *text, size_t bytes, size_t *host_bytes_out, uint64_t *port_out)
{
    const char *colon = memrchr(text, ':', bytes);
    *port_out = 0;
    if (colon == NULL || colon == text)
        return EMBD_INVALID;
    *host_bytes_out = (size_t)(colon - text);
    for (const char *p = colon + 1; p < text + bytes && *port_out <= UINT16_MAX; p++) {
        if (*p < '0' || *p > '9')
            return EMBD_INVALID;
        *port_out = 10 * *port_out + (uint64_t)(*p - '0');
    }
    return *port_out > 0 ? EMBD_OK : EMBD_INVALID;
}

static int open_links(embd_client *client, struct replica *replica)
{
    for (uint32_t i = 0; i < client->n_shards; i++) {
        struct link_config config =
            embd__link_config(client, replica->texts + i * (size_t)ADDRESS_BYTES);
        config.dialer = NULL;
        config.shard = i;
        config.n_shards = client->n_shards;
        config.transport = client->transport;
        if (embd__link_open(&config, &replica->links[i], &client->error) != EMBD_OK)
            return client->error.status;
    }
    return EMBD_OK;
}

static int add(embd_client *client, const char *text, size_t bytes)
{
    struct replicas *r = &client->replicas;
    size_t host_bytes;
    uint64_t port;
    if (bytes >= ADDRESS_BYTES - 8 || read_port(text, bytes, &host_bytes, &port) != EMBD_OK ||
        port + client->n_shards - 1 > UINT16_MAX)
        return embd__error_set(&client->error, EMBD_INVALID,
                               "readers: '%.*s'; expected HOST:PORT, where %u shards of a replica "
                               "have ports up to 65535",
                               bytes < 200 ? (int)bytes : 200, text, client->n_shards);
    if (r->n == REPLICAS_MAX)
        return embd__error_set(&client->error, EMBD_INVALID, "readers: more than %u addresses",
                               REPLICAS_MAX);
    struct replica *replica = &r->list[r->n++];
    replica->texts = calloc(client->n_shards, ADDRESS_BYTES);
    replica->links = calloc(client->n_shards, sizeof *replica->links);
    if (replica->texts == NULL || replica->links == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a replica");
    for (uint32_t i = 0; i < client->n_shards; i++)
        snprintf(replica->texts + i * (size_t)ADDRESS_BYTES, ADDRESS_BYTES, "%.*s:%u",
                 (int)host_bytes, text, (unsigned)port + i);
    return open_links(client, replica);
}

int embd__replicas_open(embd_client *client)
{
    const char *text = client->options.readers;
    struct replicas *r = &client->replicas;
    client->options.readers = NULL; /* the caller's */
    if (text == NULL || text[0] == '\0')
        return EMBD_OK;
    if (client->options.max_behind_ms > LIMIT_BEHIND_MS)
        return embd__error_set(&client->error, EMBD_INVALID, "max_behind_ms: %u, the limit is %u",
                               client->options.max_behind_ms, LIMIT_BEHIND_MS);
    r->list = calloc(REPLICAS_MAX, sizeof *r->list);
    if (r->list == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for replicas");
    r->n_shards = client->n_shards;
    int status = EMBD_OK;
    for (const char *end; status == EMBD_OK && text != NULL;) {
        end = strchrnul(text, ',');
        status = add(client, text, (size_t)(end - text));
        text = *end == ',' ? end + 1 : NULL;
    }
    return status;
}

void embd__replicas_close(embd_client *client)
{
    const struct replicas *r = &client->replicas;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t s = 0; r->list[i].links != NULL && s < r->n_shards; s++)
            if (client->replicas.list[i].links[s] != NULL)
                embd__link_close(client->replicas.list[i].links[s]);
}

void embd__replicas_fini(embd_client *client)
{
    for (uint32_t i = 0; i < client->replicas.n; i++) {
        free(client->replicas.list[i].links);
        free(client->replicas.list[i].texts);
    }
    free(client->replicas.list);
}

uint32_t embd__replicas_choose(embd_client *client)
{
    struct replicas *r = &client->replicas;
    uint64_t now_ns = uv_hrtime();
    if (r->n_shards != client->n_shards)
        return 0;
    for (uint32_t i = 0; i <= r->n; i++) {
        uint32_t at = r->next;
        r->next = r->next == r->n ? 0 : r->next + 1;
        if (at == r->n)
            return 0;
        if (r->list[at].rests_until_ns <= now_ns)
            return at + 1;
    }
    return 0;
}

struct link *embd__replica_link(const embd_client *client, uint32_t number, uint32_t shard)
{
    return client->replicas.list[number - 1].links[shard];
}

void embd__replica_rest(embd_client *client, uint32_t number, uint64_t rest_ns)
{
    client->replicas.list[number - 1].rests_until_ns = uv_hrtime() + rest_ns;
}
