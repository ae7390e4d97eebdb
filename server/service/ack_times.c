/* ack_times.c - see ack_times.h. */
#include "server/service/ack_times.h"

#include <stdlib.h>

#include "proto/follow.h"

#define N_NOTES UINT64_C(1024)

enum { EVERY_FINE_NS = 1000000, EVERY_COARSE_NS = 100000000 };

/* That record, and those behind it, were acknowledged at `ns` or later. */
struct ack_note {
    uint64_t position, ns;
};

struct ack_ring {
    struct ack_note list[N_NOTES]; /* the newest at (n - 1) % N_NOTES */
    uint64_t n;
};

struct ack_times {
    uint64_t next; /* the first record that no note stands for */
    struct ack_ring fine, coarse;
};

_Static_assert(EVERY_COARSE_NS *N_NOTES >= UINT64_C(1000) * FOLLOW_AGE_MOST_US,
               "notes go back as far as an age");

struct ack_times *ack_times_new(uint64_t position)
{
    struct ack_times *times = calloc(1, sizeof *times);
    if (times != NULL)
        times->next = position;
    return times;
}

void ack_times_free(struct ack_times *times)
{
    free(times);
}

static void add(struct ack_ring *ring, uint64_t every_ns, uint64_t position, uint64_t now_ns)
{
    if (ring->n > 0 && now_ns - ring->list[(ring->n - 1) % N_NOTES].ns < every_ns)
        return;
    ring->list[ring->n++ % N_NOTES] = (struct ack_note){position, now_ns};
}

/* A journal that begins anew has lower positions. */
void ack_times_note(struct ack_times *times, uint64_t end, uint64_t now_ns)
{
    if (end < times->next)
        *times = (struct ack_times){.next = end};
    if (end == times->next)
        return;
    add(&times->fine, EVERY_FINE_NS, times->next, now_ns);
    add(&times->coarse, EVERY_COARSE_NS, times->next, now_ns);
    times->next = end;
}

/* 0: it is older than the notes, or than all that are kept. */
static uint64_t find(const struct ack_ring *ring, uint64_t position)
{
    uint64_t kept = ring->n < N_NOTES ? ring->n : N_NOTES;
    for (uint64_t i = 1; i <= kept; i++) {
        const struct ack_note *note = &ring->list[(ring->n - i) % N_NOTES];
        if (note->position <= position)
            return note->ns;
    }
    return 0;
}

uint64_t ack_times_age_us(const struct ack_times *times, uint64_t position, uint64_t now_ns)
{
    uint64_t ns = find(&times->fine, position);
    if (ns == 0)
        ns = find(&times->coarse, position);
    uint64_t us = (now_ns - ns) / 1000 + 1;
    return ns == 0 || us > FOLLOW_AGE_MOST_US ? FOLLOW_AGE_MOST_US : us;
}
