/* server_process.h - an embd server of this program's own. */
#ifndef EMBD_BENCH_SERVER_PROCESS_H
#define EMBD_BENCH_SERVER_PROCESS_H

#include "client/bench/cpu.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVER_ADDRESS_BYTES 300u

struct server_process {
    pid_t pid;                          /* 0: none runs */
    char servers[SERVER_ADDRESS_BYTES]; /* "host:port" of its first shard */
};

/* Starts `binary` (NULL: the embd beside this program) on free loopback ports, shard i on the i-th
 * of `cpus`, and waits until it serves. `verbose` shows its log. It ends with this process. 0 or an
 * exit code, after saying why. */
int server_process_start(struct server_process *s, const char *binary, uint32_t shards,
                         const struct cpu_list *cpus, bool verbose);
void server_process_stop(struct server_process *s);

#endif
