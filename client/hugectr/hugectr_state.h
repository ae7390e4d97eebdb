/* hugectr_state.h - reads a HugeCTR optimizer state file: the state of each GPU's next key. */
#ifndef EMBD_HUGECTR_HUGECTR_STATE_H
#define EMBD_HUGECTR_HUGECTR_STATE_H

#include "embd/hugectr.h"
#include "client/hugectr/hugectr.h"

/* Some rows of one GPU's buffer of one tensor. */
struct state_run {
    float *rows; /* [n][dim]; allocated with its first row */
    uint64_t first, n;
};

struct state_reader {
    struct plain_file file;
    uint32_t dim, n_tensors, n_gpus;
    embd_dtype dtype;
    uint64_t gpu_rows;
    float first;            /* what rows of no key hold, or 0 */
    uint32_t run_rows;      /* most rows of a run */
    struct state_run *runs; /* [n_tensors][n_gpus] */
    uint64_t *next;         /* [n_gpus] rows handed out */
    uint8_t *raw;           /* one run as it lies in the file */
};

/* Opens options->state_file for the table and compares its size with the options. EMBD_CORRUPT,
 * EMBD_UNSUPPORTED, EMBD_IO, EMBD_NO_MEMORY; the reader is closed then. */
int embd__state_open(struct state_reader *r, const embd_schema *schema,
                     const embd_hugectr_options *options, struct embd__error *e);

/* Whether every GPU's keys have a row, and rows without a key have their initial values, which
 * those of a file of another number of GPUs do not; EMBD_CORRUPT names the first GPU that fails.
 * `counts` [n_gpus]. */
int embd__state_check(struct state_reader *r, const uint64_t *counts, struct embd__error *e);

/* The state of the GPU's next key, [n_tensors][dim] as it stands beside a row. */
int embd__state_next(struct state_reader *r, uint32_t gpu, float *to, struct embd__error *e);

/* Closed already is allowed. */
void embd__state_close(struct state_reader *r);

#endif
