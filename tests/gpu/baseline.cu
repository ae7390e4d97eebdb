/* baseline.cu - what the bench compares with and fills its inputs with. */
#include <cuda_runtime.h>

#include <cstdint>

#include "tests/gpu/baseline.h"

__device__ static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

__device__ static uint64_t lane()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __global__ void fill_keys(uint64_t *keys, uint64_t first, uint64_t n, uint64_t range,
                                 uint64_t seed)
{
    for (uint64_t i = lane(); i < n; i += (uint64_t)gridDim.x * blockDim.x)
        keys[i] = mix(range ? __umul64hi(mix(i + seed), range) : first + i);
}

static __global__ void fill_rows(uint32_t *rows, uint64_t n, uint64_t range, uint64_t seed)
{
    for (uint64_t i = lane(); i < n; i += (uint64_t)gridDim.x * blockDim.x)
        rows[i] = (uint32_t)__umul64hi(mix(i + seed), range);
}

static __global__ void fill_floats(float *values, uint64_t n)
{
    for (uint64_t i = lane(); i < n; i += (uint64_t)gridDim.x * blockDim.x)
        values[i] = (float)(int32_t)(uint32_t)mix(i) * 0x1p-33f;
}

/* Rows of 16 * UNITS bytes, four loads of a lane on their way at a time. */
template <int UNITS>
static __global__ void __launch_bounds__(256)
    gather(const uint4 *from, const uint32_t *rows, uint64_t n, uint4 *to)
{
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x, total = n * UNITS;
    for (uint64_t i = lane(); i < total; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
            uint64_t c = i + (uint64_t)u * stride;
            if (c < total)
                v[u] = __ldg(from + (uint64_t)rows[c / UNITS] * UNITS + c % UNITS);
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            uint64_t c = i + (uint64_t)u * stride;
            if (c < total)
                __stcs(to + c, v[u]);
        }
    }
}

void baseline_keys(uint64_t *keys, uint64_t first, uint64_t n, uint64_t range, uint64_t seed)
{
    fill_keys<<<2112, 256>>>(keys, first, n, range, seed);
}

void baseline_rows(uint32_t *rows, uint64_t n, uint64_t range, uint64_t seed)
{
    fill_rows<<<2112, 256>>>(rows, n, range, seed);
}

void baseline_floats(float *values, uint64_t n)
{
    fill_floats<<<2112, 256>>>(values, n);
}

void baseline_gather(const void *from, const uint32_t *rows, uint64_t n, uint32_t row_bytes,
                     void *to, void *stream)
{
    uint64_t blocks = n * row_bytes / 16 / 1024;
    unsigned grid = (unsigned)(blocks < 1 ? 1 : blocks > 4224 ? 4224 : blocks);
    if (row_bytes == 64)
        gather<4>
            <<<grid, 256, 0, (cudaStream_t)stream>>>((const uint4 *)from, rows, n, (uint4 *)to);
    else if (row_bytes == 128)
        gather<8>
            <<<grid, 256, 0, (cudaStream_t)stream>>>((const uint4 *)from, rows, n, (uint4 *)to);
    else
        gather<16>
            <<<grid, 256, 0, (cudaStream_t)stream>>>((const uint4 *)from, rows, n, (uint4 *)to);
}
