/* found.cuh - keeps what a pull found of one key: lookup.h. */
#ifndef EMBD_CUDA_FOUND_CUH
#define EMBD_CUDA_FOUND_CUH

#include "server/store/cuda/kernels/keytable.cuh"
#include "server/store/cuda/kernels/own.cuh"

/* Of key i of n. Own: key_set where ref may be REF_OUTSIDE. */
template <class Own>
__device__ static inline void found_set(const found_view &f, uint32_t n, uint32_t i, uint64_t key,
                                        uint32_t slot, uint32_t ref)
{
    f.keys[i] = key;
    f.items[i] = item_of(is_row(ref) ? ref : 0, i);
    if (f.slots)
        f.slots[i] = (uint16_t)slot;
    if (!std::is_same<Own, own_all>::value && !is_row(ref) && !is_outside<Own>(ref))
        f.keys[n] = 1;
}

#endif
