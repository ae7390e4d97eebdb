/* device_radix_sort.cuh - CUB's call of that name, as sort.cu makes it, in the plainest code.
 *
 * As CUB's, a call without memory says how much it needs and does nothing else, and one with too
 * little fails. */
#ifndef EMBD_TESTS_CUDA_CUB_RADIX_SORT_H
#define EMBD_TESTS_CUDA_CUB_RADIX_SORT_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

typedef void *cudaStream_t;

namespace cub
{
struct DeviceRadixSort {
    static int SortPairs(void *temp, size_t &temp_bytes, const uint32_t *keys, uint32_t *keys_out,
                         const uint32_t *values, uint32_t *values_out, int n, int begin_bit,
                         int end_bit, cudaStream_t)
    {
        size_t needed = (size_t)n + 1;
        if (temp == nullptr) {
            temp_bytes = needed;
            return 0;
        }
        if (temp_bytes < needed)
            return 1;
        uint64_t mask = (UINT64_C(1) << end_bit) - (UINT64_C(1) << begin_bit);
        std::vector<uint32_t> order((size_t)n);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
            return (keys[a] & mask) < (keys[b] & mask);
        });
        for (size_t i = 0; i < order.size(); i++) {
            keys_out[i] = keys[order[i]];
            values_out[i] = values[order[i]];
        }
        return 0;
    }

    static int SortKeys(void *temp, size_t &temp_bytes, const uint64_t *keys, uint64_t *keys_out,
                        int n, int begin_bit, int end_bit, cudaStream_t)
    {
        size_t needed = (size_t)n + 1;
        if (temp == nullptr) {
            temp_bytes = needed;
            return 0;
        }
        if (temp_bytes < needed)
            return 1;
        uint64_t below = end_bit == 64 ? ~UINT64_C(0) : (UINT64_C(1) << end_bit) - 1;
        uint64_t mask = below & ~((UINT64_C(1) << begin_bit) - 1);
        std::copy(keys, keys + n, keys_out);
        std::stable_sort(keys_out, keys_out + n,
                         [=](uint64_t a, uint64_t b) { return (a & mask) < (b & mask); });
        return 0;
    }
};
} // namespace cub

#endif
