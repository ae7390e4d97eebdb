/* chosen.h - the keys of one slot of a table that a command line names: TABLE KEY... and --slot. */
#ifndef EMBCTL_CHOSEN_H
#define EMBCTL_CHOSEN_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include "embd/embd.h"

struct chosen {
    const char *table;
    uint64_t slot;
    uint64_t *keys; /* [n] */
    size_t n;
    bool takes_part; /* of the cluster: shards that do not answer are passed over */
};

/* Stands in the options of a command. */
#define CHOSEN_SLOT                                                                                \
    {                                                                                              \
        "slot", 'S', "N", 0, "Slot the keys belong to (default: 0)", 0                             \
    }

/* A command's parser calls it for options that it does not know itself. */
int chosen_parse(struct chosen *chosen, int key, char *arg, struct argp_state *state);

/* Connects, and calls act with a part that has the keys and room for their statuses; the values are
 * act's business. Returns an exit code; act
 * returns a status of libembd's, or CHOSEN_TOLD: a shard did not answer, and act has said so. */
#define CHOSEN_TOLD 1
int chosen_run(const struct chosen *chosen,
               int (*act)(embd_client *client, embd_part *part, const void *arg), const void *arg);

void chosen_fini(struct chosen *chosen);

#endif
