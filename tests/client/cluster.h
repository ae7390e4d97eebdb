/* cluster.h - real embd processes for tests, on free ports of 127.0.0.1. */
#ifndef EMBD_TESTS_CLUSTER_H
#define EMBD_TESTS_CLUSTER_H

#include <stdint.h>
#include <sys/types.h>

struct cluster {
    pid_t pid;
    char dir[64];     /* of its admin sockets and log; removed by cluster_stop */
    char address[64]; /* "127.0.0.1:port" of shard 0 */
};

/* Starts `program` with n shards; `port` 0: a free one. Fails the test (and the process) when it
 * does not come up. */
void cluster_start(struct cluster *cluster, const char *program, uint32_t n_shards, int port);
/* Likewise on a free port, with more flags: NULL ends them. */
void cluster_start_with(struct cluster *cluster, const char *program, uint32_t n_shards,
                        const char *const *flags);
/* Likewise at shards' ports from `port` on, for one that is to be started again. */
void cluster_start_at(struct cluster *cluster, const char *program, uint32_t n_shards, int port,
                      const char *const *flags);
/* The first of n ports in a row that nobody has. */
int cluster_free_ports(int n);
/* Ends it by its pid and waits. Returns its exit status; -1: it died of a signal. */
int cluster_stop(struct cluster *cluster);
/* At once, as a crash does. */
void cluster_kill(struct cluster *cluster);

#endif
