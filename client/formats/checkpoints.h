/* checkpoints.h - a job's checkpoints as they lie in the data directories of all server
 * processes. */
#ifndef EMBD_FORMATS_CHECKPOINTS_H
#define EMBD_FORMATS_CHECKPOINTS_H

#include <stdint.h>

#include "proto/errors.h"

#define CHECKPOINT_NAME_BYTES 65u
#define CHECKPOINT_PATH_BYTES 4096u

struct checkpoints {
    const char *job;
    const char *const *directories; /* [n_directories] */
    uint32_t n_directories;
};

/* The newest that is complete in all directories; "": there is none. EMBD_IO, EMBD_INVALID: there
 * are no directories. */
int embd__checkpoints_newest(const struct checkpoints *c, char out[CHECKPOINT_NAME_BYTES],
                             struct embd__error *e);

/* One directory with the shares of all processes. */
struct gathered {
    char path[CHECKPOINT_PATH_BYTES]; /* to read from */
    char *temporary;                  /* a directory of links; NULL: none was needed */
    uint32_t n_links;
};

/* EMBD_IO. It is to be scattered in any case. */
int embd__checkpoints_gather(const struct checkpoints *c, const char *name, struct gathered *g,
                             struct embd__error *e);
void embd__checkpoints_scatter(struct gathered *g);

#endif
