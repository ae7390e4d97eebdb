/* hugectr_source.h - a model folder and its state file as a source of blocks (blocks.h). */
#ifndef EMBD_HUGECTR_HUGECTR_SOURCE_H
#define EMBD_HUGECTR_HUGECTR_SOURCE_H

#include "client/hugectr/blocks.h"
#include "client/hugectr/hugectr_state.h"
#include "embd/hugectr.h"

/* Its members must outlive the blocks. */
struct hugectr_source {
    const struct hugectr_folder *folder;
    const embd_schema *schema;
    const embd_hugectr_options *options;
    struct state_reader *state; /* NULL: states begin as those of new rows */
    const struct blocks *blocks;
};

struct blocks_source embd__hugectr_source(struct hugectr_source *source);

/* The GPU of row `i` of a block. */
uint32_t embd__hugectr_source_gpu(const struct hugectr_source *source, const struct block *block,
                                  uint32_t i);

#endif
