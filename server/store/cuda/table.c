/* table.c - one table: its failure, its bound, and memory for its rows and entries.
 *
 * The arrays of rows grow at their end. Entries are rehashed into a larger array: the device does
 * that between two calls, at about 14 entries a nanosecond, while the host goes on. */
#include "server/store/cuda/cuda_store.h"

#include <stdio.h>

#define FIRST_BUCKETS 64u

int cuda_error(struct store *store, int device_status, const char *what, struct embd__error *e)
{
    const char *name = store->schema->s.name;
    if (device_status == DEVICE_NO_MEMORY)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no device memory %s", name, what);
    if (!store->failed)
        snprintf(store->why, sizeof store->why, "table %s: the device failed %s: %s", name, what,
                 device_text(device_status));
    store->failed = true;
    return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
}

struct use_view cuda_use(const struct store *store)
{
    const embd_schema *s = &store->schema->s;
    return (struct use_view){
        .at = store->view.state_floats - embd__schema_use_floats(s),
        .rule = use_rule_of(s),
        .time = store->is_timed ? store->now : store->step,
        .lifetime = s->on_full != EMBD_ON_FULL_EVICT_TTL ? 0
                    : store->is_timed                    ? s->ttl_seconds
                                                         : s->ttl,
    };
}

uint64_t cuda_room(const struct store *store)
{
    const embd_schema *s = &store->schema->s;
    uint64_t most = REF_ROWS_MAX;
    if (store->is_member)
        most = store->n_rows_max;
    else if (s->on_full != EMBD_ON_FULL_GROW && s->capacity != 0 && s->capacity < most)
        most = s->capacity;
    return most > store->n_rows ? most - store->n_rows : 0;
}

/* ---- growth ---- */

