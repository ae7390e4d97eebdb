/* cpu.c - affinity, clocks and /proc. A figure taken while the machine was busy with other things
 * is shown with how busy it was. */
#include "client/bench/cpu.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void cpu_list_allowed(struct cpu_list *out)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    out->n = 0;
    sched_getaffinity(0, sizeof set, &set);
    for (size_t i = 0; i < CPU_MAX && i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &set))
            out->ids[out->n++] = (int)i;
    }
    if (out->n == 0)
        out->ids[out->n++] = 0;
}

static bool contains(const struct cpu_list *list, long cpu)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->ids[i] == cpu)
            return true;
    }
    return false;
}

/* A number below CPU_MAX at *text, which moves past it; -1: none. */
static long parse_cpu(const char **text)
{
    char *end;
    if (**text < '0' || **text > '9')
        return -1;
    unsigned long value = strtoul(*text, &end, 10);
    *text = end;
    return value < CPU_MAX ? (long)value : -1;
}

int cpu_list_parse(const char *text, const struct cpu_list *allowed, struct cpu_list *out)
{
    out->n = 0;
    for (;;) {
        long first = parse_cpu(&text), last = first;
        if (*text == '-') {
            text++;
            last = parse_cpu(&text);
        }
        if (first < 0 || last < first)
            return -1;
        for (long c = first; c <= last; c++) {
            if (!contains(allowed, c) || out->n == CPU_MAX)
                return -1;
            out->ids[out->n++] = (int)c;
        }
        if (*text == '\0')
            return 0;
        if (*text++ != ',')
            return -1;
    }
}

void cpu_pin_to(const struct cpu_list *list)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < list->n; i++)
        CPU_SET((size_t)list->ids[i], &set);
    sched_setaffinity(0, sizeof set, &set);
}

void cpu_list_place(struct cpu_list *out, const struct cpu_list *asked,
                    const struct cpu_list *allowed, uint32_t first, uint32_t n)
{
    out->n = n;
    for (uint32_t i = 0; i < n; i++)
        out->ids[i] = asked->n ? asked->ids[i % asked->n] : allowed->ids[(first + i) % allowed->n];
}

void cpu_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

uint64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static double own_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return seconds_of(use.ru_utime) + seconds_of(use.ru_stime);
}

/* User and system time of another process: fields 14 and 15 of its stat, after the name in
 * parentheses. */
static double process_ticks(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *name_end = strrchr(text, ')');
    unsigned long user = 0, system = 0;
    if (name_end)
        sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system);
    return (double)(user + system);
}

/* The first line of /proc/stat: user nice system idle iowait irq softirq steal. */
static void machine_ticks(double *busy, double *steal)
{
    unsigned long long v[8] = {0};
    FILE *f = fopen("/proc/stat", "r");
    *busy = *steal = 0;
    if (!f)
        return;
    if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
               &v[5], &v[6], &v[7]) == 8) {
        *busy = (double)(v[0] + v[1] + v[2] + v[5] + v[6]);
        *steal = (double)v[7];
    }
    fclose(f);
}

void cpu_times_read(struct cpu_times *out, const pid_t *pids, uint32_t n_pids)
{
    double hz = (double)sysconf(_SC_CLK_TCK);
    machine_ticks(&out->busy, &out->steal);
    out->busy /= hz;
    out->steal /= hz;
    out->ours = own_seconds();
    for (uint32_t i = 0; i < n_pids; i++)
        out->ours += process_ticks(pids[i]) / hz;
    out->wall = (double)cpu_now_ns() * 1e-9;
}
