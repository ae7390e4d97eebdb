/* ordered_rows.h - the rows of known keys, in the order of the keys, asked for one run ahead. */
#ifndef EMBD_HUGECTR_ORDERED_ROWS_H
#define EMBD_HUGECTR_ORDERED_ROWS_H

#include "client/hugectr/entries.h"
#include "proto/errors.h"
#include "proto/schema.h"

/* Consecutive entries and their rows. */
struct ordered_run {
    embd_call *call; /* NULL: none under way */
    uint32_t n;
    uint64_t *keys, *offsets; /* [max_rows], [slots + 1] */
    uint8_t *statuses;        /* [max_rows] */
    float *values;            /* [max_rows][dim] */
};

struct ordered_rows {
    embd_client *client;
    embd_table *table;
    const struct table_schema *schema; /* the caller's */
    const struct entry *entries;       /* [n_entries], sorted; the caller's */
    uint64_t n_entries, next;          /* the first that was not asked for */
    uint32_t max_rows;
    struct ordered_run runs[2];
    uint32_t turn; /* the run that is waited for next */
};

/* Asks for the first rows. The tables of the client must not change until the end. Errors are the
 * client's; embd__ordered_close is to be called in any case. */
int embd__ordered_open(struct ordered_rows *o, embd_client *client,
                       const struct table_schema *schema, const struct entry *entries,
                       uint64_t n_entries);

/* The next rows: 1 and *run_out, valid until the next call; 0: the end; negative: an error, also
 * where a key has no row. */
int embd__ordered_next(struct ordered_rows *o, const struct ordered_run **run_out);

/* Waits for what is under way and frees. Zero is allowed. */
void embd__ordered_close(struct ordered_rows *o);

#endif
