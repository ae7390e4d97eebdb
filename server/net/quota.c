/* quota.c - see quota.h. */
#include "server/net/quota.h"

#include "proto/assert.h"

static bool take(_Atomic uint64_t *counter, uint64_t bytes, uint64_t limit)
{
    uint64_t used = atomic_load_explicit(counter, memory_order_relaxed);
    do {
        if (bytes > limit || used > limit - bytes)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(counter, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void give(_Atomic uint64_t *counter, uint64_t bytes)
{
    atomic_fetch_sub_explicit(counter, bytes, memory_order_relaxed);
}

bool quota_take(struct quota *quota, uint64_t bytes)
{
    return take(&quota->used, bytes, quota->limit - quota->limit / 32);
}

bool quota_take_answer(struct quota *quota, uint64_t bytes)
{
    return take(&quota->used, bytes, quota->limit);
}

bool quota_take_connection(struct quota *quota, uint64_t bytes)
{
    if (!take(&quota->connections, bytes, quota->limit / 2))
        return false;
    if (take(&quota->used, bytes, quota->limit))
        return true;
    give(&quota->connections, bytes);
    return false;
}

void quota_give_connection(struct quota *quota, uint64_t bytes)
{
    give(&quota->connections, bytes);
    give(&quota->used, bytes);
}

bool quota_take_shared(struct quota *quota, uint64_t bytes)
{
    if (!take(&quota->shared, bytes, quota->limit / 4))
        return false;
    if (quota_take(quota, bytes))
        return true;
    give(&quota->shared, bytes);
    return false;
}

void quota_give_shared(struct quota *quota, uint64_t bytes)
{
    give(&quota->shared, bytes);
    give(&quota->used, bytes);
}

bool quota_take_large(struct quota *quota, uint64_t bytes)
{
    return take(&quota->large, bytes, quota->limit / 2);
}

/* ---- what the next read may bring ---- */

enum { TIGHT_READ_BYTES = 4 << 10 }; /* one read, when little is left */

size_t read_allowance_fill(struct read_allowance *allowance, size_t bytes, size_t more)
{
    if (bytes > TIGHT_READ_BYTES && quota_is_tight(allowance->quota))
        bytes = TIGHT_READ_BYTES;
    uint64_t wanted = bytes + more;
    if (allowance->bytes < wanted && quota_take(allowance->quota, wanted - allowance->bytes))
        allowance->bytes = wanted;
    if (allowance->bytes >= wanted)
        return bytes;
    return allowance->bytes > more ? (size_t)(allowance->bytes - more) : 0;
}

void read_allowance_spend(struct read_allowance *allowance, uint64_t bytes)
{
    EMBD_ASSERT(bytes <= allowance->bytes);
    allowance->bytes -= bytes;
}

void read_allowance_return(struct read_allowance *allowance)
{
    quota_give(allowance->quota, allowance->bytes);
    allowance->bytes = 0;
}
