/* monotonic.h - the clock by which waiting and work are measured: it does not follow the time of
 * day when that is set. */
#ifndef EMBD_LOG_MONOTONIC_H
#define EMBD_LOG_MONOTONIC_H

#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
