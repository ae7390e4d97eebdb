/* pace.c - see pace.h. Time without copying is not saved up, so that no burst follows it. */
#include "server/coordinator/pace.h"

#define NS_PER_S 1e9

uint64_t pace_left_ns(const struct pace *pace, uint64_t now_ns)
{
    return pace->rate > 0 && pace->due_ns > now_ns ? pace->due_ns - now_ns : 0;
}

/* Rounded up: bytes are never faster than the rate. */
static uint64_t duration_ns(double bytes, uint64_t rate)
{
    return (uint64_t)(bytes * NS_PER_S / (double)rate) + 1;
}

void pace_set(struct pace *pace, uint64_t rate, uint64_t now_ns)
{
    double owed = (double)pace_left_ns(pace, now_ns) * (double)pace->rate / NS_PER_S;
    pace->rate = rate;
    pace->due_ns = rate > 0 && owed > 0 ? now_ns + duration_ns(owed, rate) : 0;
}

void pace_owe(struct pace *pace, uint64_t bytes, uint64_t now_ns)
{
    if (pace->rate == 0 || bytes == 0)
        return;
    uint64_t from_ns = pace->due_ns > now_ns ? pace->due_ns : now_ns;
    pace->due_ns = from_ns + duration_ns((double)bytes, pace->rate);
}
