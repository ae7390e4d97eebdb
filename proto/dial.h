/* dial.h - the way to a shard of the same process, in the place of an address: a pair of connected
 * sockets; the shard takes one of them. libembd-inproc (server/inproc) has it; clients and the
 * server's own requests to its shards use it. */
#ifndef EMBD_PROTO_DIAL_H
#define EMBD_PROTO_DIAL_H

#include <stdbool.h>

#include "proto/errors.h"

struct dialer {
    /* A connected stream socket that does not block, or a negative status: then no later call will
     * do either. Shards give who comes here every right. Any thread. */
    int (*dial)(const struct dialer *dialer, uint32_t shard, bool is_admin, struct embd__error *e);
    /* Closes what dial has returned. */
    void (*hang_up)(const struct dialer *dialer, int fd);
};

/* The functions that libembd-inproc exports. Both libraries are of one release. */
struct embd__inproc_library {
    const char *version;
    /* Starts the server of this configuration, or shares the one that runs, and waits until it has
     * loaded its tables. `text` is what follows "inproc:". */
    int (*open)(const char *text, const struct dialer **out, struct embd__error *e);
    /* The last user's stops the server, and waits for it. */
    void (*close)(const struct dialer *dialer);
};

#endif
