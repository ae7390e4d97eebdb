/* launch.cuh - launches kernels, and wraps the few intrinsics they use. Under another compiler than
 * CUDA's, tests bring an emulator of the device: the same kernels then run on the CPU, lane by
 * lane. */
#ifndef EMBD_CUDA_LAUNCH_CUH
#define EMBD_CUDA_LAUNCH_CUH

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define LAUNCH(kernel, grid, block, stream, ...)                                                   \
    (kernel<<<(grid), (block), 0, (cudaStream_t)(stream)>>>(__VA_ARGS__),                          \
     (int)cudaPeekAtLastError())
#else
#include "emulator.h"
#endif

#include "server/store/cuda/kernels/kernels.h"

#define ALL_LANES 0xffffffffu

/* Loads 16 bytes that are read once: bypasses the first-level cache. */
__device__ static inline uint4 load_once(const void *p)
{
#ifdef __CUDACC__
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
#else
    return *(const uint4 *)p;
#endif
}

/* Blocks and threads for n lanes of work, one item each or, in a loop, several. */
struct shape {
    unsigned grid, block;
};

#define SHAPE_BLOCKS                                                                               \
    16896u /* 128 for each of 132 multiprocessors: the last ones end at about the same time */

static inline struct shape shape_of(uint64_t n)
{
    struct shape s;
    s.block = n >= 256 ? 256 : (unsigned)((n + 31) / 32 * 32);
    s.block = s.block ? s.block : 32;
    uint64_t blocks = (n + s.block - 1) / s.block;
    s.grid = (unsigned)(blocks < 1 ? 1 : blocks > SHAPE_BLOCKS ? SHAPE_BLOCKS : blocks);
    return s;
}

/* The same for work that is often empty: as many blocks as a device runs at once. */
#define SHAPE_FEW 1056u

static inline struct shape shape_few(uint64_t n)
{
    struct shape s = shape_of(n);
    s.grid = s.grid < SHAPE_FEW ? s.grid : SHAPE_FEW;
    return s;
}

__device__ static inline uint64_t lane_index()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static inline uint64_t lane_count()
{
    return (uint64_t)gridDim.x * blockDim.x;
}

#endif
