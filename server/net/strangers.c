/* strangers.c - see strangers.h. */
#include "server/net/strangers.h"

#include <assert.h>

#include "server/net/steps.h"

static bool is_known(const struct connection *c)
{
    return tunnel_is_up(c->tunnel) && (c->hub->keys.access == NULL || c->session.grant != NULL);
}

struct connection *strangers_oldest(const struct hub *hub, int door, uint64_t network)
{
    struct connection *c, *oldest = NULL;
    TAILQ_FOREACH(c, &hub->strangers, in_strangers)
    {
        if (door >= 0 && c->door != (enum door)door)
            continue;
        if (c->network == network)
            return c;
        if (oldest == NULL)
            oldest = c;
    }
    return oldest;
}

struct connection *strangers_add(struct connection *c)
{
    struct hub *hub = c->hub;
    if (is_known(c))
        return NULL;
    struct connection *oldest =
        hub->n_strangers >= hub->limits.strangers ? strangers_oldest(hub, -1, c->network) : NULL;
    c->is_stranger = true;
    hub->n_strangers++;
    TAILQ_INSERT_TAIL(&hub->strangers, c, in_strangers);
    return oldest;
}

void strangers_remove(struct connection *c)
{
    if (!c->is_stranger)
        return;
    c->is_stranger = false;
    c->hub->n_strangers--;
    TAILQ_REMOVE(&c->hub->strangers, c, in_strangers);
}

void strangers_look_at(struct connection *c)
{
    if (c->is_stranger && is_known(c))
        strangers_remove(c);
}

const char *strangers_fault(const struct connection *c, uint64_t now_ms)
{
    if (!c->is_stranger)
        return NULL;
    bool is_looked_at = c->kept_bytes == 0 && (c->tunnel == NULL || tunnel_is_empty(c->tunnel));
    if (c->bytes_in >= STRANGER_BYTES && is_looked_at)
        return "128 KiB and no token or TLS handshake";
    if (now_ms - c->began_ms > c->hub->limits.hello_ms)
        return "no token or TLS handshake in time (hello_timeout)";
    return NULL;
}

size_t strangers_room(const struct connection *c, size_t bytes)
{
    assert(!c->is_stranger || c->bytes_in <= STRANGER_BYTES);
    size_t room = (size_t)(STRANGER_BYTES - c->bytes_in);
    return c->is_stranger && room < bytes ? room : bytes;
}
