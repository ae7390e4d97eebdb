/* sums.cu - prefix sums of lengths (CUB). */
#include <cub/device/device_scan.cuh>

#include "server/store/nccl/kernels/move.h"

static int sum(void *temp, size_t *temp_bytes, const uint32_t *lengths, uint32_t *out, uint32_t n,
               void *stream)
{
    return (int)cub::DeviceScan::ExclusiveSum(temp, *temp_bytes, lengths, out, (int)n + 1,
                                              (cudaStream_t)stream);
}

size_t sum_bytes(uint32_t n)
{
    size_t bytes = 0;
    sum(nullptr, &bytes, nullptr, nullptr, n, nullptr);
    return bytes;
}

int launch_sums(void *temp, size_t temp_bytes, const uint32_t *lengths, uint32_t *out, uint32_t n,
                void *stream)
{
    return sum(temp, &temp_bytes, lengths, out, n, stream);
}
