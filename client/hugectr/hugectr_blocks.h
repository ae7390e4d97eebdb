/* hugectr_blocks.h - the rows of a model folder, block by block, read ahead by a thread: while one
 * block is on its way to the servers, the next ones come from the disk. */
#ifndef EMBD_HUGECTR_HUGECTR_BLOCKS_H
#define EMBD_HUGECTR_HUGECTR_BLOCKS_H

#include <pthread.h>

#include "embd/hugectr.h"
#include "client/hugectr/hugectr_state.h"
#include "proto/message.h"
#include "proto/schema.h"

#define HUGECTR_BLOCKS_AHEAD 3u

struct hugectr_block {
    uint64_t first; /* row of the folder */
    uint32_t n;
    /* One allocation: arrays of `capacity` rows. */
    void *memory;
    uint64_t *keys, *wide_slots;
    uint16_t *slots;
    float *vectors, *states;
    uint8_t *rows; /* vectors in the table's dtype, where that is another */
    struct embd__error error;
};

/* Owner: the thread that opened it; between start and stop the reader thread has the files, and
 * each side the blocks that are its own. */
struct hugectr_blocks {
    /* The caller's, set before open. */
    const struct hugectr_folder *folder;
    const char *path;
    const embd_schema *schema;
    const embd_hugectr_options *options;
    struct state_reader *state; /* NULL: states begin as those of new rows */
    /* Ours. */
    uint32_t n_state; /* floats of state beside a row */
    uint32_t capacity;
    struct hugectr_block ring[HUGECTR_BLOCKS_AHEAD];
    bool keys_only;
    pthread_t thread;
    bool has_thread, is_taken; /* a block is with the caller */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t first_full, n_full; /* guarded */
    bool stops;                  /* guarded */
};

/* EMBD_NO_MEMORY; embd__blocks_close is owed in any case. */
int embd__blocks_open(struct hugectr_blocks *blocks, struct embd__error *e);
/* From the first row on; `keys_only`: neither vectors nor states. */
int embd__blocks_start(struct hugectr_blocks *blocks, bool keys_only, struct embd__error *e);
/* 1: the next block, checked, is the caller's until the next call; 0: no more; or the error of the
 * files. */
int embd__blocks_next(struct hugectr_blocks *blocks, const struct hugectr_block **out,
                      struct embd__error *e);
/* Ends the reader thread. Not started is allowed. */
void embd__blocks_stop(struct hugectr_blocks *blocks);
void embd__blocks_close(struct hugectr_blocks *blocks);

uint32_t embd__blocks_gpu(const struct hugectr_blocks *blocks, const struct hugectr_block *block,
                          uint32_t i);

#endif
