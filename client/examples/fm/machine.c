/* machine.c - the arithmetic of the factorization machine: logit, loss, gradient of one sample.
 *
 * d logit / d l_s = 1 and d logit / d v_s = (sum of all v_t) - v_s; d loss / d logit = p -
 * label. */
#include "client/examples/fm/machine.h"

#include <math.h>

static float sum_column(const float *factors, uint32_t slots, uint32_t dim, uint32_t column)
{
    float sum = 0;
    for (uint32_t s = 0; s < slots; s++)
        sum += factors[s * dim + column];
    return sum;
}

float machine_logit(const float *linear, const float *factors, uint32_t slots, uint32_t dim)
{
    float first = 0, second = 0;
    for (uint32_t s = 0; s < slots; s++)
        first += linear[s];
    for (uint32_t c = 0; c < dim; c++) {
        float sum = 0, squares = 0;
        for (uint32_t s = 0; s < slots; s++) {
            float v = factors[s * dim + c];
            sum += v;
            squares += v * v;
        }
        second += sum * sum - squares;
    }
    return first + 0.5f * second;
}

double machine_loss(float logit, float label)
{
    double margin = label > 0.5f ? logit : -(double)logit;
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

void machine_gradient(float *linear, float *factors, uint32_t slots, uint32_t dim, float logit,
                      float label)
{
    float g = 1 / (1 + expf(-logit)) - label;
    for (uint32_t s = 0; s < slots; s++)
        linear[s] = g;
    for (uint32_t c = 0; c < dim; c++) {
        float sum = sum_column(factors, slots, dim, c);
        for (uint32_t s = 0; s < slots; s++)
            factors[s * dim + c] = g * (sum - factors[s * dim + c]);
    }
}
