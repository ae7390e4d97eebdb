/* combine.c - sums of rows and of gradients. */
#include <math.h>

#include "tests/model/inside.h"

float model_divisor(const struct model *model, const struct model_batch *batch, uint32_t r)
{
    embd_combiner combiner = model->schema.combiner;
    float sum = 0;
    if (batch->offsets == NULL || combiner == EMBD_COMBINER_SUM || combiner == EMBD_COMBINER_CONCAT)
        return 1;
    for (uint32_t i = model_row_begin(batch, r); i < model_row_end(batch, r); i++) {
        float weight = batch->weights ? batch->weights[i] : 1;
        sum += combiner == EMBD_COMBINER_MEAN ? weight : weight * weight;
    }
    if (sum == 0)
        return 1;
    return combiner == EMBD_COMBINER_MEAN ? sum : sqrtf(sum);
}

/* Gradients are added in runs of 256 in the order they come, and the runs in theirs. */
void model_sum_add(struct model_sum *sum, float gradient)
{
    bool begins_run = sum->n % 256 == 0;
    if (begins_run)
        sum->runs = model_sum_of(sum);
    sum->run = begins_run ? gradient : sum->run + gradient;
    sum->n++;
}

float model_sum_of(const struct model_sum *sum)
{
    return sum->n <= 256 ? sum->run : sum->runs + sum->run;
}
