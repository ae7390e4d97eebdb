/* flags.h - the command line of whatever measures embd. */
#ifndef EMBD_BENCH_FLAGS_H
#define EMBD_BENCH_FLAGS_H

#include "client/bench/options.h"

#include <argp.h>

/* One million rows of 16 columns, pulls of 65,536 keys, five rounds of a second. */
void flags_defaults(struct options *o);

/* A child for an argp parser; its input is a `struct options`. A wrong flag ends the program. */
extern const struct argp flags_parser;

#endif
