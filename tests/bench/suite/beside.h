/* beside.h - one workload: embd beside the transport, the ceiling and the memory. */
#ifndef EMBD_BENCH_BESIDE_H
#define EMBD_BENCH_BESIDE_H

#include "client/bench/options.h"

/* Measures and prints. An exit code. */
int beside_run(const struct options *options);

#endif
