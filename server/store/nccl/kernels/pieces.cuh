/* pieces.cuh - pieces for several devices in one launch. Blocks take the pieces in turn, and each
 * device begins with another one: every link is busy all the time, and no device is written to by
 * all others at once. */
#ifndef EMBD_NCCL_PIECES_CUH
#define EMBD_NCCL_PIECES_CUH

#include "server/store/cuda/kernels/launch.cuh"
#include "server/store/nccl/kernels/move.h"

struct piece {
    uint32_t number, begin, end; /* things */
    uint64_t block;              /* blocks of the piece */
};

__device__ static inline piece piece_number(const device_places &p, uint32_t block)
{
    piece of;
    of.number = (p.first + block) % p.n;
    of.begin = p.starts.at[of.number];
    of.end = p.starts.at[of.number + 1];
    of.block = block / p.n;
    return of;
}

__device__ static inline piece piece_of_block(const device_places &p)
{
    return piece_number(p, blockIdx.x);
}

/* Blocks for all pieces, with `per_block` elements each; at most `most` for a piece. */
static inline unsigned blocks_for(const device_places &p, uint64_t per_block, uint64_t most)
{
    uint64_t longest = 1;
    for (uint32_t i = 0; i < p.n; i++) {
        uint64_t n = p.starts.at[i + 1] - p.starts.at[i];
        longest = n > longest ? n : longest;
    }
    uint64_t blocks = (longest + per_block - 1) / per_block;
    return (unsigned)((blocks < most ? blocks : most) * p.n);
}

#endif