static uint64_t rows_in(const struct device_range *range, uint64_t row_bytes)
{
    return row_bytes ? range->bytes / row_bytes : UINT64_MAX;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int grow_to(struct store *store, uint64_t n)
{
    uint64_t state_bytes = (uint64_t)store->view.state_stride * sizeof(float);
    int status = device_range_grow(&store->values, n * store->view.stride);
    if (status == 0 && state_bytes)
        status = device_range_grow(&store->states, n * state_bytes);
    if (status == 0)
        status = device_range_grow(&store->row_keys, n * sizeof(uint64_t));
    if (status == 0 && store->view.row_slots)
        status = device_range_grow(&store->row_slots, n * sizeof(uint16_t));
    uint64_t capacity =
        least(rows_in(&store->values, store->view.stride), rows_in(&store->states, state_bytes));
    capacity = least(capacity, rows_in(&store->row_keys, sizeof(uint64_t)));
    if (store->view.row_slots)
        capacity = least(capacity, rows_in(&store->row_slots, sizeof(uint16_t)));
    store->capacity = least(capacity, REF_ROWS_MAX);
    change_sets_grow(store);
    return status;
}

/* Devices allocate memory in pages of this many bytes. */
#define PAGE_BYTES ((uint64_t)2 << 20)

static uint64_t range_growth(const struct device_range *range, uint64_t bytes)
{
    return bytes <= range->bytes
               ? 0
               : (bytes - range->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static uint64_t rows_growth(const struct store *store, uint64_t n)
{
    return range_growth(&store->values, n * store->view.stride) +
           range_growth(&store->states, n * store->view.state_stride * sizeof(float)) +
           range_growth(&store->row_keys, n * sizeof(uint64_t)) +
           range_growth(&store->row_slots, store->view.row_slots ? n * sizeof(uint16_t) : 0);
}

void cuda_bound(struct store *store, uint64_t room)
{
    store->room = room;
    store->needed = 0;
}

bool cuda_unbound(struct store *store, struct store_change *change)
{
    bool was_short = store->needed > 0;
    change->needed += store->needed;
    cuda_bound(store, UINT64_MAX);
    return was_short;
}

/* Behaves like a device without memory. */
static int take_room(struct store *store, uint64_t bytes)
{
    if (bytes > store->room) {
        store->needed = bytes;
        return DEVICE_NO_MEMORY;
    }
    store->room -= store->room == UINT64_MAX ? 0 : bytes;
    return 0;
}

/* Grows by a quarter, where there is memory for it, else to n. */
static int more_rows(struct store *store, uint64_t n)
{
    if (n <= store->capacity)
        return 0;
    uint64_t ample = least(store->capacity + store->capacity / 4, store->n_rows + cuda_room(store));
    int status = DEVICE_NO_MEMORY;
    if (ample > n && rows_growth(store, ample) <= store->room)
        status = grow_to(store, ample);
    if (status != DEVICE_NO_MEMORY)
        return status;
    status = take_room(store, rows_growth(store, n));
    return status ? status : grow_to(store, n);
}

int cuda_new(struct store *store, void **memory_out, uint64_t bytes)
{
    int status = device_new(memory_out, bytes, store->stream);
    if (status == DEVICE_NO_MEMORY && lookup_drop_all(store))
        status = device_new(memory_out, bytes, store->stream);
    return status;
}

int grow_rows(struct store *store, uint64_t n)
{
    int status = more_rows(store, n);
    return status == DEVICE_NO_MEMORY && lookup_drop_all(store) ? more_rows(store, n) : status;
}

/* The load limit is 0.7. */
static uint64_t buckets_for(uint64_t n)
{
    return n / (7 * ENTRY_BUCKET) * 10 + 10;
}

/* Rehashes all entries into n_buckets buckets. */
static int move_entries(struct store *store, uint64_t n_buckets)
{
    struct table_view to = store->view;
    to.n_buckets = n_buckets;
    uint64_t bytes = to.n_buckets * ENTRY_BUCKET * sizeof(struct entry);
    void *memory;
    int status = device_new(&memory, bytes, store->stream);
    if (status != 0)
        return status;
    to.entries = memory;
    status = device_fill(memory, 0, bytes, store->stream);
    if (status == 0 && store->view.entries != NULL)
        status = launch_rebuild(store->view, to, store->stream);
    device_free(store->view.entries, store->stream);
    store->view.entries = to.entries;
    store->view.n_buckets = to.n_buckets;
    store->n_tombstones = 0;
    store->n_entries_max = to.n_buckets * ENTRY_BUCKET / 10 * 7;
    return status;
}

/* Until they are moved there are two arrays. One of the same size is for a moment only. */
static int grow_entries_to(struct store *store, uint64_t n_buckets)
{
    uint64_t bytes = n_buckets * ENTRY_BUCKET * sizeof(struct entry);
    int status = take_room(store, n_buckets > store->view.n_buckets ? bytes : 0);
    return status ? status : move_entries(store, n_buckets);
}

/* Tombstones count until the next rehash: their buckets may still be marked as overflowed, and a
 * search ends at a bucket without the mark. If they are many, the table is rehashed to its present
 * size. */
static int more_entries(struct store *store, uint64_t n)
{
    if (n + store->n_tombstones <= store->n_entries_max)
        return 0;
    uint64_t before = store->view.n_buckets, needed = buckets_for(n), ample = before;
    if (n > store->n_entries_max / 4 * 3)
        ample = before ? 2 * before : FIRST_BUCKETS;
    int status = grow_entries_to(store, ample > needed ? ample : needed);
    if (status == DEVICE_NO_MEMORY && ample > needed)
        status = grow_entries_to(store, needed);
    store->needed = status == 0 ? 0 : store->needed;
    return status;
}

int grow_entries(struct store *store, uint64_t n)
{
    int status = more_entries(store, n);
    return status == DEVICE_NO_MEMORY && lookup_drop_all(store) ? more_entries(store, n) : status;
}

int grow_by(struct store *store, uint64_t n_rows, uint64_t n)
{
    int status = grow_rows(store, store->n_rows + n_rows);
    return status ? status : grow_entries(store, store->n_rows + store->n_candidates + n);
}

int cuda_reserve(struct store *store, uint64_t n, bool may_drop, struct embd__error *e)
{
    if (store->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
    int status = device_use(store->device);
    if (status == 0)
        status = grow_by(store, least(n, cuda_room(store)), n);
    if (status == 0 || (status == DEVICE_NO_MEMORY && may_drop))
        return EMBD_OK;
    return cuda_error(store, status, "for more rows", e);
}
