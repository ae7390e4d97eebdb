/* fast_clock.c - a server for which 2 ms pass whenever its loops look at the clock, or, where
 * EMBD_PASSES is "fill", whenever rows are made: linked into one in place of uv_hrtime and
 * shard_fill. Timers of libuv are as they were. */
#include <stdatomic.h>
#include <stdlib.h>
#include <uv.h>

#include "server/service/shard.h"

#define STEP_NS UINT64_C(2000000)

uint64_t __real_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void);
size_t __real_shard_fill(struct shard *shard, struct request *request, uint32_t bin, void *out,
                         size_t capacity);
size_t __wrap_shard_fill(struct shard *shard, struct request *request, uint32_t bin, void *out,
                         size_t capacity);

static _Atomic uint64_t passed_ns;

uint64_t __wrap_uv_hrtime(void)
{
    uint64_t step_ns = getenv("EMBD_PASSES") == NULL ? STEP_NS : 0;
    return __real_uv_hrtime() + atomic_fetch_add(&passed_ns, step_ns) + step_ns;
}

size_t __wrap_shard_fill(struct shard *shard, struct request *request, uint32_t bin, void *out,
                         size_t capacity)
{
    atomic_fetch_add(&passed_ns, STEP_NS);
    return __real_shard_fill(shard, request, bin, out, capacity);
}
