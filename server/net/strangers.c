/* strangers.c - see strangers.h. */
#include "strangers.h"

static bool is_known(const struct connection *c)
{
    return tunnel_is_up(c->tunnel) && (c->hub->keys.access == NULL || c->session.grant != NULL);
}

struct connection *strangers_add(struct connection *c)
{
    struct hub *hub = c->hub;
    if (is_known(c))
        return NULL;
    struct connection *oldest =
        hub->n_strangers >= hub->limits.strangers ? TAILQ_FIRST(&hub->strangers) : NULL;
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
    if (c->bytes_in > STRANGER_BYTES)
        return "too many bytes before a token or a TLS handshake";
    if (now_ms - c->began_ms > c->hub->limits.hello_ms)
        return "no token or TLS handshake in time (hello_timeout)";
    return NULL;
}
