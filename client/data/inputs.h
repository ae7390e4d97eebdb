/* inputs.h - sparse inputs: runs of a data set's slots, and batches divided by them. */
#ifndef EMBD_DATA_INPUTS_H
#define EMBD_DATA_INPUTS_H

#include "client/data/data_plan.h"
#include "embd/data.h"

/* Zero: of no batch yet. */
struct inputs {
    embd_batch_input *list; /* [n] */
    uint64_t *offsets;      /* [slots * batch_samples + n], input after input */
    uint64_t *keys;         /* [keys_room], likewise */
    uint64_t keys_room;
};

/* The options' inputs. EMBD_INVALID names the one that is wrong. */
int embd__inputs_check(const embd_data_shape *shape, const embd_reader_options *options,
                       struct embd__error *e);

/* Sets plan->slot_keys. EMBD_NO_MEMORY. */
int embd__inputs_of_slots(struct data_plan *plan, struct embd__error *e);

/* Divides a batch, and lets it show the inputs. EMBD_NO_MEMORY. */
int embd__inputs_divide(struct inputs *inputs, embd_batch *batch, const struct data_plan *plan,
                        struct embd__error *e);
void embd__inputs_free(struct inputs *inputs);

#endif
