/* emulator.h - enough of CUDA to run the kernels of server/store/cuda on the CPU, in the place of
 * cuda_runtime.h.
 *
 * A lane is a fiber that runs until it ends or has to wait for others: at an operation of its warp,
 * or at a barrier of its block. Between such meetings lanes run one after the other, in an order
 * that changes from block to block, so a kernel that forgets to meet gives different answers. A
 * lane that waits for one that has ended, and lanes that meet at different places, stop the program
 * with a sentence. Memory is the host's, and atomics are plain: one lane runs at a time. */
#ifndef EMBD_TESTS_CUDA_EMULATOR_H
#define EMBD_TESTS_CUDA_EMULATOR_H

#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __shared__ static
#define __host__
#define __launch_bounds__(...)

struct uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

struct emulated_index {
    unsigned x;
};
extern emulated_index threadIdx, blockIdx, blockDim, gridDim;

/* Runs body(arg) for every lane of every block. */
void emulator_run(unsigned grid, unsigned block, void (*body)(void *arg), void *arg);

enum emulated_meeting { MEET_SHUFFLE, MEET_BALLOT, MEET_WARP, MEET_BLOCK };
/* Waits for all lanes of the warp; afterwards word l is what lane l brought, until the warp's next
 * meeting but one. */
const uint64_t *emulator_meet(emulated_meeting what, uint64_t word);
void emulator_meet_block();

template <class Body> static void emulator_call(void *arg)
{
    (*static_cast<Body *>(arg))();
}

template <class... Parameters, class... Arguments>
static int emulator_launch(void (*kernel)(Parameters...), unsigned grid, unsigned block,
                           Arguments... arguments)
{
    auto body = [=]() { kernel(arguments...); };
    emulator_run(grid, block, emulator_call<decltype(body)>, &body);
    return 0;
}

#define LAUNCH(kernel, grid, block, stream, ...)                                                   \
    ((void)(stream), emulator_launch(kernel, grid, block, __VA_ARGS__))

template <class T> static inline T __shfl_sync(unsigned, T value, int from, int width = 32)
{
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    unsigned lane = threadIdx.x % 32, base = lane / (unsigned)width * (unsigned)width;
    const uint64_t *words = emulator_meet(MEET_SHUFFLE, word);
    memcpy(&value, &words[base + (unsigned)from % (unsigned)width], sizeof value);
    return value;
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int distance)
{
    return __shfl_sync(mask, value, (int)(threadIdx.x % 32) ^ distance);
}

static inline unsigned __ballot_sync(unsigned, int predicate)
{
    const uint64_t *words = emulator_meet(MEET_BALLOT, predicate != 0);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        bits |= (unsigned)words[lane] << lane;
    return bits;
}

static inline void __syncwarp()
{
    emulator_meet(MEET_WARP, 0);
}
static inline void __syncthreads()
{
    emulator_meet_block();
}
static inline void __threadfence()
{
}
static inline int __syncthreads_or(int predicate)
{
    static int any;
    any |= predicate != 0;
    emulator_meet_block();
    int result = any;
    emulator_meet_block();
    if (threadIdx.x == 0)
        any = 0;
    emulator_meet_block();
    return result;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline uint64_t __umul64hi(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)a * b >> 64);
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T value)
{
    *p = value;
}
template <class T> static inline T atomicCAS(T *p, T expected, T value)
{
    T before = *p;
    *p = before == expected ? value : before;
    return before;
}
template <class T> static inline T atomicOr(T *p, T value)
{
    T before = *p;
    *p = before | value;
    return before;
}
template <class T> static inline T atomicAnd(T *p, T value)
{
    T before = *p;
    *p = before & value;
    return before;
}
template <class T> static inline T atomicExch(T *p, T value)
{
    T before = *p;
    *p = value;
    return before;
}
template <class T> static inline T atomicAdd(T *p, T value)
{
    T before = *p;
    *p = before + value;
    return before;
}
template <class T> static inline T atomicMin(T *p, T value)
{
    T before = *p;
    *p = before < value ? before : value;
    return before;
}

#endif
