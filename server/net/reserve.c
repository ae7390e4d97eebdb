/* reserve.c - see reserve.h. */
#include "server/net/reserve.h"

#include <assert.h>

enum { TIGHT_READ_BYTES = 4 << 10 }; /* one read, when little is left */

size_t reserve_room(struct hub *hub, size_t bytes, size_t more)
{
    struct frame_budget *budget = hub->pool.budget;
    if (bytes > TIGHT_READ_BYTES && frame_budget_is_tight(budget))
        bytes = TIGHT_READ_BYTES;
    uint64_t wanted = bytes + more;
    if (hub->reserve < wanted && frame_budget_take(budget, wanted - hub->reserve))
        hub->reserve = wanted;
    if (hub->reserve >= wanted)
        return bytes;
    return hub->reserve > more ? (size_t)(hub->reserve - more) : 0;
}

void reserve_spend(struct hub *hub, uint64_t bytes)
{
    assert(bytes <= hub->reserve);
    hub->reserve -= bytes;
}

void reserve_give(struct hub *hub)
{
    frame_budget_give(hub->pool.budget, hub->reserve);
    hub->reserve = 0;
}
