/* places.h - where clients reach the shards of the cluster: ours as bound, the others' as the file
 * has them. */
#ifndef EMBD_PLACES_H
#define EMBD_PLACES_H

#include "server/config.h"
#include "server/net/loop.h"

struct places {
    uint32_t n; /* shards of the cluster */
    char **addresses;
    char **admin_addresses; /* paths of Unix sockets */
    char **admin_hosts;     /* on TCP; "": none */
};

/* `loops` are those of the process, bound. EMBD_NO_MEMORY; EMBD_TOO_LARGE: a socket's path is too
 * long. places_fini is due also after an error. */
int places_init(struct places *places, const struct config *config, struct loop *const *loops,
                struct embd__error *e);
void places_fini(struct places *places);

#endif
