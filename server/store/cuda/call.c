/* call.c - one call of a store: its memory, and the transfer of its arrays to the device. queue.c
 * decides when it runs. */
#include "server/store/cuda/call.h"
#include "server/store/cuda/memory.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES ((uint64_t)64 << 10) /* smaller inputs are staged and sent together */

/* ---- a call's memory ---- */

struct call *call_new(struct store *store)
{
    struct call *call = store->spare;
    if (call != NULL) {
        store->spare = call->next;
    } else {
        call = calloc(1, sizeof *call);
        if (call == NULL || device_flag_new(&call->flag) != 0) {
            free(call);
            return NULL;
        }
    }
    struct device_flag *flag = call->flag;
    *call = (struct call){.store = store, .flag = flag};
    return call;
}

void call_free(struct call *call)
{
    struct store *store = call->store;
    buffer_free(call->staging, call->staging_bytes);
    device_free(call->scratch, store->stream);
    device_free(call->step_memory, store->stream);
    device_free(call->found_memory, store->stream);
    call->staging = NULL;
    call->scratch = call->step_memory = call->found_memory = NULL;
    call->next = store->spare;
    store->spare = call;
}

/* ---- inputs ---- */

void call_set_input(struct call *call, int which, const void *from, uint64_t bytes)
{
    call->inputs[which] = (struct input){.from = from, .bytes = bytes};
}

/* Device memory needs no room, unless it is lent. Pinned memory is sent from where it is, unless
 * all inputs are small. */
void call_lay_out_inputs(struct call *call)
{
    struct arena block = {.base = NULL}, staging = {.base = NULL};
    uint64_t bytes = 0;
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        input->kind = input->from && !call->is_lent ? memory_kind(input->from) : MEMORY_DEVICE;
        bytes += input->kind != MEMORY_DEVICE ? input->bytes : 0;
    }
    call->is_small = bytes <= SMALL_BYTES;
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        input->at = block.bytes;
        input->staged_at = staging.bytes;
        if (input->kind != MEMORY_DEVICE || call->is_lent)
            arena_take(&block, input->bytes);
        if (input->kind == MEMORY_HOST || (input->kind == MEMORY_PINNED && call->is_small))
            arena_take(&staging, input->bytes);
    }
    call->in_bytes = block.bytes;
    call->staged_bytes = staging.bytes;
}

void call_set_keys(struct call *call, const struct store_keys *in, uint32_t first, uint32_t n_rows)
{
    uint32_t begin = in->offsets ? in->offsets[first] : first;
    uint32_t end = in->offsets ? in->offsets[first + n_rows] : first + n_rows;
    uint64_t n = end - begin;
    call->is_lent = in->on_device;
    call->in.own = in->own;
    call->in.n = end - begin;
    call->in.n_rows = n_rows;
    call->in.first = begin;
    call_set_input(call, IN_KEYS, in->keys + begin, n * sizeof *in->keys);
    if (in->offsets)
        call_set_input(call, IN_OFFSETS, in->offsets + first,
                       (n_rows + 1ull) * sizeof *in->offsets);
    if (in->slots)
        call_set_input(call, IN_SLOTS, in->slots + first, (uint64_t)n_rows * sizeof *in->slots);
    if (in->weights)
        call_set_input(call, IN_WEIGHTS, in->weights + begin, n * sizeof *in->weights);
    if (in->scores)
        call_set_input(call, IN_SCORES, in->scores + begin, n * sizeof *in->scores);
}

static void set_view(struct call *call)
{
    call->in.keys = call->inputs[IN_KEYS].on_device;
    call->in.offsets = call->inputs[IN_OFFSETS].on_device;
    call->in.slots = call->inputs[IN_SLOTS].on_device;
    call->in.weights = call->inputs[IN_WEIGHTS].on_device;
}

static void stage(const struct call *call, const struct input *input)
{
    if (input->bytes)
        memcpy(call->staging + input->staged_at, input->from, input->bytes);
}

/* Kernels read the inputs once, from memory of the host. */
static int leave_in_place(struct call *call)
{
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        if (input->kind == MEMORY_HOST)
            stage(call, input);
        input->on_device =
            input->kind == MEMORY_HOST ? call->staging + input->staged_at : input->from;
    }
    return 0;
}

/* Small inputs: staged, then sent with one copy. */
static int upload_together(struct call *call, uint8_t *block)
{
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        if (input->kind != MEMORY_DEVICE)
            stage(call, input);
        input->on_device = input->kind == MEMORY_DEVICE ? input->from : block + input->at;
    }
    return device_copy(block, call->staging, call->in_bytes, call->store->stream);
}

static int upload_one(struct call *call, struct input *input, uint8_t *block)
{
    input->on_device = input->kind == MEMORY_DEVICE ? input->from : block + input->at;
    if (input->kind == MEMORY_DEVICE)
        return 0;
    if (input->kind == MEMORY_HOST)
        stage(call, input);
    const void *from = input->kind == MEMORY_HOST ? call->staging + input->staged_at : input->from;
    return device_copy(block + input->at, from, input->bytes, call->store->stream);
}

static struct taken taken_of(const struct call *call, uint8_t *block)
{
    const struct input *keys = &call->inputs[IN_KEYS], *grads = &call->inputs[IN_VALUES];
    return (struct taken){
        .keys = keys->from,
        .keys_to = (uint64_t *)(void *)(block + keys->at),
        .n_keys = call->in.n,
        .row_bytes = call->in.n > 0 ? (uint32_t)(grads->bytes / call->in.n) : 0,
        .own = call->in.own,
        .from = grads->from,
        .to = block + grads->at,
        .bytes = grads->bytes,
        .dtype = grads->from != NULL ? call->change->dtype : EMBD_DTYPE_F32,
        .bad = call->bad,
        .stop = call->bad != NULL ? &call->counts->stop : NULL,
    };
}

/* Read once, into memory that is the store's. */
static int take_lent(struct call *call, uint8_t *block)
{
    const struct input *grads = &call->inputs[IN_VALUES];
    void *stream = call->store->stream;
    struct input *keys = &call->inputs[IN_KEYS];
    int status = 0;
    keys->on_device = block + keys->at;
    if (grads->from != NULL)
        call->inputs[IN_VALUES].on_device = block + grads->at;
    if (call->bad != NULL)
        *call->bad = 0;
    if (call->in.own != NULL)
        return launch_own_copy(taken_of(call, block), stream);
    if (call->bad != NULL)
        return launch_checked_copy(taken_of(call, block), stream);
    status = device_copy(block + keys->at, keys->from, keys->bytes, stream);
    if (status != 0 || grads->from == NULL)
        return status;
    return device_copy(block + grads->at, grads->from, grads->bytes, stream);
}

int call_upload(struct call *call, uint8_t *block, bool is_in_place)
{
    int status = 0;
    if (is_in_place)
        status = leave_in_place(call);
    else if (call->is_lent)
        status = take_lent(call, block);
    else if (call->is_small)
        status = upload_together(call, block);
    else
        for (int i = 0; i < IN_COUNT && status == 0; i++)
            status = upload_one(call, &call->inputs[i], block);
    set_view(call);
    return status;
}
