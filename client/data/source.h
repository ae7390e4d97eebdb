/* source.h - the pieces of a data set, read one after another into chunks. */
#ifndef EMBD_DATA_SOURCE_H
#define EMBD_DATA_SOURCE_H

#include "client/data/chunk.h"
#include "client/data/stream.h"
#include "embd/data.h"

/* Owner: one reader thread. */
struct source {
    const struct data_plan *plan; /* the reader's */
    struct stream stream;
    bool is_open;    /* a piece is being read */
    uint64_t sample; /* the next one: in a norm file, or of the raw file */
    uint64_t end;    /* behind the last one of the piece */
};

int embd__source_init(struct source *source, const struct data_plan *plan, struct embd__error *e);
void embd__source_fini(struct source *source);

/* Fills the chunk with the next samples of a piece, up to a batch or a fault; ends_piece with the
 * last ones. A piece is read to its end before another begins. */
void embd__source_fill(struct source *source, uint64_t piece, struct chunk *chunk);

#endif
