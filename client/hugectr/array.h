/* array.h - an array of rows that lies in one or several files, one after the other. */
#ifndef EMBD_HUGECTR_ARRAY_H
#define EMBD_HUGECTR_ARRAY_H

#include "proto/stored/plainfile.h"

/* One file is open at a time: rows are read in their order, or nearly so. */
struct array {
    const char *const *paths; /* [n_files], the caller's */
    uint32_t n_files;
    uint32_t head_bytes; /* of each file */
    uint64_t row_bytes;
    const uint64_t *starts; /* [n_files + 1] rows in front of each file, and all of them */
    uint64_t *own_starts;   /* the same, where this array found them */
    uint64_t bytes;         /* of all files */
    uint32_t number;        /* of the open file */
    struct plain_file file;
    uint8_t *raw; /* for who converts rows; freed with the array */
};

/* Each opens all files once, for their sizes. EMBD_CORRUPT (missing, no regular file, or of another
 * size; names the file and the numbers), EMBD_IO, EMBD_NO_MEMORY. embd__array_close is owed.
 *
 * Counts the rows of each file. */
int embd__array_count(struct array *array, struct embd__error *e);
/* Compares each file with the rows of `keys`. */
int embd__array_compare(struct array *array, const struct array *keys, struct embd__error *e);

/* Rows from `row` on, `n` of them, as they lie. */
int embd__array_read(struct array *array, uint64_t row, uint64_t n, void *to,
                     struct embd__error *e);

/* The number of the file that has a row, and the row's number in it. */
uint32_t embd__array_file_of(const struct array *array, uint64_t row, uint64_t *row_in_file_out);

static inline uint64_t embd__array_rows(const struct array *array)
{
    return array->starts[array->n_files];
}

/* Where the array has no open file, file.fd is -1. Closed already is allowed, zero is not. */
void embd__array_close(struct array *array);

#endif
