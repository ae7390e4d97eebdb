/* inputs.c - divides batches by sparse inputs.
 *
 * One data set often feeds several tables: 1 slot for a wide part, 26 for a deep one. In a batch
 * the slots of a sample lie side by side, so each input's rows are copied together once, when the
 * batch is handed out; a data set of one input is that already. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/inputs.h"

/* ---- options --------------------------------------------------------------------------------- */

static int check_one(const embd_data_shape *shape, const embd_sparse_input *input, uint32_t i,
                     struct embd__error *e)
{
    if (input->slots == 0 || input->slots > shape->slots)
        return embd__error_set(e, EMBD_INVALID,
                               "inputs[%" PRIu32 "].slots is %" PRIu32 "; it can be 1 to %" PRIu32
                               ", the slots of a sample",
                               i, input->slots, shape->slots);
    if (input->fixed_length && input->max_keys == 0)
        return embd__error_set(e, EMBD_INVALID,
                               "inputs[%" PRIu32 "].fixed_length needs max_keys, the length", i);
    if (shape->format == EMBD_DATA_FORMAT_RAW && input->fixed_length && input->max_keys != 1)
        return embd__error_set(e, EMBD_INVALID,
                               "inputs[%" PRIu32 "].max_keys is %" PRIu32
                               "; a slot of a raw file has 1 key",
                               i, input->max_keys);
    return EMBD_OK;
}

int embd__inputs_check(const embd_data_shape *shape, const embd_reader_options *o,
                       struct embd__error *e)
{
    uint64_t slots = 0;
    if (o->n_inputs > 0 && o->inputs == NULL)
        return embd__error_set(e, EMBD_INVALID, "n_inputs is %" PRIu32 ", and inputs is NULL",
                               o->n_inputs);
    for (uint32_t i = 0; i < o->n_inputs; i++) {
        if (check_one(shape, &o->inputs[i], i, e) != EMBD_OK)
            return e->status;
        slots += o->inputs[i].slots;
    }
    if (o->n_inputs == 0 || slots == shape->slots)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "inputs have %" PRIu64 " slots, and a sample has %" PRIu32, slots,
                           shape->slots);
}

int embd__inputs_of_slots(struct data_plan *plan, struct embd__error *e)
{
    const embd_reader_options *o = &plan->options;
    plan->slot_keys = calloc(plan->shape.slots, sizeof *plan->slot_keys);
    if (plan->slot_keys == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %" PRIu32 " slots",
                               plan->shape.slots);
    uint32_t slot = 0;
    for (uint32_t i = 0; i < o->n_inputs; i++)
        for (uint32_t end = slot + o->inputs[i].slots; slot < end; slot++) {
            uint32_t most = o->inputs[i].max_keys;
            plan->slot_keys[slot].least = o->inputs[i].fixed_length ? most : 0;
            plan->slot_keys[slot].most = most > 0 ? most : UINT32_MAX;
        }
    return EMBD_OK;
}

/* ---- dividing -------------------------------------------------------------------------------- */

static int make_room(struct inputs *inputs, uint64_t n_keys, const struct data_plan *plan)
{
    uint64_t n = plan->options.n_inputs;
    uint64_t rows = (uint64_t)plan->options.batch_samples * plan->shape.slots;
    if (inputs->list == NULL)
        inputs->list = malloc(n * sizeof *inputs->list);
    if (inputs->offsets == NULL)
        inputs->offsets = malloc((rows + n) * sizeof *inputs->offsets);
    if (n_keys > inputs->keys_room || inputs->keys == NULL) {
        free(inputs->keys);
        inputs->keys_room = n_keys + n_keys / 4 + 1;
        inputs->keys = malloc(inputs->keys_room * sizeof *inputs->keys);
    }
    bool has_all = inputs->list != NULL && inputs->offsets != NULL && inputs->keys != NULL;
    return has_all ? EMBD_OK : EMBD_NO_MEMORY;
}

/* The rows of slots first .. first + slots - 1; a sample's lie side by side, and so do their keys.
 */
static embd_batch_input divide_one(const embd_batch *batch, uint64_t all_slots, uint64_t first,
                                   uint64_t slots, uint64_t *offsets, uint64_t *keys)
{
    uint64_t n = 0, row = 0;
    offsets[0] = 0;
    for (uint64_t sample = 0; sample < batch->n_samples; sample++) {
        const uint64_t *from = batch->offsets + sample * all_slots + first;
        for (uint64_t slot = 1; slot <= slots; slot++)
            offsets[++row] = n + (from[slot] - from[0]);
        memcpy(keys + n, batch->keys + from[0], (from[slots] - from[0]) * sizeof *keys);
        n = offsets[row];
    }
    return (embd_batch_input){.n_rows = row, .offsets = offsets, .n_keys = n, .keys = keys};
}

int embd__inputs_divide(struct inputs *inputs, embd_batch *batch, const struct data_plan *plan,
                        struct embd__error *e)
{
    const embd_reader_options *o = &plan->options;
    if (make_room(inputs, batch->n_keys, plan) != EMBD_OK)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the inputs of a batch");
    batch->inputs = inputs->list;
    inputs->list[0] = (embd_batch_input){.n_rows = batch->n_rows,
                                         .offsets = batch->offsets,
                                         .n_keys = batch->n_keys,
                                         .keys = batch->keys};
    uint64_t *offsets = inputs->offsets, *keys = inputs->keys;
    for (uint32_t i = 0, first = 0; i < o->n_inputs && o->n_inputs > 1; i++) {
        embd_batch_input *one = &inputs->list[i];
        *one = divide_one(batch, plan->shape.slots, first, o->inputs[i].slots, offsets, keys);
        offsets += one->n_rows + 1;
        keys += one->n_keys;
        first += o->inputs[i].slots;
    }
    return EMBD_OK;
}

void embd__inputs_free(struct inputs *inputs)
{
    free(inputs->list);
    free(inputs->offsets);
    free(inputs->keys);
    *inputs = (struct inputs){0};
}
