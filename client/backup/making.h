/* making.h - the making of a backup, for the files that share it: backup_plan.c, which chooses what
 * it is upon and which older ones go, and backup_make.c, which does the rest. */
#ifndef EMBD_BACKUP_MAKING_H
#define EMBD_BACKUP_MAKING_H

#include "client/backup/record.h"
#include "proto/stored/ticker.h"

/* The base of an increment. */
struct upon {
    char name[BACKUP_NAME_BYTES];
    uint64_t id;
};

struct making {
    embd_client *client;
    const struct backup_order *order;
    struct place *place;
    struct embd__error *e;
    struct record record;
    struct upon upon[2]; /* backups that it may be upon, the best first; id 0: none */
    struct ticker ticker;
    uint8_t *buffer; /* [PLACE_PIECE_BYTES] */
    uint64_t pause_us;
    bool is_due;    /* all rows are */
    uint32_t shard; /* whose files are copied */
};

/* The error of a function of libembd. */
int making_fail(struct making *m, int status);

/* Its name, time, scope and cluster, and what it may be upon. EMBD_EXISTS, EMBD_INVALID: the place
 * is of another cluster; errors of the place and of shard 0. */
int making_plan(struct making *m);
/* It is complete: older ones go, as the order says. */
int making_keep(struct making *m, struct backup_made *out);

#endif
