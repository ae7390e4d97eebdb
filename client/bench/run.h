/* run.h - one workload: embd beside the transport, the ceiling and the memory. */
#ifndef EMBD_BENCH_RUN_H
#define EMBD_BENCH_RUN_H

#include "client/bench/options.h"

/* Measures and prints. An exit code. */
int run_one(const struct options *options);

#endif
