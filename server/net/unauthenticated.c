/* unauthenticated.c - see unauthenticated.h. */
#include "server/net/unauthenticated.h"

#include "proto/assert.h"
#include "server/net/connection_internal.h"

static bool is_authenticated(const struct connection *c)
{
    return tls_connection_is_up(c->tls) &&
           (c->io->credentials.access == NULL || c->session.grant != NULL);
}

struct connection *unauthenticated_oldest(const struct shard_io *io, int door, uint64_t network)
{
    struct connection *c, *oldest = NULL;
    TAILQ_FOREACH(c, &io->unauthenticated, in_unauthenticated)
    {
        if (door >= 0 && door_room(c->door) != door_room((enum door)door))
            continue;
        if (c->network == network)
            return c;
        if (oldest == NULL)
            oldest = c;
    }
    return oldest;
}

struct connection *unauthenticated_add(struct connection *c)
{
    struct shard_io *io = c->io;
    if (is_authenticated(c))
        return NULL;
    struct connection *oldest = io->n_unauthenticated >= io->limits.unauthenticated
                                    ? unauthenticated_oldest(io, -1, c->network)
                                    : NULL;
    c->is_unauthenticated = true;
    io->n_unauthenticated++;
    TAILQ_INSERT_TAIL(&io->unauthenticated, c, in_unauthenticated);
    return oldest;
}

void unauthenticated_remove(struct connection *c)
{
    c->is_unauthenticated = false;
    c->io->n_unauthenticated--;
    TAILQ_REMOVE(&c->io->unauthenticated, c, in_unauthenticated);
}

void unauthenticated_look_at(struct connection *c)
{
    if (is_authenticated(c))
        unauthenticated_remove(c);
}

const char *unauthenticated_fault(const struct connection *c, uint64_t now_ms)
{
    bool is_parsed = c->kept_bytes == 0 && (c->tls == NULL || tls_connection_is_drained(c->tls));
    if (c->bytes_in >= UNAUTHENTICATED_BYTES && is_parsed)
        return "it sent 128 KiB without a token or TLS handshake";
    if (now_ms - c->began_ms > c->io->limits.hello_ms)
        return "it sent no token or TLS handshake in time (hello_timeout)";
    return NULL;
}

size_t unauthenticated_room(const struct connection *c, size_t bytes)
{
    EMBD_ASSERT(c->bytes_in <= UNAUTHENTICATED_BYTES);
    size_t room = (size_t)(UNAUTHENTICATED_BYTES - c->bytes_in);
    return room < bytes ? room : bytes;
}
