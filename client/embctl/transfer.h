/* transfer.h - a long operation between a cluster and a directory: connected, its progress shown on
 * a terminal, its outcome reported. */
#ifndef EMBCTL_TRANSFER_H
#define EMBCTL_TRANSFER_H

#include "client/embctl/embctl.h"
#include "embd/admin.h"

struct transfer {
    const char *what;  /* as the report calls it */
    const char *place; /* the directory */
    const char *label,
        *next_label; /* of its progress, and of a second pass; next_label may be NULL */
    bool has_pause;  /* pushes had to wait */
    bool is_offline; /* asks no server: `client` is NULL then */
    bool is_ahead;   /* answers come in while the ones before are worked on */
    uint64_t wait_s; /* so long it is tried again while another job runs (EMBD_BUSY) */
    /* The operation; `progress` and its argument go to the library. */
    int (*run)(embd_client *client, void *arg, embd_progress *progress, void *told,
               embd_dump_report *report);
};

/* Returns an exit code. */
int transfer_run(const struct transfer *t, void *arg);

#endif
