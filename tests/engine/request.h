/* request.h - a drawn pull, push or erase: an operation, and the same for the models. */
#ifndef EMBD_TESTS_ENGINE_REQUEST_H
#define EMBD_TESTS_ENGINE_REQUEST_H

#include "tests/engine/world.h"

enum {
    PARTS = 3,
    ROWS_MOST = 24,
    ROW_KEYS = 3,
    DIM_MOST = 9,
    KEYS_MOST = ROWS_MOST * ROW_KEYS,
    VALUES_MOST = 3 * ROWS_MOST * DIM_MOST * 4 /* with pull_wide_bytes */
};

struct request {
    struct op op;
    uint32_t n_parts, tables[PARTS];
    struct batch batches[PARTS];
    float grads[PARTS][ROWS_MOST * DIM_MOST];      /* as they are on the wire */
    _Alignas(64) uint8_t wire[PARTS][VALUES_MOST]; /* gradients, or a pull's values */
    uint32_t stream;                               /* of a numbered push */
};

/* Tables of a request: `are_different`, and mostly all journaled or none. */
void request_draw_tables(struct world *w, struct request *r, bool are_different);
/* The parts for them, checked (check.h). */
void request_draw(struct world *w, struct request *r, enum op_kind kind);
/* Frees what request_draw took. */
void request_done(struct request *r);
/* Frees all. */
void request_fini(struct request *r);

bool request_is_mixed(const struct world *w, const struct request *r);
/* Compares the statuses of a part where it has any. */
void request_compare_statuses(const struct request *r, uint32_t part, const uint8_t *expected);

#endif
