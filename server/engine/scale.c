/* scale.c - divides the gradients of mean and sqrtn rows: a key's share of its row's gradient is
 * gradient * (weight / divisor), so the division is one of weights. */
#include "server/engine/scale.h"

#include <stdlib.h>

#include "proto/combine.h"
#include "server/engine/check.h"

static bool divides(const struct op_part *part)
{
    embd_combiner combiner = part->table->schema.s.combiner;
    return part->in.scale && (combiner == EMBD_COMBINER_MEAN || combiner == EMBD_COMBINER_SQRTN);
}

static void divide_row(const struct op_part *part, uint32_t r, float *to)
{
    const struct part *in = &part->in;
    uint32_t begin = in->offsets[r], end = in->offsets[r + 1];
    const float *weights = in->weights != NULL ? in->weights + begin : NULL;
    float divisor = embd__divisor(part->table->schema.s.combiner, end - begin, weights);
    for (uint32_t i = 0; i < end - begin; i++)
        to[begin + i] = embd__key_scale(weights != NULL ? weights[i] : 1.0f, divisor);
}

static int divide_part(struct op_part *part, uint32_t i, float *to, struct embd__error *e)
{
    struct part *in = &part->in;
    for (uint32_t r = 0; r < in->n_rows; r++)
        divide_row(part, r, to);
    uint64_t bad = check_finite(to, EMBD_DTYPE_F32, in->n_keys);
    if (bad < in->n_keys)
        return embd__error_set(e, EMBD_INVALID,
                               "part %u weights[%llu]: %g divided by the %s of its row's weights "
                               "is %g, expected a finite number",
                               i, (unsigned long long)bad, (double)in->weights[bad],
                               embd_combiner_name(part->table->schema.s.combiner), (double)to[bad]);
    in->weights = to;
    return EMBD_OK;
}

static int reserve(struct op *op, struct embd__error *e)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (divides(&op->parts[i]))
            n += op->parts[i].in.n_keys;
    if (n == 0)
        return EMBD_OK;
    op->memory = malloc(n * sizeof(float));
    if (op->memory == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the divided weights of %llu keys",
                               (unsigned long long)n);
    return EMBD_OK;
}

int scale_push(struct op *op, struct embd__error *e)
{
    if (reserve(op, e) != EMBD_OK)
        return e->status;
    float *to = op->memory;
    for (uint32_t i = 0; i < op->n_parts && e->status == EMBD_OK; i++) {
        struct op_part *part = &op->parts[i];
        if (divides(part) && part->in.n_keys > 0) {
            divide_part(part, i, to, e);
            to += part->in.n_keys;
        }
        part->in.scale = false;
    }
    return e->status;
}
