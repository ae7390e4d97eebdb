/* raw_sample.c - the bytes of a raw file: every sample has the same length, every slot one key. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/data/sample.h"
#include "embd/data.h"

static int32_t load(const uint8_t *p)
{
    int32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* Counts, as they stand in click logs: labels are taken as they are, dense values as logarithms. */
static enum verdict decode_integers(const embd_data_shape *shape, const uint8_t *p, float *labels,
                                    float *dense, struct embd__error *why)
{
    for (uint32_t i = 0; i < shape->label_dim; i++, p += sizeof(int32_t))
        labels[i] = (float)load(p);
    for (uint32_t i = 0; i < shape->dense_dim; i++, p += sizeof(int32_t)) {
        int32_t value = load(p);
        if (value < 0) {
            embd__error_set(why, EMBD_CORRUPT,
                            "dense value %" PRIu32 " is %" PRId32 "; it must not be negative", i,
                            value);
            return SAMPLE_BAD;
        }
        dense[i] = logf((float)value + 1);
    }
    return SAMPLE_GOOD;
}

static enum verdict take_key(const struct data_plan *plan, struct embd_csr *csr, uint32_t slot,
                             int32_t key, struct embd__error *why)
{
    const uint64_t *sizes = plan->options.slot_sizes;
    uint64_t size = sizes != NULL ? sizes[slot] : (uint64_t)INT32_MAX + 1;
    if (key < 0 || (uint64_t)key >= size) {
        embd__error_set(why, EMBD_CORRUPT,
                        "slot %" PRIu32 " has key %" PRId32 "; its size is %" PRIu64, slot, key,
                        size);
        return SAMPLE_BAD;
    }
    csr->keys[csr->n_keys++] = (uint64_t)key;
    csr->offsets[++csr->n_rows] = csr->n_keys;
    return SAMPLE_GOOD;
}

enum verdict embd__raw_decode(const struct data_plan *plan, const uint8_t *p, struct chunk *c,
                              struct embd__error *why)
{
    const embd_data_shape *shape = &plan->shape;
    float *labels = c->labels + (size_t)c->n_samples * shape->label_dim;
    float *dense = c->dense + (size_t)c->n_samples * shape->dense_dim;
    const uint8_t *keys = p + plan->fixed_bytes;
    enum verdict verdict = SAMPLE_GOOD;
    embd_csr_check_point(&c->csr);
    if (shape->integers) {
        verdict = decode_integers(shape, p, labels, dense, why);
    } else {
        memcpy(labels, p, shape->label_dim * sizeof(float));
        memcpy(dense, p + shape->label_dim * sizeof(float), shape->dense_dim * sizeof(float));
    }
    for (uint32_t slot = 0; verdict == SAMPLE_GOOD && slot < shape->slots; slot++)
        verdict = take_key(plan, &c->csr, slot, load(keys + slot * sizeof(int32_t)), why);
    if (verdict != SAMPLE_GOOD)
        embd_csr_roll_back(&c->csr);
    else
        c->n_samples++;
    return verdict;
}
