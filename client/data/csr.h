/* csr.h - what a CSR builder is made of, for those here who fill one in bulk. */
#ifndef EMBD_DATA_CSR_H
#define EMBD_DATA_CSR_H

#include "proto/errors.h"
#include "embd/data.h"

/* offsets[n_rows] = n_keys at all times, so that the arrays are a whole batch after every call. */
struct embd_csr {
    uint64_t max_rows, max_keys; /* bounds that the user set */
    uint64_t keys_room;          /* keys that there is memory for, up to max_keys */
    uint64_t n_rows, n_keys;
    uint64_t mark_rows, mark_keys; /* at the last check point */
    bool has_weights, mark_has_weights;
    uint64_t *offsets;        /* [max_rows + 1] */
    uint64_t *keys;           /* [keys_room] */
    float *weights;           /* [keys_room], or NULL in a batch that never has any */
    struct embd__error error; /* the last one */
};

/* As embd_csr_new, with memory for `keys_room` keys at first, and for no weights. */
int embd__csr_init(struct embd_csr *csr, uint64_t max_rows, uint64_t max_keys, uint64_t keys_room);
void embd__csr_fini(struct embd_csr *csr);

/* Memory for `n` more keys; for a builder without weights. EMBD_TOO_LARGE, EMBD_NO_MEMORY. */
int embd__csr_make_room(struct embd_csr *csr, uint64_t n);

#endif
