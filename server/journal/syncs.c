/* syncs.c - see syncs.h. */
#include "server/journal/syncs.h"

static uint64_t get(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void set(_Atomic uint64_t *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

void syncs_note(struct syncs *syncs, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t took_ns = end_ns - begin_ns, age_ns = end_ns - get(&syncs->since_ns);
    set(&syncs->n, get(&syncs->n) + 1);
    set(&syncs->total_ns, get(&syncs->total_ns) + took_ns);
    if (age_ns >= SYNCS_WINDOW_NS) {
        set(&syncs->longest_before_ns, age_ns < 2 * SYNCS_WINDOW_NS ? get(&syncs->longest_ns) : 0);
        set(&syncs->longest_ns, 0);
        set(&syncs->since_ns, end_ns);
    }
    if (took_ns > get(&syncs->longest_ns))
        set(&syncs->longest_ns, took_ns);
}

uint64_t syncs_longest_ns(const struct syncs *syncs, uint64_t now_ns)
{
    uint64_t since_ns = get(&syncs->since_ns), age_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    uint64_t longest_ns = get(&syncs->longest_ns), before_ns = get(&syncs->longest_before_ns);
    if (age_ns >= 2 * SYNCS_WINDOW_NS)
        return 0;
    return age_ns >= SYNCS_WINDOW_NS || longest_ns > before_ns ? longest_ns : before_ns;
}
