/* array.c - see array.h. Files may be many, more than a process may have open: they are opened when
 * their rows are read. */
#include "client/hugectr/array.h"

#include <inttypes.h>
#include <stdlib.h>

/* Opens a file, with something behind its head. */
static int open_file(struct array *a, uint32_t number, struct embd__error *e)
{
    embd__plain_close(&a->file);
    if (embd__plain_open(&a->file, NULL, a->paths[number], e))
        return e->status;
    a->number = number;
    if (a->file.bytes >= a->head_bytes)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s: has %" PRIu64 " bytes, expected a head of %" PRIu32 " bytes",
                           a->file.path, a->file.bytes, a->head_bytes);
}

int embd__array_count(struct array *a, struct embd__error *e)
{
    a->starts = a->own_starts = calloc(a->n_files + 1ull, sizeof *a->own_starts);
    if (!a->own_starts)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %" PRIu32 " files", a->n_files);
    for (uint32_t i = 0; i < a->n_files; i++) {
        if (open_file(a, i, e))
            return e->status;
        uint64_t bytes = a->file.bytes - a->head_bytes;
        if (bytes % a->row_bytes)
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s: has %" PRIu64 " bytes, expected a multiple of %" PRIu64
                                   " after the first %" PRIu32,
                                   a->file.path, a->file.bytes, a->row_bytes, a->head_bytes);
        a->own_starts[i + 1] = a->own_starts[i] + bytes / a->row_bytes;
        a->bytes += a->file.bytes;
    }
    return EMBD_OK;
}

int embd__array_compare(struct array *a, const struct array *keys, struct embd__error *e)
{
    a->starts = keys->starts;
    for (uint32_t i = 0; i < a->n_files; i++) {
        uint64_t rows = a->starts[i + 1] - a->starts[i];
        if (open_file(a, i, e))
            return e->status;
        uint64_t bytes = a->file.bytes - a->head_bytes;
        if (bytes % a->row_bytes || bytes / a->row_bytes != rows)
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s: has %" PRIu64 " bytes, expected %" PRIu64
                                   " for the %" PRIu64 " keys of %s and %" PRIu64 " bytes a row",
                                   a->file.path, a->file.bytes, a->head_bytes + rows * a->row_bytes,
                                   rows, keys->paths[i], a->row_bytes);
        a->bytes += a->file.bytes;
    }
    return EMBD_OK;
}

uint32_t embd__array_file_of(const struct array *a, uint64_t row, uint64_t *row_in_file_out)
{
    uint32_t low = 0, high = a->n_files - 1; /* the first file that ends behind the row */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (a->starts[middle + 1] > row)
            high = middle;
        else
            low = middle + 1;
    }
    *row_in_file_out = row - a->starts[low];
    return low;
}

int embd__array_read(struct array *a, uint64_t row, uint64_t n, void *to, struct embd__error *e)
{
    for (uint8_t *next = to; n > 0;) {
        uint64_t at;
        uint32_t number = embd__array_file_of(a, row, &at);
        uint64_t left = a->starts[number + 1] - row, some = n < left ? n : left;
        if ((a->file.fd < 0 || number != a->number) && open_file(a, number, e))
            return e->status;
        if (embd__plain_read(&a->file, a->head_bytes + at * a->row_bytes, next, some * a->row_bytes,
                             e))
            return e->status;
        next += some * a->row_bytes;
        row += some;
        n -= some;
    }
    return EMBD_OK;
}

void embd__array_close(struct array *a)
{
    embd__plain_close(&a->file);
    free(a->own_starts);
    free(a->raw);
    a->starts = a->own_starts = NULL;
    a->raw = NULL;
}
