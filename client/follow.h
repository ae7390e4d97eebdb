/* follow.h - clients go where shards went: when a shard cannot be reached, another one is asked
 * whether the map of the cluster has changed; and one whose answer tells a newer map is asked for
 * it. Owner: the loop's thread, but for opening and closing. */
#ifndef EMBD_CLIENT_FOLLOW_H
#define EMBD_CLIENT_FOLLOW_H

#include "client/link/link.h"
#include "client/link/resolve.h"

struct embd_client;

/* A text that was replaced; the caller may hold it still, so it stays as long as the handle. */
struct old_text {
    struct old_text *next;
    char text[];
};

struct follower {
    struct embd_client *client;
    struct exchange x;
    bool is_asking;
    uint64_t next_ns; /* not to ask before */
    uint64_t version; /* of the map we have */
    char *servers;    /* as given to embd_connect: asked where no shard is up */
    const char *rest; /* of that list, to be asked next; NULL: from its beginning */
    struct link *seed;
    char seed_address[ADDRESS_TEXT_BYTES];
    uv_timer_t watch;       /* looks at the links while calls wait */
    bool is_watching;       /* it is open */
    uint64_t asked_late_ns; /* when a late answer last made us ask */
    struct old_text *old;
};

/* EMBD_NO_MEMORY. */
int embd__follow_open(struct embd_client *client, const char *servers, struct embd__error *e);
/* Before the loop ends; embd__follow_fini after it. */
void embd__follow_close(struct embd_client *client);
void embd__follow_fini(struct embd_client *client);

/* For link_config.on_unreached; arg: the client. */
void embd__follow(void *arg);
/* An answer that came over `link` tells this version of the map; 0: it tells none. */
void embd__follow_told(struct embd_client *client, struct link *link, uint64_t version);

#endif
