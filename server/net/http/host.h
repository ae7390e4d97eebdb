/* host.h - the resources of the process on its host: memory, and room for its data directory. The
 * main thread reads them for each page: a file system that hangs, for example a network's, delays
 * pages and signals, but no shard. */
#ifndef EMBD_HTTP_HOST_H
#define EMBD_HTTP_HOST_H

#include <stdbool.h>
#include <stdint.h>

/* The least of the machine's memory and the limits of the process's cgroup and of those around it
 * (memory.max; memory.limit_in_bytes of version 1). */
uint64_t host_memory_limit(void);
/* The same by another /proc/self/cgroup and /sys/fs/cgroup; UINT64_MAX: no limit. */
uint64_t host_cgroup_limit(const char *cgroups_of_process, const char *root);

struct host_room {
    uint64_t free_bytes, bytes; /* that the process may take; of the file system */
};
/* False: it cannot be asked. */
bool host_room_read(const char *dir, struct host_room *out);

#endif
