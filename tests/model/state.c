/* state.c - what stands behind a row's columns, as floats: the state of its optimizer; with
 * lazy_global, decoupled_global and counter_adagrad the step of its last push; with rounding master
 * the values that its columns are rounded from; in tables that evict
 * the step that used it last, and with evict_lfu how many pushes have, with evict_score a score. */
#include "tests/model/inside.h"

static uint32_t optimizer_floats(const embd_schema *s)
{
    switch (s->optimizer.kind) {
    case EMBD_OPTIMIZER_SGD:
        return 0;
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        return 1;
    case EMBD_OPTIMIZER_ADAM:
    case EMBD_OPTIMIZER_FTRL:
    case EMBD_OPTIMIZER_LAMB:
        return 2 * s->dim;
    case EMBD_OPTIMIZER_AMSGRAD:
        return 3 * s->dim;
    case EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM:
        return s->dim + 1;
    case EMBD_OPTIMIZER_COUNTER_ADAGRAD:
        return 2;
    default:
        return s->dim;
    }
}

void model_lay_out_state(struct model *model)
{
    const embd_schema *s = &model->schema;
    model->optimizer_floats = optimizer_floats(s);
    model->has_stamp = s->optimizer.update == EMBD_UPDATE_LAZY_GLOBAL ||
                       s->optimizer.kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD ||
                       s->regularization.decay == EMBD_DECAY_DECOUPLED_GLOBAL;
    model->master_at = model->optimizer_floats + (model->has_stamp ? 2 : 0);
    model->has_master = s->rounding == EMBD_ROUNDING_MASTER;
    model->use_at = model->master_at + (model->has_master ? s->dim : 0);
    model->state_floats = model->use_at;
    if (s->on_full == EMBD_ON_FULL_EVICT_LRU || s->on_full == EMBD_ON_FULL_EVICT_TTL)
        model->state_floats += 2;
    if (s->on_full == EMBD_ON_FULL_EVICT_LFU || s->on_full == EMBD_ON_FULL_EVICT_SCORE)
        model->state_floats += 3;
}

/* A float holds integers of 24 bits. */
void model_write_step(float halves[2], uint64_t step)
{
    halves[0] = (float)(step % 16777216);
    halves[1] = (float)(step / 16777216);
}

uint64_t model_read_step(const float halves[2])
{
    return (uint64_t)halves[0] + (uint64_t)halves[1] * 16777216;
}
