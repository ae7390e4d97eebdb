#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/cut.h"
#include "server/store/cuda/lent.h"
#include "server/store/cuda/memory.h"
#include "server/store/cuda/queue.h"

#include <stdlib.h>

#include "server/store/contract.h"

void cuda_close(struct store *store)
{
    if (store == NULL)
        return;
    device_use(store->device);
    while (store->first != NULL) {
        cuda_wait_all(store);
        cuda_collect(store);
    }
    if (store->stream)
        device_stream_wait(store->stream);
    while (store->spare != NULL) {
        struct call *call = store->spare;
        store->spare = call->next;
        device_flag_free(call->flag);
        free(call);
    }
    frozen_end(store);
    lookup_drop_all(store);
    device_range_close(&store->values);
    device_range_close(&store->states);
    device_range_close(&store->row_keys);
    device_range_close(&store->row_slots);
    change_sets_fini(store);
    device_free(store->view.entries, store->stream);
    device_free(store->slot_memory, store->stream);
    device_free(store->batch_block, store->stream);
    device_stream_free(store->stream);
    free(store);
}

/* Copies the slots' starts and bounds to the device, for initializer.h. */
static int open_slots(struct store *store)
{
    const embd_schema *s = &store->schema->s;
    if (s->initializer.kind != EMBD_INITIALIZER_UNIFORM_SLOT)
        return 0;
    uint64_t starts_bytes = (s->slots + 1ull) * sizeof(uint64_t),
             bounds_bytes = s->slots * sizeof(float);
    float bounds[EMBD_SLOTS_MAX];
    for (uint32_t i = 0; i < s->slots; i++)
        bounds[i] = embd__initializer_slot_bound(s->slot_sizes[i]);
    int status = device_new(&store->slot_memory, starts_bytes + bounds_bytes, store->stream);
    if (status != 0)
        return status;
    uint8_t *memory = store->slot_memory;
    store->view.slot_starts = (const uint64_t *)(const void *)memory;
    store->view.slot_bounds = (const float *)(const void *)(memory + starts_bytes);
    status = device_copy(memory, store->schema->slot_starts, starts_bytes, store->stream);
    if (status == 0)
        status = device_copy(memory + starts_bytes, bounds, bounds_bytes, store->stream);
    return status ? status : device_stream_wait(store->stream);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Reserves addresses for as many rows as the device could hold or a ref can number. Memory follows
 * as rows come. */
static int open_rows(struct store *store)
{
    struct table_view *t = &store->view;
    uint64_t memory = device_memory(), rows = REF_ROWS_MAX,
             state_bytes = (uint64_t)t->state_stride * sizeof(float);
    int status = device_range_open(&store->values, least(memory, rows * t->stride));
    if (status == 0 && state_bytes)
        status = device_range_open(&store->states, least(memory, rows * state_bytes));
    if (status == 0)
        status = device_range_open(&store->row_keys, least(memory, rows * sizeof *t->row_keys));
    if (status == 0 && store->schema->s.partition == EMBD_PARTITION_SLOT)
        status = device_range_open(&store->row_slots, least(memory, rows * sizeof *t->row_slots));
    t->values = store->values.base;
    t->states = (float *)(void *)store->states.base;
    t->row_keys = (uint64_t *)(void *)store->row_keys.base;
    t->row_slots = (uint16_t *)(void *)store->row_slots.base;
    return status;
}

static int open_memory(struct store *store)
{
    const embd_schema *s = &store->schema->s;
    uint64_t capacity = s->on_full == EMBD_ON_FULL_GROW ? s->capacity : 0;
    int status = device_use(store->device);
    if (status == 0)
        status = device_urgent_stream_new(&store->stream); /* a trainer's kernels can wait */
    if (status == 0)
        status = open_slots(store);
    if (status == 0)
        status = open_rows(store);
    if (status == 0 && capacity > REF_ROWS_MAX)
        status = DEVICE_NO_MEMORY;
    if (status == 0)
        status = grow_entries(store, capacity ? capacity : 1);
    return status ? status : grow_rows(store, capacity);
}

/* States are aligned to four floats where rows are. */
static uint32_t stride_of_states(const embd_schema *s)
{
    uint32_t floats = embd__schema_state_floats(s);
    uint32_t columns = embd__schema_optimizer_floats(s) + embd__schema_master_floats(s);
    bool by_fours = s->dim % 4 == 0 && columns >= s->dim;
    return by_fours ? (floats + 3) / 4 * 4 : floats;
}

static void set_view(struct store *store)
{
    const embd_schema *s = &store->schema->s;
    uint32_t bytes = (uint32_t)embd__value_bytes(s->dtype, s->dim);
    store->view = (struct table_view){
        .dim = s->dim,
        .stride = (bytes + 15) / 16 * 16,
        .state_floats = embd__schema_state_floats(s),
        .state_stride = stride_of_states(s),
        .optimizer_floats = embd__schema_optimizer_floats(s),
        .dtype = s->dtype,
        .is_stochastic = s->rounding == EMBD_ROUNDING_STOCHASTIC,
        .has_master = embd__schema_master_floats(s) > 0,
        .master_at = embd__schema_master_at(s),
        .initializer = {s->initializer.kind, s->initializer.a, s->initializer.b, s->seed},
        .n_slots = s->slots,
        .first_state = optimizer_first_state(&s->optimizer),
        .admit_after = s->admit_after,
        .secret = store_secret,
    };
}

int cuda_open_on(const struct table_schema *schema, int device, struct store **out,
                 struct embd__error *e)
{
    *out = NULL;
    if (store_secret_draw(e) != EMBD_OK)
        return e->status;
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to open it", schema->s.name);
    store->schema = schema;
    store->device = device;
    store->room = UINT64_MAX;
    store->window_bytes = WINDOW_BYTES;
    store->window_keys = WINDOW_KEYS;
    store->piece_bytes = PIECE_BYTES;
    store->lookup_keys_min = LOOKUP_KEYS_MIN;
    store->is_global = optimizer_is_global(&schema->s.optimizer);
    store->is_wholerow = embd__schema_is_wholerow(&schema->s);
    store->evicts = embd__schema_use_floats(&schema->s) > 0;
    store->is_timed = embd__schema_is_timed(&schema->s);
    store->bound = embd__schema_bound(&schema->s);
    set_view(store);
    int status = open_memory(store);
    if (status != 0) {
        cuda_error(store, status, "to open it", e);
        cuda_close(store);
        return e->status;
    }
    *out = store;
    return EMBD_OK;
}

static int cuda_open(const struct table_schema *schema, struct store **out, struct embd__error *e)
{
    return cuda_open_on(schema, device_of_thread(), out, e);
}

static void cuda_pull(struct store *store, struct store_pull *pull, struct store_done *done)
{
    contract_pull(pull);
    cuda_submit(store, CALL_PULL, pull, done);
}

static void cuda_apply(struct store *store, struct store_change *change, struct store_done *done)
{
    contract_change(change);
    cuda_submit(store, change->kind == STORE_PUSH ? CALL_PUSH : CALL_INSERT, change, done);
}

static void cuda_set_step(struct store *store, uint64_t step)
{
    store->step = step;
    store->none_expire_before = 0;
}

void cuda_alter(struct store *store)
{
    const embd_schema *s = &store->schema->s;
    store->view.initializer.a = s->initializer.a;
    store->view.initializer.b = s->initializer.b;
    store->view.first_state = optimizer_first_state(&s->optimizer);
    store->view.admit_after = s->admit_after;
    store->is_global = optimizer_is_global(&s->optimizer);
    store->is_wholerow = embd__schema_is_wholerow(s);
    store->none_expire_before = 0;
    if (embd__schema_bound(s) < store->bound)
        change_sets_forget(store);
    store->bound = embd__schema_bound(s);
}

static void cuda_stats(const struct store *store, struct store_stats *out)
{
    *out = (struct store_stats){
        .rows = store->n_rows,
        .candidates = store->n_candidates,
        .capacity = store->capacity,
        .row_bytes = store->values.bytes + store->states.bytes,
        .index_bytes = store->view.n_buckets * ENTRY_BUCKET * sizeof(struct entry) +
                       store->row_keys.bytes + store->row_slots.bytes + change_sets_bytes(store) +
                       frozen_bytes(store),
        .steps = store->step - store->n_unreported,
        .clock = store->clock,
        .evicted = store->n_evicted,
        .forgotten = store->n_forgotten,
    };
    out->memory_bytes = out->row_bytes + out->index_bytes;
}

/* The thread's device. */
static uint64_t cuda_memory(uint32_t *place_out)
{
    *place_out = (uint32_t)device_of_thread();
    return device_use(device_of_thread()) == 0 ? device_memory_free() : 0;
}

const struct store_ops store_cuda = {
    .name = "cuda",
    .caps = {.is_async = true, .takes_device = true},
    .open = cuda_open,
    .close = cuda_close,
    .pull = cuda_pull,
    .prepare = cuda_prepare,
    .apply = cuda_apply,
    .cancel = cuda_cancel,
    .collect = cuda_collect,
    .scan = cuda_scan,
    .list = cuda_list,
    .read = cuda_read,
    .freeze = cuda_freeze,
    .scan_frozen = cuda_scan_frozen,
    .thaw = cuda_thaw,
    .forget = cuda_forget,
    .load = cuda_load,
    .set_step = cuda_set_step,
    .erase = cuda_erase,
    .alter = cuda_alter,
    .stats = cuda_stats,
    .memory = cuda_memory,
    .device_open = cuda_device_open,
    .device_close = cuda_device_close,
    .device_read = cuda_device_read,
    .buffer_new = buffer_new,
    .buffer_free = buffer_free,
};

int store_cuda_devices(const char **why_out)
{
    return device_count(why_out);
}
