/* route.cu - finds the owner of each item of a request, and the order of its keys once items are
 * grouped by owner. */
#include "server/store/cuda/kernels/launch.cuh"
#include "server/store/nccl/kernels/move.h"

static __global__ void __launch_bounds__(256) route(route_view r)
{
    for (uint64_t i = lane_index(); i < r.n_items; i += lane_count()) {
        uint64_t key = r.partition == EMBD_PARTITION_SLOT ? 0 : r.keys[i];
        uint32_t slot = r.partition == EMBD_PARTITION_SLOT ? r.slots[i] : 0;
        r.owners[i] = owner_of(r.partition, r.n_devices, key, slot);
        r.numbers[i] = (uint32_t)i;
    }
}

int launch_route(struct route_view r, void *stream)
{
    struct shape s = shape_of(r.n_items);
    return LAUNCH(route, s.grid, s.block, stream, r);
}

static __global__ void __launch_bounds__(256) lengths(route_view r)
{
    for (uint64_t j = lane_index(); j <= r.n_items; j += lane_count())
        r.lengths[j] = j < r.n_items ? r.offsets[r.order[j] + 1] - r.offsets[r.order[j]] : 0;
}

int launch_lengths(struct route_view r, void *stream)
{
    struct shape s = shape_of(r.n_items + 1ull);
    return LAUNCH(lengths, s.grid, s.block, stream, r);
}

#define LANES_OF_ITEM 8u

/* A few lanes handle the keys of an item. */
static __global__ void __launch_bounds__(256) key_order(route_view r)
{
    uint32_t lane = threadIdx.x % LANES_OF_ITEM;
    for (uint64_t j = lane_index() / LANES_OF_ITEM; j < r.n_items;
         j += lane_count() / LANES_OF_ITEM) {
        uint32_t from = r.offsets[r.order[j]] - r.first, to = r.grouped[j];
        for (uint32_t i = lane; to + i < r.grouped[j + 1]; i += LANES_OF_ITEM)
            r.key_order[to + i] = from + i;
    }
}

int launch_key_order(struct route_view r, void *stream)
{
    struct shape s = shape_of((uint64_t)r.n_items * LANES_OF_ITEM);
    return LAUNCH(key_order, s.grid, s.block, stream, r);
}

static __global__ void __launch_bounds__(256)
    spread(const uint32_t *offsets, uint32_t n_items, uint32_t *item_of)
{
    uint32_t lane = threadIdx.x % LANES_OF_ITEM;
    for (uint64_t j = lane_index() / LANES_OF_ITEM; j < n_items; j += lane_count() / LANES_OF_ITEM)
        for (uint32_t k = offsets[j] + lane; k < offsets[j + 1]; k += LANES_OF_ITEM)
            item_of[k] = (uint32_t)j;
}

int launch_spread(const uint32_t *offsets, uint32_t n_items, uint32_t *item_of, void *stream)
{
    struct shape s = shape_of((uint64_t)n_items * LANES_OF_ITEM);
    return LAUNCH(spread, s.grid, s.block, stream, offsets, n_items, item_of);
}

static __global__ void __launch_bounds__(256) count_parts(route_view r)
{
    for (uint64_t j = lane_index(); j <= r.n_items; j += lane_count()) {
        uint32_t n = 0;
        if (j < r.n_items) {
            uint32_t device = (uint32_t)j / r.n_rows, row = (uint32_t)j % r.n_rows;
            for (uint32_t k = r.offsets[row]; k < r.offsets[row + 1]; k++)
                n += owner_of(r.partition, r.n_devices, r.keys[k - r.first], 0) == device;
            r.order[j] = row;
        }
        r.lengths[j] = n;
    }
}

int launch_parts(struct route_view r, void *stream)
{
    struct shape s = shape_of(r.n_items + 1ull);
    return LAUNCH(count_parts, s.grid, s.block, stream, r);
}

static __global__ void __launch_bounds__(256) place_parts(route_view r)
{
    for (uint64_t j = lane_index(); j < r.n_items; j += lane_count()) {
        uint32_t device = (uint32_t)j / r.n_rows, row = (uint32_t)j % r.n_rows, to = r.grouped[j];
        for (uint32_t k = r.offsets[row]; k < r.offsets[row + 1]; k++)
            if (owner_of(r.partition, r.n_devices, r.keys[k - r.first], 0) == device)
                r.key_order[to++] = k - r.first;
    }
}

int launch_part_keys(struct route_view r, void *stream)
{
    struct shape s = shape_of(r.n_items);
    return LAUNCH(place_parts, s.grid, s.block, stream, r);
}

/* One lane for each device, and one for the end. */
static __global__ void report(route_view r)
{
    uint32_t device = threadIdx.x, low = 0, high = r.n_items;
    if (device > r.n_devices)
        return;
    if (r.n_rows)
        low = high = device * r.n_rows;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r.sorted[middle] < device)
            low = middle + 1;
        else
            high = middle;
    }
    r.report->items.at[device] = low;
    r.report->keys.at[device] = r.offsets && r.n_items ? r.grouped[low] : low;
}

int launch_report(struct route_view r, void *stream)
{
    return LAUNCH(report, 1, 32, stream, r);
}

static __global__ void __launch_bounds__(256)
    compose(const uint32_t *map, const uint32_t *order, uint32_t *out, uint32_t n)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count())
        out[i] = map[order[i]];
}

int launch_compose(const uint32_t *map, const uint32_t *order, uint32_t *out, uint32_t n,
                   void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(compose, s.grid, s.block, stream, map, order, out, n);
}

static __global__ void __launch_bounds__(256) number(uint32_t *out, uint32_t first, uint32_t n)
{
    for (uint64_t i = lane_index(); i < n; i += lane_count())
        out[i] = first + (uint32_t)i;
}

int launch_numbers(uint32_t *out, uint32_t first, uint32_t n, void *stream)
{
    struct shape s = shape_of(n);
    return LAUNCH(number, s.grid, s.block, stream, out, first, n);
}
