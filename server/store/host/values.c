/* values.c - what a record holds: the first value of a row, and its contents copied out. */
#include <string.h>

#include "proto/convert.h"
#include "server/store/host/memory.h"
#include "server/store/host/table.h"
#include "server/store/use.h"

uint64_t values_bytes(const struct store *store)
{
    return store->schema->s.slots * sizeof *store->slot_bounds;
}

bool values_open(struct store *store)
{
    const embd_schema *s = &store->schema->s;
    store->initializer = (struct initializer){
        .kind = s->initializer.kind, .a = s->initializer.a, .b = s->initializer.b, .seed = s->seed};
    if (s->initializer.kind != EMBD_INITIALIZER_UNIFORM_SLOT)
        return true;
    store->slot_bounds = memory_new(values_bytes(store));
    if (store->slot_bounds == NULL)
        return false;
    for (uint32_t i = 0; i < s->slots; i++)
        store->slot_bounds[i] = embd__initializer_slot_bound(s->slot_sizes[i]);
    return true;
}

void values_close(struct store *store)
{
    memory_free(store->slot_bounds, values_bytes(store));
}

/* ---- the first value ---- */

/* The slot whose bound a key takes: its own; by its value if slots do not distinguish keys. A key
 * beyond the last slot takes the last slot's. */
static uint32_t bound_slot(const struct store *store, uint64_t key, uint32_t slot)
{
    const embd_schema *s = &store->schema->s;
    if (s->partition != EMBD_PARTITION_SLOT)
        slot = embd__schema_slot_of(store->schema, key);
    return slot < s->slots ? slot : s->slots - 1;
}

/* Before it is rounded to the table's dtype. */
static void make_exact(const struct store *store, uint64_t key, uint32_t slot, float *value)
{
    struct initializer init = store->initializer;
    if (init.kind == EMBD_INITIALIZER_UNIFORM_SLOT) {
        init.b = store->slot_bounds[bound_slot(store, key, slot)];
        init.a = -init.b;
    }
    embd__initializer_row(&init, key, slot, value, store->dim);
}

void values_first(const struct store *store, uint64_t key, uint32_t slot, float *value)
{
    make_exact(store, key, slot, value);
    if (store->dtype != EMBD_DTYPE_F32) {
        uint32_t stored[EMBD_DIM_MAX];
        embd__row_from_f32(stored, store->dtype, value, store->dim);
        embd__row_to_f32(value, stored, store->dtype, store->dim);
    }
}

void values_begin(const struct store *store, uint64_t key, uint32_t slot, uint8_t *record)
{
    float value[EMBD_DIM_MAX], first = optimizer_first_state(&store->schema->s.optimizer);
    float *state = host_state(store, record);
    make_exact(store, key, slot, value);
    embd__row_from_f32(record, store->dtype, value, store->dim);
    for (uint32_t i = 0; i < store->state_floats; i++)
        state[i] = i < store->optimizer_floats ? first : 0.0f;
    if (store->has_master)
        memcpy(state + store->master_at, value, store->dim * sizeof *value);
    if (store->evicts)
        use_begin(state + store->use_at, host_use_time(store));
}

/* ---- copied out ---- */

void values_copy_candidate(const struct store *store, uint64_t key, uint32_t slot, uint32_t count,
                           struct store_scan *out)
{
    uint32_t i = out->n_candidates++;
    out->candidate_keys[i] = key;
    out->candidate_counts[i] = count;
    if (store->schema->s.partition == EMBD_PARTITION_SLOT)
        out->candidate_slots[i] = (uint16_t)slot;
}

void values_copy_row(const struct store *store, uint64_t key, uint32_t slot, uint8_t *record,
                     struct store_scan *out)
{
    uint32_t i = out->n_rows++;
    out->keys[i] = key;
    if (store->schema->s.partition == EMBD_PARTITION_SLOT)
        out->slots[i] = (uint16_t)slot;
    if (out->rows == NULL)
        return;
    memcpy((uint8_t *)out->rows + (size_t)i * store->value_bytes, record, store->value_bytes);
    if (store->state_floats > 0 && out->states != NULL)
        memcpy(out->states + (size_t)i * store->state_floats, host_state(store, record),
               store->state_floats * sizeof(float));
}
