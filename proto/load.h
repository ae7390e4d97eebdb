/* load.h - the fields of a load, as a request and as a journal's record have them. The block of
 * rows follows them (message.h): the table's schema says how many bytes a row has. */
#ifndef EMBD_PROTO_LOAD_H
#define EMBD_PROTO_LOAD_H

#include "proto/message.h"

struct load_fields {
    char table[EMBD_NAME_MAX + 1];
    uint32_t n_rows, n_candidates;
    bool is_gone; /* its candidates are keys to be forgotten */
    bool has_step;
    uint64_t step;   /* the table's, after it */
    uint64_t staged; /* id of the set of staged tables that it is in; 0: it is in none */
};

void embd__load_fields_write(struct msg *m, const struct load_fields *load);
/* EMBD_INVALID, EMBD_MALFORMED: naming the field; a step beyond max_step. */
int embd__load_fields_read(struct reader *r, uint64_t max_step, struct load_fields *out);

#endif
