/* data_plan.h - the files and pieces to read, fixed before the first thread starts; threads only
 * look at it.
 *
 * The data are in pieces: a norm file is one, a raw file is cut into stretches of samples. Pieces
 * are read in parallel, each by one thread from its beginning to its end. */
#ifndef EMBD_DATA_DATA_PLAN_H
#define EMBD_DATA_DATA_PLAN_H

#include "embd/data.h"
#include "client/data/file_list.h"

/* How many keys a slot may have in a sample. */
struct slot_keys {
    uint32_t least, most;
};

struct data_plan {
    embd_data_shape shape;
    embd_reader_options options; /* slot_sizes and inputs: copies that the plan owns */
    struct slot_keys *slot_keys; /* [slots], or NULL without inputs */
    struct file_list files;      /* norm: those of this worker; raw: the one file */
    uint64_t n_pieces;
    uint64_t piece_samples; /* raw: of all pieces but the last */
    uint64_t n_samples;     /* raw: of the file */
    uint64_t fixed_bytes;   /* of a sample's labels and dense values */
    uint64_t key_bytes;     /* of one key */
    uint64_t sample_min;    /* bytes of a sample without keys */
    uint64_t sample_max;    /* bytes of a sample with as many keys as the options allow */
};

/* Also for writers. EMBD_INVALID names the dimension and its limit. */
/* Copies the caller's shape. EMBD_INVALID: its struct_bytes. */
int embd__data_shape_take(embd_data_shape *own, const embd_data_shape *given,
                          struct embd__error *e);
int embd__data_shape_check(const embd_data_shape *shape, struct embd__error *e);

/* EMBD_INVALID, EMBD_IO, EMBD_CORRUPT, EMBD_NO_MEMORY. Close the plan after a failure too. */
int embd__data_plan_open(struct data_plan *plan, const char *const *paths, uint32_t n_paths,
                         const embd_data_shape *shape, const embd_reader_options *options,
                         struct embd__error *e);
void embd__data_plan_close(struct data_plan *plan);

#endif
