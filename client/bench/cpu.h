/* cpu.h - which processors threads run on, and what else the machine did meanwhile. */
#ifndef EMBD_BENCH_CPU_H
#define EMBD_BENCH_CPU_H

#include <stdint.h>
#include <sys/types.h>

#define CPU_MAX 1024u

/* The processors this process may use, ascending; the process's affinity at its start. */
struct cpu_list {
    uint32_t n;
    int ids[CPU_MAX];
};
void cpu_list_allowed(struct cpu_list *out);
/* "0,2-3". 0, or -1: not such a list, or a processor that may not be used. */
int cpu_list_parse(const char *text, const struct cpu_list *allowed, struct cpu_list *out);

/* Places for n threads: the requested ones, or allowed ones from the first-th on, in turn. */
void cpu_list_place(struct cpu_list *out, const struct cpu_list *asked,
                    const struct cpu_list *allowed, uint32_t first, uint32_t n);

/* The calling thread runs on this processor, and what it starts too. */
void cpu_pin(int cpu);
void cpu_pin_to(const struct cpu_list *list);

/* Seconds since boot that all processors were busy, that the host took, and that the given
 * processes and this one used. */
struct cpu_times {
    double wall, busy, steal, ours;
};
void cpu_times_read(struct cpu_times *out, const pid_t *pids, uint32_t n_pids);

uint64_t cpu_now_ns(void); /* monotonic */

#endif
