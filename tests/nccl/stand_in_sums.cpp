/* stand_in_sums.cpp - what sums.cu has CUB do, in the plainest code. */
#include <cstdlib>

#include "server/store/nccl/kernels/move.h"

size_t sum_bytes(uint32_t n)
{
    return n;
}

int launch_sums(void *, size_t, const uint32_t *lengths, uint32_t *out, uint32_t n, void *)
{
    out[0] = 0;
    for (uint32_t i = 0; i < n; i++)
        out[i + 1] = out[i] + lengths[i];
    if (lengths[n] != 0)
        abort();
    return 0;
}
