/* lag.c - see lag.h. */
#include "server/service/lag.h"

#include "server/service/state.h"

uint64_t lag_ms(uint64_t fresh_ns)
{
    uint64_t ms = (clock_ns() - fresh_ns + 999999) / 1000000;
    return fresh_ns == 0 || ms > LIMIT_BEHIND_MS ? LIMIT_BEHIND_MS : ms;
}

int lag_check(struct call *call, uint64_t most_ms)
{
    uint64_t ms = call->reader.lag.ms;
    if (most_ms == 0 || ms <= most_ms)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_LOADING,
                           "shard %u of this replica is %llu ms behind, and max_behind is %llu: "
                           "try again, or pull from the server that it follows",
                           call->shard->config.index, (unsigned long long)ms,
                           (unsigned long long)most_ms);
}
