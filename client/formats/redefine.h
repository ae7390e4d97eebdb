/* redefine.h - a table of a dump or snapshot becomes one of another definition: which fields may
 * differ, and its rows on their way. */
#ifndef EMBD_FORMATS_REDEFINE_H
#define EMBD_FORMATS_REDEFINE_H

#include "embd/embd.h"
#include "proto/initializer.h"
#include "proto/message.h"
#include "proto/schema.h"

/* `from` with the fields set, in their order, into *to. Fields that are set count as if the table
 * had been created so. EMBD_INVALID, EMBD_UNSUPPORTED: the error names the field, and what to do.
 */
int embd__redefine_schema(const struct table_schema *from, const embd_field *fields, uint32_t n,
                          embd_schema *to, struct embd__error *e);

struct redefining {
    /* The caller's. */
    const struct table_schema *from;
    const embd_schema *to;
    /* Ours. */
    bool is_same; /* blocks stay as they are */
    struct initializer initializer;
    uint32_t max_rows;             /* of a piece */
    uint8_t *rows;                 /* [max_rows] */
    float *states;                 /* likewise */
    const struct row_block *block; /* being cut into pieces */
    uint64_t step, second;         /* of rows that did not remember a push of theirs */
    uint32_t at;                   /* rows of it that are done */
    bool is_begun;
};

/* EMBD_NO_MEMORY. `from` and `to` must outlive it. */
int embd__redefine_open(struct redefining *r, const struct table_schema *from,
                        const embd_schema *to, struct embd__error *e);
void embd__redefine_close(struct redefining *r);

/* Begins a block; rows that did not remember a push of theirs take `step`, the table's,
 * or the time of day. */
void embd__redefine_begin(struct redefining *r, const struct row_block *block, uint64_t step);
/* 1: *piece_out is the next piece of it, valid until the next call. 0: there is none. Negative: a
 * value has no place in the new dtype; the error names it. */
int embd__redefine_next(struct redefining *r, struct row_block *piece_out, struct embd__error *e);

#endif
