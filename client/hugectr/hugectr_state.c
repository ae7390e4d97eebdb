/* hugectr_state.c - reads a HugeCTR optimizer state file, following the keys of each GPU.
 *
 * The file is one buffer after the other, by tensor and then by GPU, and the k-th key of a GPU has
 * row k in each of its buffers. Keys are usually in the order of the GPUs, but need not be: so each
 * buffer is read in runs of rows, and keeps its own place. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/convert.h"
#include "client/hugectr/hugectr_state.h"
#include "embd/hugectr.h"

#define RUN_BYTES     (64u << 10)
#define UNUSED_VALUES 4096u /* looked at together */

/* Compares the size with what was said of the job; fills in gpu_rows where nothing was said. */
static int check_size(struct state_reader *r, struct embd__error *e)
{
    uint64_t element = embd__dtype_bytes(r->dtype);
    uint64_t per_row = (uint64_t)r->n_tensors * r->n_gpus * r->dim * element; /* < 2^36 */
    if (r->gpu_rows == 0 && r->file.bytes % per_row == 0)
        r->gpu_rows = r->file.bytes / per_row;
    else if (r->gpu_rows == 0)
        return embd__error_set(
            e, EMBD_CORRUPT,
            "%s: has %" PRIu64 " bytes, expected a multiple of %" PRIu64 " = %" PRIu32
            " tensors * %" PRIu32 " GPUs * dim %" PRIu32 " * %" PRIu64 " bytes",
            r->file.path, r->file.bytes, per_row, r->n_tensors, r->n_gpus, r->dim, element);
    uint64_t expected = r->gpu_rows * per_row; /* gpu_rows < 2^32 where it was given */
    if (r->file.bytes % per_row == 0 && r->file.bytes / per_row == r->gpu_rows)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s: has %" PRIu64 " bytes, expected %" PRIu64 " = %" PRIu32
                           " tensors * %" PRIu32 " GPUs * %" PRIu64 " rows * dim %" PRIu32
                           " * %" PRIu64 " bytes",
                           r->file.path, r->file.bytes, expected, r->n_tensors, r->n_gpus,
                           r->gpu_rows, r->dim, element);
}

static int allocate(struct state_reader *r, struct embd__error *e)
{
    size_t row_bytes = r->dim * sizeof(float);
    r->run_rows = row_bytes < RUN_BYTES ? (uint32_t)(RUN_BYTES / row_bytes) : 1;
    r->runs = calloc((size_t)r->n_tensors * r->n_gpus, sizeof *r->runs);
    r->next = calloc(r->n_gpus, sizeof *r->next);
    r->raw = malloc(r->run_rows * row_bytes);
    if (!r->runs || !r->next || !r->raw)
        return embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory to read it", r->file.path);
    return EMBD_OK;
}

/* The value that a row starts with, rounded as the file is. */
static float first_value(const embd_schema *schema, embd_dtype dtype)
{
    uint8_t rounded[sizeof(float)];
    float value = schema->optimizer.kind == EMBD_OPTIMIZER_ADAGRAD
                      ? schema->optimizer.initial_accumulator
                      : 0.0f;
    embd__from_f32(rounded, dtype, &value, 1);
    embd__to_f32(&value, rounded, dtype, 1);
    return value;
}

int embd__state_open(struct state_reader *r, const embd_schema *schema,
                     const embd_hugectr_options *options, struct embd__error *e)
{
    *r = (struct state_reader){.file = {.fd = -1},
                               .dim = schema->dim,
                               .n_gpus = options->n_gpus,
                               .dtype = options->state_dtype,
                               .gpu_rows = options->gpu_rows,
                               .first = first_value(schema, options->state_dtype)};
    if (embd__hugectr_tensors(schema, &r->n_tensors, e) ||
        embd__plain_open(&r->file, NULL, options->state_file, e) || check_size(r, e) ||
        allocate(r, e))
        embd__state_close(r);
    return e->status;
}

/* ---- rows without a key ---- */

/* Where the file has bytes from `at` on: holes, which read as zeros, are passed over. At most
 * `end`. */
static uint64_t next_data(const struct state_reader *r, uint64_t at, uint64_t end)
{
    off_t data = lseek(r->file.fd, (off_t)at, SEEK_DATA);
    if (data < 0)
        return errno == ENXIO ? end : at;
    uint64_t element = embd__dtype_bytes(r->dtype), found = (uint64_t)data / element * element;
    return found > end ? end : found > at ? found : at;
}

