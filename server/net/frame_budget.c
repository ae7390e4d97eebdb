/* frame_budget.c - see frame_budget.h. */
#include "server/net/frame_budget.h"

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

bool frame_budget_take(struct frame_budget *budget, uint64_t bytes)
{
    return take(&budget->used, bytes, budget->limit - budget->limit / 32);
}

bool frame_budget_take_answer(struct frame_budget *budget, uint64_t bytes)
{
    return take(&budget->used, bytes, budget->limit);
}

void frame_budget_force(struct frame_budget *budget, uint64_t bytes)
{
    atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
}

void frame_budget_give(struct frame_budget *budget, uint64_t bytes)
{
    give(&budget->used, bytes);
}

bool frame_budget_take_connection(struct frame_budget *budget, uint64_t bytes)
{
    if (!take(&budget->connections, bytes, budget->limit / 2))
        return false;
    if (take(&budget->used, bytes, budget->limit))
        return true;
    give(&budget->connections, bytes);
    return false;
}

void frame_budget_give_connection(struct frame_budget *budget, uint64_t bytes)
{
    give(&budget->connections, bytes);
    give(&budget->used, bytes);
}

bool frame_budget_is_tight(const struct frame_budget *budget)
{
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    return used > budget->limit - budget->limit / 4;
}
