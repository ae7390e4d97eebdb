/* arrays_source.h - a table's arrays in files as a source of blocks (blocks.h). */
#ifndef EMBD_HUGECTR_ARRAYS_SOURCE_H
#define EMBD_HUGECTR_ARRAYS_SOURCE_H

#include "client/hugectr/array.h"
#include "client/hugectr/blocks.h"
#include "client/hugectr/keyindex.h"
#include "embd/arrays.h"

/* A state: its rows are the table's, or found by key. */
struct arrays_state {
    struct array values, keys; /* keys: where it has its own */
    struct keyindex index;     /* of these */
    uint32_t width, at;        /* floats of a row, and where they are in the table's state */
    embd_dtype dtype;
    bool has_keys;
    float *floats; /* of some rows */
};

struct arrays_source {
    const embd_arrays *given;
    const embd_schema *schema;
    const struct blocks *blocks;
    struct array keys, values, scores;
    struct arrays_state states[EMBD_ARRAYS_STATES_MAX];
    uint64_t bytes; /* of all files */
};

/* Opens all files and compares their sizes. `blocks` must be open before rows are read. EMBD_*
 * statuses of embd_arrays_import. embd__arrays_close is owed in any case; zero is allowed. */
int embd__arrays_open(struct arrays_source *s, const embd_arrays *given, const embd_schema *schema,
                      struct embd__error *e);
void embd__arrays_close(struct arrays_source *s);

/* Reads the keys of states that have their own, and compares them with the table's, where `rows` is
 * open. */
int embd__arrays_index_states(struct arrays_source *s, const struct keyindex *rows,
                              struct embd__error *e);

/* Keys of an array that begin at `row`, as they are here. */
int embd__arrays_read_keys(struct array *array, embd_arrays_key kind, uint64_t row, uint32_t n,
                           uint64_t *to, struct embd__error *e);

/* Adds keys of rows from `first` on. EMBD_CORRUPT: one is there already; names both places. */
int embd__arrays_add_keys(struct keyindex *index, const struct array *array, uint64_t first,
                          const uint64_t *keys, uint32_t n, struct embd__error *e);

struct blocks_source embd__arrays_source(struct arrays_source *source);

#endif
