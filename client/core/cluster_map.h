/* cluster_map.h - where the shards of a cluster are: found when a client connects, refreshed when a
 * shard cannot be reached, answers late, or an answer names a newer map. */
#ifndef EMBD_CORE_CLUSTER_MAP_H
#define EMBD_CORE_CLUSTER_MAP_H

#include "client/io/link.h"
#include "client/io/resolve.h"
#include "proto/shard_entry.h"

struct embd_client;
struct client_shard;

/* A text that was replaced; the caller may hold it still, so it stays as long as the handle. */
struct old_text {
    struct old_text *next;
    char text[];
};

/* Owner: the loop's thread, but for opening and closing. */
struct map_refresh {
    struct embd_client *client;
    struct exchange x;
    bool is_asking;
    uint64_t next_ns;   /* not to ask before */
    uint64_t version;   /* of the map we have */
    char *servers;      /* as given to embd_connect: asked where no shard is up */
    uint32_t n_servers; /* of that list */
    uint32_t n_vain;    /* of these, one behind the other, that had no newer map, or no answer */
    uint64_t pause_ns;  /* between the last two attempts */
    bool asks_seed, has_news;
    const char *rest; /* of that list, the next to ask; NULL: from its beginning */
    struct link *seed;
    char seed_address[ADDRESS_TEXT_BYTES];
    uv_timer_t timer;       /* looks at the links while calls wait */
    bool is_open;           /* the timer */
    bool goes_on;           /* the next of the list is asked soon */
    uint64_t asked_late_ns; /* when a late answer last made us ask */
    struct old_text *old;
};

/* Finds the cluster and sets client->shards, without links. EMBD_INVALID: the list cannot be read;
 * and errors of embd_connect. */
int embd__map_find(struct embd_client *client, const char *servers, uint64_t deadline_ns);
/* Keeps the texts of an entry, in one block. EMBD_NO_MEMORY. */
int embd__shard_keep(struct client_shard *shard, const struct shard_entry *entry,
                     struct embd__error *e);
/* The shards of a cluster as a server has it that is no member yet: malloc'd [*n_out], of which the
 * last ones are its own. EMBD_INVALID: it is a member; others as embd_connect. */
int embd__map_of_joining(struct embd_client *client, const char *address,
                         struct shard_entry **list_out, uint32_t *n_out);
/* A link to an address, with the client's options. */
struct link_config embd__link_config(struct embd_client *client, const char *address);
/* Sets address and is_path to the socket of the shard's admin listener where it can be reached from
 * here, else to its port. False: it has neither. */
bool embd__choose_admin(const struct client_shard *shard, struct link_config *config);

/* ---- map_refresh.c ---- */

/* EMBD_NO_MEMORY. */
int embd__map_refresh_open(struct embd_client *client, const char *servers, struct embd__error *e);
/* Before the loop ends; embd__map_refresh_fini after it. */
void embd__map_refresh_close(struct embd_client *client);
void embd__map_refresh_fini(struct embd_client *client);

/* Asks a link that is up. For link_config.on_unreached; arg: the client. */
void embd__map_refresh(void *arg);
/* Asks this link, where a newer version of the map was named. */
void embd__map_refresh_from(struct embd_client *client, struct link *link);

#endif
