/* run.h - one workload. */
#ifndef EMBD_BENCH_RUN_H
#define EMBD_BENCH_RUN_H

#include "client/bench/options.h"

/* Measures and prints. An exit code. */
int run_workload(const struct options *options);

#endif
