/* squares.cuh - S of rowwise_adagrad: the sum of squares of a row's gradient, in the one order that
 * optimizer_squares defines.
 *
 * In that order, column c belongs to lane c % 32 of a warp; each lane adds its columns in rising
 * order, then lane l adds l + 16, l + 8, l + 4, l + 2, l + 1. Here, a lane has columns 4m .. 4m + 3
 * of every 128, so the distances 4, 8 and 16 become 1, 2 and 4. Lanes beyond the row would add +0
 * to values that are not negative, which changes nothing. All lanes of a warp call these functions.
 */
#ifndef EMBD_CUDA_SQUARES_CUH
#define EMBD_CUDA_SQUARES_CUH

#include "server/store/cuda/kernels/values.cuh"

__device__ static inline four squared(four g, uint32_t column, uint32_t dim)
{
    four q;
    for (uint32_t i = 0; i < 4; i++)
        q.c[i] = column + i < dim ? g.c[i] * g.c[i] : 0.0f;
    return q;
}

/* Adds `give` of the lane `distance` away to `keep`: both lanes get the same sum. */
__device__ static inline float add_other(float keep, float give, uint32_t distance)
{
    return keep + __shfl_xor_sync(ALL_LANES, give, (int)distance);
}

/* A row of up to 64 columns, in a power of two of lanes: the first two exchanges halve the values
 * of each lane, so that four sums cost little more than one. */
__device__ static inline float squares_narrow(four g, uint32_t column, uint32_t dim, uint32_t lanes)
{
    four q = squared(g, column, dim);
    if (lanes == 1)
        return (q.c[0] + q.c[2]) + (q.c[1] + q.c[3]);
    uint32_t lane = threadIdx.x & (lanes - 1), half = lanes / 2, quarter = lanes / 4;
    bool upper = lane & half, odd = lane & quarter;
    float even_sum = add_other(upper ? q.c[2] : q.c[0], upper ? q.c[0] : q.c[2], half);
    float odd_sum = add_other(upper ? q.c[3] : q.c[1], upper ? q.c[1] : q.c[3], half);
    if (lanes == 2)
        return add_other(even_sum, even_sum, 1) + add_other(odd_sum, odd_sum, 1);
    float sum = add_other(odd ? odd_sum : even_sum, odd ? even_sum : odd_sum, quarter);
    for (uint32_t distance = lanes / 8; distance; distance /= 2)
        sum = add_other(sum, sum, distance);
    sum = add_other(sum, sum, half);
    return add_other(sum, sum, quarter);
}

/* A wider row uses all 32 lanes: adds 128 of its columns to s. Lanes m, m + 8, m + 16, m + 24 hold
 * columns of one lane of the rule. */
__device__ static inline void squares_add(float s[4], four g, uint32_t column, uint32_t dim)
{
    four q = squared(g, column, dim);
    for (uint32_t from = threadIdx.x % 8; from < 32; from += 8)
        for (uint32_t i = 0; i < 4; i++)
            s[i] += __shfl_sync(ALL_LANES, q.c[i], (int)from);
}

__device__ static inline float squares_finish(float s[4])
{
    for (uint32_t distance = 4; distance; distance /= 2)
        for (uint32_t i = 0; i < 4; i++)
            s[i] = add_other(s[i], s[i], distance);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* A row whose lanes hold all of its columns. */
__device__ static inline float squares_whole(four g, uint32_t column, uint32_t dim, uint32_t lanes)
{
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (lanes < 32)
        return squares_narrow(g, column, dim, lanes);
    squares_add(s, g, column, dim);
    return squares_finish(s);
}

#endif
