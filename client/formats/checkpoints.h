/* checkpoints.h - a job's checkpoints as they lie in the data directories of all server processes.
 *
 * A checkpoint is a snapshot; each process that served when it was made has a share of it. Others
 * have none: a follower, whose server's other processes have theirs, or a server that came later.
 * So the shares of one snapshot are looked for in all directories, by its number. */
#ifndef EMBD_FORMATS_CHECKPOINTS_H
#define EMBD_FORMATS_CHECKPOINTS_H

#include <stdint.h>
#include <sys/types.h>

#include "proto/errors.h"

#define CHECKPOINT_NAME_BYTES 65u
#define CHECKPOINT_PATH_BYTES 4096u

struct checkpoint_share {
    uint64_t id, sequence; /* of the snapshot */
    uint32_t directory;
    dev_t device; /* of the directory that it lies in */
    ino_t inode;
    char name[CHECKPOINT_NAME_BYTES]; /* of the snapshot */
};

struct checkpoints {
    const char *job;
    const char *const *directories; /* [n_directories] */
    uint32_t n_directories;
    struct checkpoint_share *shares; /* [n_shares] that were found; zero at first */
    uint32_t n_shares;
};

/* One whose shares are there for all shards. */
struct checkpoint {
    const struct checkpoint_share *shares; /* [n_shares] of `checkpoints`; NULL: there is none */
    uint32_t n_shares;
    char path[CHECKPOINT_PATH_BYTES]; /* to read from */
    char *temporary;                  /* a directory of links; NULL: none was needed */
    uint32_t n_links;
};

/* The newest that is complete. EMBD_IO, EMBD_CORRUPT: a directory, or a checkpoint of the job,
 * cannot be read. EMBD_INVALID: there are no directories; or there are checkpoints behind the first
 * step, and none is complete: then a job that began anew would lose them. `out` is to be left in
 * any case, before `c`. */
int embd__checkpoints_newest(struct checkpoints *c, struct checkpoint *out, struct embd__error *e);
void embd__checkpoint_leave(struct checkpoint *found);
void embd__checkpoints_fini(struct checkpoints *c);

/* Where a share of it lies. EMBD_IO: the path is too long. */
int embd__checkpoint_path(const struct checkpoints *c, const struct checkpoint_share *share,
                          char out[CHECKPOINT_PATH_BYTES], struct embd__error *e);

#endif
