/* chunk.c - samples in the form that a batch has, and moving them from chunk to chunk.
 *
 * Memory for labels, dense values and offsets is taken at once; that for keys grows to what the
 * data need and then stays. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/chunk.h"
#include "embd/data.h"

static float *floats(uint64_t n)
{
    return malloc((n + !n) * sizeof(float));
}

int embd__chunk_open(struct chunk *c, const struct data_plan *plan, struct embd__error *e)
{
    const embd_data_shape *shape = &plan->shape;
    uint64_t samples = plan->options.batch_samples, rows = samples * shape->slots;
    uint64_t keys = samples * plan->options.sample_keys;
    *c = (struct chunk){0};
    keys = keys > INT32_MAX ? INT32_MAX : keys;
    int status = embd__csr_init(&c->csr, rows, keys, rows < keys ? rows : keys);
    c->labels = floats(samples * shape->label_dim);
    c->dense = floats(samples * shape->dense_dim);
    if (status != EMBD_OK || c->labels == NULL || c->dense == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a batch of %" PRIu64 " samples",
                               samples);
    return EMBD_OK;
}

void embd__chunk_close(struct chunk *c)
{
    embd__csr_fini(&c->csr);
    embd__inputs_free(&c->inputs);
    free(c->labels);
    free(c->dense);
    *c = (struct chunk){0};
}

void embd__chunk_reset(struct chunk *c)
{
    embd_csr_reset(&c->csr);
    c->n_samples = 0;
    c->ends_piece = false;
    c->fault = FAULT_NONE;
    c->why = (struct embd__error){0};
}

static int append_rows(struct embd_csr *to, const struct embd_csr *from, uint64_t row, uint64_t n,
                       struct embd__error *e)
{
    uint64_t begin = from->offsets[row], n_keys = from->offsets[row + n] - begin;
    uint64_t shift = to->n_keys - begin; /* modulo 2^64 */
    to->error.status = EMBD_OK;
    if (embd__csr_make_room(to, n_keys) != EMBD_OK)
        return embd__error_set(e, to->error.status, "%s", to->error.text);
    memcpy(to->keys + to->n_keys, from->keys + begin, n_keys * sizeof *to->keys);
    for (uint64_t i = 1; i <= n; i++)
        to->offsets[to->n_rows + i] = from->offsets[row + i] + shift;
    to->n_keys += n_keys;
    to->n_rows += n;
    return EMBD_OK;
}

int embd__chunk_append(struct chunk *to, const struct chunk *from, uint32_t first, uint32_t n,
                       const embd_data_shape *shape, struct embd__error *e)
{
    size_t label_dim = shape->label_dim, dense_dim = shape->dense_dim;
    uint64_t slots = shape->slots;
    memcpy(to->labels + to->n_samples * label_dim, from->labels + first * label_dim,
           n * label_dim * sizeof(float));
    memcpy(to->dense + to->n_samples * dense_dim, from->dense + first * dense_dim,
           n * dense_dim * sizeof(float));
    int status = append_rows(&to->csr, &from->csr, first * slots, n * slots, e);
    to->n_samples += status == EMBD_OK ? n : 0;
    return status;
}

void embd__chunk_swap(struct chunk *a, struct chunk *b)
{
    struct embd_csr csr = a->csr;
    float *labels = a->labels, *dense = a->dense;
    uint32_t n_samples = a->n_samples;
    a->csr = b->csr;
    a->labels = b->labels;
    a->dense = b->dense;
    a->n_samples = b->n_samples;
    b->csr = csr;
    b->labels = labels;
    b->dense = dense;
    b->n_samples = n_samples;
}

void embd__chunk_show(struct chunk *c)
{
    c->batch = (embd_batch){
        .n_samples = c->n_samples,
        .labels = c->labels,
        .dense = c->dense,
        .n_rows = c->csr.n_rows,
        .offsets = c->csr.offsets,
        .n_keys = c->csr.n_keys,
        .keys = c->csr.keys,
    };
}
