/* select.cu - selects the flagged values, in order, and counts them (CUB). */
#include <cub/device/device_select.cuh>

#include "server/store/cuda/kernels/kernels.h"

static int select(void *temp, size_t *temp_bytes, const uint32_t *values, const uint8_t *flags,
                  uint32_t *out, uint32_t *n_out, uint32_t n, void *stream)
{
    return (int)cub::DeviceSelect::Flagged(temp, *temp_bytes, values, flags, out, n_out, (int)n,
                                           (cudaStream_t)stream);
}

size_t select_bytes(uint32_t n)
{
    size_t bytes = 0;
    select(nullptr, &bytes, nullptr, nullptr, nullptr, nullptr, n, nullptr);
    return bytes;
}

int launch_select(void *temp, size_t temp_bytes, const uint32_t *values, const uint8_t *flags,
                  uint32_t *out, uint32_t *n_out, uint32_t n, void *stream)
{
    return select(temp, &temp_bytes, values, flags, out, n_out, n, stream);
}
