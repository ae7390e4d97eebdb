/* device_select.cuh - CUB's call of that name, as select.cu makes it, in the plainest code.
 *
 * As CUB's, a call without memory says how much it needs and does nothing else, and one with too
 * little fails. */
#ifndef EMBD_TESTS_CUDA_CUB_SELECT_H
#define EMBD_TESTS_CUDA_CUB_SELECT_H

#include <cstddef>
#include <cstdint>

typedef void *cudaStream_t;

namespace cub
{
struct DeviceSelect {
    static int Flagged(void *temp, size_t &temp_bytes, const uint32_t *values, const uint8_t *flags,
                       uint32_t *out, uint32_t *n_out, int n, cudaStream_t)
    {
        size_t needed = (size_t)n + 1;
        if (temp == nullptr) {
            temp_bytes = needed;
            return 0;
        }
        if (temp_bytes < needed)
            return 1;
        *n_out = 0;
        for (int i = 0; i < n; i++)
            if (flags[i])
                out[(*n_out)++] = values[i];
        return 0;
    }
};
} // namespace cub

#endif
