/* blocks.h - the rows of files, block by block, read ahead by a thread: while one block is on its
 * way to the servers, the next ones come from the disk. The layout of the files is a source's. */
#ifndef EMBD_HUGECTR_BLOCKS_H
#define EMBD_HUGECTR_BLOCKS_H

#include <pthread.h>

#include "proto/message.h"
#include "proto/schema.h"

#define BLOCKS_AHEAD 3u

struct block {
    uint64_t first; /* row of the files */
    uint32_t n;
    const char *path; /* of the file of its vectors, set by read_rows; NULL: of blocks */
    /* One allocation: arrays of `capacity` rows. */
    void *memory;
    uint64_t *keys, *wide_slots;
    uint16_t *slots;
    float *vectors, *states;
    uint8_t *rows; /* vectors in the table's dtype, where that is another */
    struct embd__error error;
};

/* The functions that read the files, on the reader thread. Both readers fill the arrays of the
 * block's rows, and set and return the block's error. */
struct blocks_source {
    uint64_t (*rows_from)(void *arg, uint64_t row);   /* that a block beginning there may have */
    int (*read_keys)(void *arg, struct block *block); /* and slots; checked */
    int (*read_rows)(void *arg, struct block *block); /* vectors and states, after the keys */
    void *arg;
};

/* Owner: the thread that opened it; between start and stop the reader thread has the files, and
 * each side the blocks that are its own. */
struct blocks {
    /* The caller's, set before open. */
    const char *path; /* for errors */
    const embd_schema *schema;
    struct blocks_source source;
    uint64_t n_rows;
    /* Ours. */
    uint32_t n_state; /* floats of state beside a row */
    uint32_t capacity;
    struct block ring[BLOCKS_AHEAD];
    bool keys_only;
    pthread_t thread;
    bool has_thread, is_taken; /* a block is with the caller */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t first_full, n_full; /* guarded */
    bool stops;                  /* guarded */
};

/* EMBD_NO_MEMORY; embd__blocks_close is owed in any case. */
int embd__blocks_open(struct blocks *blocks, struct embd__error *e);
/* From the first row on; `keys_only`: neither vectors nor states. */
int embd__blocks_start(struct blocks *blocks, bool keys_only, struct embd__error *e);
/* 1: the next block, checked, is the caller's until the next call; 0: no more; or the error of the
 * files. */
int embd__blocks_next(struct blocks *blocks, const struct block **out, struct embd__error *e);
/* Ends the reader thread. Not started is allowed. */
void embd__blocks_stop(struct blocks *blocks);
void embd__blocks_close(struct blocks *blocks);

/* ---- for sources ---- */

/* Sets the states of the block to those of new rows; of its vectors, with master values. */
void embd__blocks_first_states(const struct blocks *blocks, struct block *block);

/* Whether `values`, `width` for each row of the block, from `file`, are finite or the table admits
 * others: EMBD_NOT_FINITE names the first that is not. */
int embd__blocks_check_finite(const struct blocks *blocks, struct block *block, const char *file,
                              const float *values, uint32_t width);

#endif
