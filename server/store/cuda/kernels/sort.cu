/* sort.cu - sorts refs with their positions, as pairs or as items of eight bytes, which is faster;
 * stable (CUB). */
#include <cub/device/device_radix_sort.cuh>

#include "server/store/cuda/kernels/kernels.h"

static int sort(void *temp, size_t *temp_bytes, const uint32_t *keys, uint32_t *keys_out,
                const uint32_t *values, uint32_t *values_out, uint32_t n, int key_bits,
                void *stream)
{
    return (int)cub::DeviceRadixSort::SortPairs(temp, *temp_bytes, keys, keys_out, values,
                                                values_out, (int)n, 0, key_bits,
                                                (cudaStream_t)stream);
}

size_t sort_bytes(uint32_t n)
{
    size_t bytes = 0;
    sort(nullptr, &bytes, nullptr, nullptr, nullptr, nullptr, n, 32, nullptr);
    return bytes;
}

int launch_sort(void *temp, size_t temp_bytes, const uint32_t *keys, uint32_t *keys_out,
                const uint32_t *values, uint32_t *values_out, uint32_t n, int key_bits,
                void *stream)
{
    return sort(temp, &temp_bytes, keys, keys_out, values, values_out, n, key_bits, stream);
}

static int sort_items(void *temp, size_t *temp_bytes, const uint64_t *items, uint64_t *items_out,
                      uint32_t n, int ref_bits, void *stream)
{
    return (int)cub::DeviceRadixSort::SortKeys(temp, *temp_bytes, items, items_out, (int)n, 32,
                                               32 + ref_bits, (cudaStream_t)stream);
}

size_t sort_items_bytes(uint32_t n)
{
    size_t bytes = 0;
    sort_items(nullptr, &bytes, nullptr, nullptr, n, 32, nullptr);
    return bytes;
}

int launch_sort_items(void *temp, size_t temp_bytes, const uint64_t *items, uint64_t *items_out,
                      uint32_t n, int ref_bits, void *stream)
{
    return sort_items(temp, &temp_bytes, items, items_out, n, ref_bits, stream);
}
