/* options.h - the options of the command line. */
#ifndef EMBD_BENCH_OPTIONS_H
#define EMBD_BENCH_OPTIONS_H

#include "client/bench/cpu.h"
#include "client/bench/workload.h"

#include <embd/embd.h>
#include <stdbool.h>

struct options {
    struct workload_spec work;
    double seconds, rate;
    uint32_t rounds, in_flight, clients, shards;
    embd_dtype dtype, wire;
    embd_plan plan;
    const char *transport;      /* as EMBD_TRANSPORT has it */
    bool lent;                  /* values lie in buffers of the library's */
    embd_durability durability; /* of the table; without --servers EMBD_DURABILITY_SNAPSHOT */
    const char *servers;        /* an existing cluster; NULL: start one */
    const char *server_bin;     /* NULL: look beside this program */
    struct cpu_list server_cpus, client_cpus; /* n = 0: chosen */
    struct cpu_list allowed;
    bool keys_given, dim_given;
    bool json, verbose, small;
};

#endif
