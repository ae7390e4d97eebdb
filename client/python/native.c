/* native.c - the C side of the Python package beyond embd.h: rows of a directory on their way into
 * numpy arrays, without a call into Python for each. The arrays are made after a first look at the
 * directory, so one that changes in between is noticed: visits then end with 1. */
#include <embd/data.h>
#include <embd/device.h>
#include <embd/hugectr.h>
#include <embd/job.h>
#include <embd/rows.h>
#include <embd/sync.h>
#include <stdlib.h>
#include <string.h>
#include "embd/admin.h"

typedef struct row_taker {
    uint64_t room, n_rows; /* rows beyond the room are passed over */
    uint32_t dim;
    uint64_t *keys;  /* [room] */
    uint32_t *slots; /* [room] */
    float *values;   /* [room][dim] */
} row_taker;

typedef struct row_takers { /* one for each table, in their order */
    uint64_t n_takers, n_begun;
    row_taker *takers;
} row_takers;

static int embd_python_next_table(void *arg, const embd_stored_table *table)
{
    row_takers *all = arg;
    uint32_t dim = table->schema ? table->schema->dim : table->dim;
    if (all->n_begun == all->n_takers || all->takers[all->n_begun].dim != dim)
        return 1;
    all->n_begun++;
    return 0;
}

static int embd_python_take_row(void *arg, const embd_stored_table *table, uint32_t slot,
                                uint64_t key, const float *values)
{
    row_takers *all = arg;
    row_taker *t = &all->takers[all->n_begun - 1];
    (void)table;
    if (t->n_rows == t->room)
        return 0;
    t->keys[t->n_rows] = key;
    t->slots[t->n_rows] = slot;
    memcpy(t->values + t->n_rows * t->dim, values, t->dim * sizeof *values);
    t->n_rows++;
    return 0;
}
