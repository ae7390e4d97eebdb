/* adopting.c - see adopting.h. */
#include "server/net/adopting.h"

#include <stdlib.h>
#include <unistd.h>

#include "server/net/connection.h"

struct adopted {
    struct adopted *before;
    int fd;
    enum door door;
    bool is_ours; /* the peer is this process */
    struct adopted_peer peer;
};

int adopting_add(struct adopting *adopting, int fd, enum door door, const struct adopted_peer *peer,
                 struct embd__error *e)
{
    struct adopted *own = malloc(sizeof *own);
    if (own == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a connection");
    *own = (struct adopted){
        .before = atomic_load(&adopting->last), .fd = fd, .door = door, .is_ours = peer == NULL};
    if (peer != NULL)
        own->peer = *peer;
    while (!atomic_compare_exchange_weak(&adopting->last, &own->before, own))
        ;
    return EMBD_OK;
}

/* The order does not matter: each is a connection of its own. */
void adopting_take(struct adopting *adopting, struct shard_io *io, bool lets_in)
{
    struct adopted *next = atomic_exchange(&adopting->last, NULL);
    while (next != NULL) {
        struct adopted *own = next;
        next = own->before;
        if (lets_in)
            connection_adopt(io, own->fd, own->door, own->is_ours ? NULL : &own->peer);
        else
            close(own->fd);
        free(own);
    }
}

void adopting_fini(struct adopting *adopting)
{
    adopting_take(adopting, NULL, false);
}
