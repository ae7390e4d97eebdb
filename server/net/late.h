/* late.h - how late a shard's thread comes to its sockets: because it is stopped, gets no
 * processor, or is busy with one request. Requests wait unread meanwhile, which no figure of
 * requests shows: their time begins when they are read.
 *
 * The tick of the loop is due every so often; by how much it is late is noted. Owner: the shard's
 * thread. */
#ifndef EMBD_NET_LATE_H
#define EMBD_NET_LATE_H

#include <stdint.h>

#define LATE_WINDOW_NS UINT64_C(60000000000)

struct late {
    uint64_t ticked_ns; /* CLOCK_MONOTONIC; at first when ticks began */
    uint64_t total_ns;
    uint64_t since_ns; /* when the window began; its longest, and that of the window before it */
    uint64_t longest_ns, longest_before_ns;
};

/* A tick comes at `now_ns`; ticks are due every `period_ns`. Returns now_ns. */
uint64_t late_note(struct late *late, uint64_t period_ns, uint64_t now_ns);
/* The longest of the last one to two windows. */
uint64_t late_longest_ns(const struct late *late);

#endif
