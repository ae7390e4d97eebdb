/* late.c - see late.h. */
#include "server/net/late.h"

static void turn_window(struct late *late, uint64_t now_ns)
{
    if (now_ns - late->since_ns < LATE_WINDOW_NS)
        return;
    late->longest_before_ns = late->longest_ns;
    late->longest_ns = 0;
    late->since_ns = now_ns;
}

uint64_t late_note(struct late *late, uint64_t period_ns, uint64_t now_ns)
{
    uint64_t due_ns = late->ticked_ns + period_ns;
    uint64_t late_ns = now_ns > due_ns ? now_ns - due_ns : 0;
    late->ticked_ns = now_ns;
    late->total_ns += late_ns;
    turn_window(late, now_ns);
    if (late_ns > late->longest_ns)
        late->longest_ns = late_ns;
    return now_ns;
}

uint64_t late_longest_ns(const struct late *late)
{
    return late->longest_ns > late->longest_before_ns ? late->longest_ns : late->longest_before_ns;
}
