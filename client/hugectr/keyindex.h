/* keyindex.h - where each of many keys is: to find keys that are there twice, and rows of arrays
 * that are in another order. */
#ifndef EMBD_HUGECTR_KEYINDEX_H
#define EMBD_HUGECTR_KEYINDEX_H

#include "proto/errors.h"

#define KEYINDEX_NONE UINT64_MAX

struct keyindex_cell {
    uint64_t key, number; /* of its row + 1; 0: no key */
};

/* Zero: no memory is held. */
struct keyindex {
    uint64_t mask;
    struct keyindex_cell *cells;
};

/* Room for n keys. EMBD_NO_MEMORY, with `what` in its text. */
int embd__keyindex_open(struct keyindex *index, uint64_t n, const char *what,
                        struct embd__error *e);
void embd__keyindex_close(struct keyindex *index);

/* Adds a key, or returns the row that has it already; else KEYINDEX_NONE. */
uint64_t embd__keyindex_add(struct keyindex *index, uint64_t key, uint64_t row);
/* The row of a key, or KEYINDEX_NONE. */
uint64_t embd__keyindex_find(const struct keyindex *index, uint64_t key);

#endif
