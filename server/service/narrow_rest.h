/* narrow_rest.h - how long a replica with narrow rows rests between two sweeps.
 *
 * A row that many pushes change is read once for all of them: the longer the rest, the less a push
 * costs the server. A row that is shown is as old as two sweeps and the rest between them at most.
 * So sweeps take a twentieth of the time of the server's shard, as long as rows get no older than
 * NARROW_AGE_MS by that, and half of it at most. */
#ifndef EMBD_SERVICE_NARROW_REST_H
#define EMBD_SERVICE_NARROW_REST_H

#include <stdint.h>

#define NARROW_REST_LEAST_MS 50u
#define NARROW_REST_MOST_MS  2000u
#define NARROW_AGE_MS        800u
#define NARROW_SHARE         20u
/* What rows take of the time of the server's shard, about. */
#define NARROW_ROW_NS 60u
#define NARROW_KIB_NS 200u

static inline uint64_t narrow_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* After a sweep of so many rows, and bytes of rows as they are there. */
static inline uint32_t narrow_rest_ms(uint64_t took_ms, uint64_t rows, uint64_t bytes)
{
    uint64_t cost_ns = rows * NARROW_ROW_NS + bytes / 1024 * NARROW_KIB_NS;
    uint64_t share_ms = cost_ns * NARROW_SHARE / 1000000;
    uint64_t age_ms = 2 * took_ms < NARROW_AGE_MS ? NARROW_AGE_MS - 2 * took_ms : 0;
    uint64_t ms = narrow_least(share_ms, age_ms);
    ms = narrow_least(ms > took_ms ? ms : took_ms, NARROW_REST_MOST_MS);
    return ms > NARROW_REST_LEAST_MS ? (uint32_t)ms : NARROW_REST_LEAST_MS;
}

#endif
