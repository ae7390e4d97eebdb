/* suite.h - the bars embd is held to, measured in one go. */
#ifndef EMBD_BENCH_SUITE_H
#define EMBD_BENCH_SUITE_H

#include "client/bench/options.h"

/* Whether every name in the comma-separated list is a part of the suite; "" is all of it. */
bool suite_has(const char *parts);

/* Measures those parts and prints. An exit code: FAILED also where `check` is set and a bar was
 * missed. */
int suite_run(const struct options *options, const char *parts, bool check);

#endif