/* The first of n values that cannot belong to a row without a key; n: none. */
static uint64_t find_used(const struct state_reader *r, const float *values, uint64_t n)
{
    uint64_t at = 0;
    while (at < n && (values[at] == 0.0f || values[at] == r->first))
        at++;
    return at;
}

/* Values of one buffer behind its n keys. */
static int check_unused(struct state_reader *r, uint32_t tensor, uint32_t gpu, uint64_t n,
                        struct embd__error *e)
{
    uint64_t element = embd__dtype_bytes(r->dtype), row = r->dim * element;
    uint64_t begin = ((uint64_t)tensor * r->n_gpus + gpu) * r->gpu_rows * row;
    uint64_t at = begin + n * row, end = begin + r->gpu_rows * row;
    float values[UNUSED_VALUES];
    uint8_t raw[sizeof values];
    while ((at = next_data(r, at, end)) < end) {
        uint64_t left = (end - at) / element, some = left < UNUSED_VALUES ? left : UNUSED_VALUES;
        if (embd__plain_read(&r->file, at, raw, some * element, e))
            return e->status;
        embd__to_f32(values, raw, r->dtype, some);
        uint64_t used = find_used(r, values, some);
        if (used < some)
            return embd__error_set(
                e, EMBD_CORRUPT,
                "%s: GPU %" PRIu32 " of %" PRIu32 " has %" PRIu64 " keys, and row %" PRIu64
                " behind them holds %g instead of %g: was it written by another number of GPUs?",
                r->file.path, gpu, r->n_gpus, n, (at + used * element - begin) / row,
                (double)values[used], (double)r->first);
        at += some * element;
    }
    return EMBD_OK;
}

int embd__state_check(struct state_reader *r, const uint64_t *counts, struct embd__error *e)
{
    for (uint32_t gpu = 0; gpu < r->n_gpus; gpu++)
        if (counts[gpu] > r->gpu_rows)
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s: has %" PRIu64 " rows a GPU, but GPU %" PRIu32 " of %" PRIu32
                                   " has %" PRIu64 " keys",
                                   r->file.path, r->gpu_rows, gpu, r->n_gpus, counts[gpu]);
    for (uint32_t tensor = 0; tensor < r->n_tensors; tensor++)
        for (uint32_t gpu = 0; gpu < r->n_gpus; gpu++)
            if (check_unused(r, tensor, gpu, counts[gpu], e))
                return e->status;
    return EMBD_OK;
}

/* ---- rows of keys ---- */

/* The run that holds `row` of a buffer. */
static int read_run(struct state_reader *r, uint32_t tensor, uint32_t gpu, uint64_t row,
                    struct embd__error *e)
{
    struct state_run *run = &r->runs[tensor * r->n_gpus + gpu];
    uint64_t left = r->gpu_rows - row, row_bytes = r->dim * embd__dtype_bytes(r->dtype);
    uint64_t buffer = (uint64_t)tensor * r->n_gpus + gpu;
    if (!run->rows && !(run->rows = malloc(r->run_rows * r->dim * sizeof(float))))
        return embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory to read it", r->file.path);
    uint64_t n = left < r->run_rows ? left : r->run_rows;
    if (embd__plain_read(&r->file, (buffer * r->gpu_rows + row) * row_bytes, r->raw, n * row_bytes,
                         e))
        return e->status;
    embd__to_f32(run->rows, r->raw, r->dtype, n * r->dim);
    run->first = row;
    run->n = n;
    return EMBD_OK;
}

int embd__state_next(struct state_reader *r, uint32_t gpu, float *to, struct embd__error *e)
{
    uint64_t row = r->next[gpu]++;
    for (uint32_t tensor = 0; tensor < r->n_tensors; tensor++) {
        struct state_run *run = &r->runs[tensor * r->n_gpus + gpu];
        if (row >= run->first + run->n && read_run(r, tensor, gpu, row, e))
            return e->status;
        memcpy(to + tensor * r->dim, run->rows + (row - run->first) * r->dim, r->dim * sizeof *to);
    }
    return EMBD_OK;
}

void embd__state_close(struct state_reader *r)
{
    for (uint32_t i = 0; r->runs && i < r->n_tensors * r->n_gpus; i++)
        free(r->runs[i].rows);
    free(r->runs);
    free(r->next);
    free(r->raw);
    embd__plain_close(&r->file);
    *r = (struct state_reader){.file = {.fd = -1}};
}
