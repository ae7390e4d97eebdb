/* link_figures.h - what a link has done: counted by the loop's thread, read by any. A counter has
 * one writer, so that counting takes no lock and no locked instruction. */
#ifndef EMBD_IO_LINK_FIGURES_H
#define EMBD_IO_LINK_FIGURES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "embd/admin.h"

typedef atomic_uint_fast64_t counter;

struct latency {
    counter sum_ns, buckets[EMBD_LATENCY_BUCKETS];
};

struct link_figures {
    atomic_bool is_connected, is_local;
    counter connections, bytes_sent, bytes_received, repeats, failures, unnumbered;
    counter restarts, rollbacks;
    counter replicated_rollbacks; /* of these, with less of replicated tables, too */
    struct latency pulls, pushes;
};

static inline void embd__count(counter *c, uint64_t n)
{
    uint64_t before = atomic_load_explicit(c, memory_order_relaxed);
    atomic_store_explicit(c, before + n, memory_order_relaxed);
}

/* Bucket i has what took 2^i us at most, and more than bucket i - 1; the last one what took longer.
 */
static inline uint32_t embd__latency_bucket(uint64_t ns)
{
    uint64_t below_us = ns > 0 ? (ns - 1) / 1000 : 0;
    uint32_t i = below_us == 0 ? 0 : 64u - (uint32_t)__builtin_clzll(below_us);
    return i < EMBD_LATENCY_BUCKETS - 1 ? i : EMBD_LATENCY_BUCKETS - 1;
}

static inline void embd__latency_add(struct latency *latency, uint64_t ns)
{
    embd__count(&latency->sum_ns, ns);
    embd__count(&latency->buckets[embd__latency_bucket(ns)], 1);
}

#endif
