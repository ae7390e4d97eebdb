/* part_check.c - see part_check.h.
 *
 * Large arrays are first swept without branches; only a sweep that found a fault is followed by the
 * search for the culprit that the error names. */
#include "proto/part_check.h"

static void find_bad_offset(struct embd__error *e, uint32_t i, const struct part *p)
{
    const uint32_t *offsets = p->offsets;
    if (offsets[0] != 0)
        embd__error_set(e, EMBD_INVALID, "part %u offsets[0] is %u, expected 0", i, offsets[0]);
    for (uint32_t row = 0; row < p->n_rows; row++)
        if (offsets[row + 1] < offsets[row])
            embd__error_set(e, EMBD_INVALID,
                            "part %u offsets[%u] is %u, below offsets[%u] which is %u", i, row + 1,
                            offsets[row + 1], row, offsets[row]);
    embd__error_set(e, EMBD_INVALID, "part %u offsets[%u] is %u, expected the number of keys, %u",
                    i, p->n_rows, offsets[p->n_rows], p->n_keys);
}

static void check_offsets(struct embd__error *e, uint32_t i, const struct part *p)
{
    const uint32_t *offsets = p->offsets;
    uint32_t bad = offsets[0] != 0 || offsets[p->n_rows] != p->n_keys;
    for (uint32_t row = 0; row < p->n_rows; row++)
        bad |= offsets[row + 1] < offsets[row];
    if (bad)
        find_bad_offset(e, i, p);
}

static void check_weights(struct embd__error *e, uint32_t i, const struct part *p)
{
    const uint32_t exponent = 0x7f800000u;
    const uint32_t *bits = (const void *)p->weights;
    uint32_t bad = 0;
    for (uint32_t k = 0; k < p->n_keys; k++)
        bad |= (bits[k] & exponent) == exponent;
    if (!bad)
        return;
    uint32_t k = 0;
    while ((bits[k] & exponent) != exponent)
        k++;
    embd__error_set(e, EMBD_INVALID, "part %u weights[%u] is %g, expected a finite number", i, k,
                    (double)p->weights[k]);
}

static bool is_score(uint32_t bits)
{
    return (bits & 0x7f800000u) != 0x7f800000u || bits == 0xff800000u;
}

static void check_scores(struct embd__error *e, uint32_t i, const struct part *p)
{
    const uint32_t *bits = (const void *)p->scores;
    uint32_t bad = 0, k = 0;
    for (uint32_t at = 0; at < p->n_keys; at++)
        bad |= !is_score(bits[at]);
    if (!bad)
        return;
    while (is_score(bits[k]))
        k++;
    embd__error_set(e, EMBD_INVALID,
                    "part %u scores[%u] is %g, expected a finite number, or -inf: the key gets no "
                    "score",
                    i, k, (double)p->scores[k]);
}

void embd__part_check_arrays(struct embd__error *e, uint32_t i, const struct part *p)
{
    if (p->offsets != NULL)
        check_offsets(e, i, p);
    if (p->weights != NULL)
        check_weights(e, i, p);
    if (p->scores != NULL)
        check_scores(e, i, p);
}

int embd__push_refuse_keys(struct embd__error *e, uint64_t n_keys)
{
    return embd__error_set(e, EMBD_TOO_LARGE,
                           "a push has %llu keys for a shard, the limit of all its tables is %u: "
                           "push fewer samples or tables at once",
                           (unsigned long long)n_keys, PUSH_KEYS_MOST);
}
