/* places.h - where clients reach the shards of the cluster: ours as bound, the others' as the file
 * has them. */
#ifndef EMBD_PLACES_H
#define EMBD_PLACES_H

#include "proto/shard_entry.h"
#include "server/config.h"
#include "server/net/loop.h"

/* [LIMIT_SHARDS] each: they do not move where shards are added. */
struct places {
    char **addresses;
    char **admin_addresses; /* paths of Unix sockets */
    char **admin_hosts;     /* on TCP; "": none */
};

/* `loops` are those of the process, bound. EMBD_NO_MEMORY; EMBD_TOO_LARGE: a socket's path is too
 * long. places_fini is due also after an error. */
int places_init(struct places *places, const struct config *config, struct loop *const *loops,
                struct embd__error *e);
/* Where an added shard is, or one that the file has elsewhere: before anybody counts with it.
 * EMBD_NO_MEMORY. */
/* One more shard of this process, behind those that there are. */
int places_add(struct places *places, const struct config *config, struct loop *const *loops,
               uint32_t shard, struct embd__error *e);
int places_set(struct places *places, uint32_t shard, const struct shard_entry *entry,
               struct embd__error *e);
void places_fini(struct places *places);

#endif
