/* stand_in_cub.cpp - what sort.cu and select.cu have CUB do, in the plainest code. */
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "server/store/cuda/kernels/kernels.h"

size_t sort_bytes(uint32_t n)
{
    return n;
}

int launch_sort(void *, size_t, const uint32_t *keys, uint32_t *keys_out, const uint32_t *values,
                uint32_t *values_out, uint32_t n, int key_bits, void *)
{
    uint32_t mask = key_bits == 32 ? 0xffffffffu : (1u << key_bits) - 1;
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return (keys[a] & mask) < (keys[b] & mask); });
    for (uint32_t i = 0; i < n; i++) {
        keys_out[i] = keys[order[i]];
        values_out[i] = values[order[i]];
    }
    return 0;
}

size_t select_bytes(uint32_t n)
{
    return n;
}

int launch_select(void *, size_t, const uint32_t *values, const uint8_t *flags, uint32_t *out,
                  uint32_t *n_out, uint32_t n, void *)
{
    *n_out = 0;
    for (uint32_t i = 0; i < n; i++)
        if (flags[i])
            out[(*n_out)++] = values[i];
    return 0;
}
