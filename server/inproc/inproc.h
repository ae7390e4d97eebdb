/* inproc.h - libembd-inproc: embd within another program, for jobs on one host.
 *
 * A server here is the whole server: its shards, journal and coordinator, opened and closed as the
 * program does it (server/opening.c, running.c), on threads of its own. Peers come over pairs of
 * sockets (loop_adopt) in the place of ports.
 *
 * The program around it keeps what is its own: signals (all are blocked in the server's threads),
 * limits, the umask, the working directory (paths are made absolute at the start), standard output,
 * the service manager. What would end the server's process fails all servers of this one instead:
 * calls of their handles fail from then on, and their threads stand still. */
#ifndef EMBD_INPROC_INPROC_H
#define EMBD_INPROC_INPROC_H

#include <pthread.h>

#include "proto/dial.h"
#include "server/process.h"

enum inproc_state {
    INPROC_STARTING, /* its tables are being loaded */
    INPROC_RUNNING,
    INPROC_STOPPING,
    INPROC_ENDED,  /* its thread is over: it could not start, was drained or stopped */
    INPROC_FAILED, /* threads stand still: it stays as it is until the process ends */
};

struct inproc {
    struct dialer dialer; /* what its users have of it */
    struct inproc *next;
    char *text; /* of its configuration; the same text is the same server */
    pthread_t thread;
    /* Guarded by inproc_mutex: */
    enum inproc_state state;
    uint32_t n_users;
    bool is_inherited;        /* this process was forked from the one where it runs */
    bool is_closing;          /* its shards have ended, and its loops are there no more */
    struct embd__error error; /* why it is not running */
    int *fds;                 /* [n_fds] that users have */
    uint32_t n_fds, capacity;
    struct process process; /* of its thread */
};

/* configuration.c: reads the text behind "inproc:". EMBD_INVALID, EMBD_UNSUPPORTED and others name
 * the setting. *out is zero then. */
int inproc_config_read(const char *text, struct config *out, struct embd__error *e);

/* ---- dialing.c: a user's sockets; with the mutex, but for dial and hang_up themselves ---- */

extern pthread_mutex_t inproc_mutex; /* one for all servers of the process */
void inproc_lock(void);
void inproc_unlock(void);

int inproc_dial(const struct dialer *dialer, uint32_t shard, bool is_admin, struct embd__error *e);
void inproc_hang_up(const struct dialer *dialer, int fd);
/* Users see the end of their connections. */
void inproc_cut(struct inproc *s);
/* In a forked child: its descriptors of the parent's server close, so that the child keeps neither
 * locks nor connections of it. */
void inproc_forget(struct inproc *s);

#endif
