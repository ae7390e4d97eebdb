/* shards.c - what a call costs its client in processor time where its keys are on many shards of
 * one process. By hand: bench-shards [KEYS [DIM [CALLS [SHARDS...]]]]. EMBD_TRANSPORT and
 * EMBD_TRUNK choose the way. It prints the least and the median of one call's time, for pulls and
 * pushes, what they are in times of those of the first number of shards, and the server's time of a
 * call, its start and end among them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "client/bench/server_process.h"
#include "client/bench/workload.h"
#include "embd/embd.h"

#define ROWS       100000u
#define WARM       3u
#define LINE_BYTES 64u

static void must(int status)
{
    if (status == EMBD_OK)
        return;
    fprintf(stderr, "bench-shards: %s\n", embd_error_text());
    exit(1);
}

/* From the beginning of a cache line on: where rows that are as long lie across two, a pull of few
 * shards takes a quarter longer. */
static void *room(size_t bytes)
{
    void *memory = aligned_alloc(LINE_BYTES, (bytes + LINE_BYTES) / LINE_BYTES * LINE_BYTES);
    if (memory == NULL)
        exit(1);
    return memset(memory, 0, bytes);
}

/* Of this process. */
static double processor_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Of servers that have ended. */
static double servers_ms(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef int call(embd_client *client, const embd_part *parts, size_t n,
                 const embd_call_options *options);

/* Sorted. */
static void measure(call *run, embd_client *client, const embd_part *part, double *ms, uint32_t n)
{
    for (uint32_t i = 0; i < WARM + n; i++) {
        double began = processor_ms();
        must(run(client, part, 1, NULL));
        if (i >= WARM)
            ms[i - WARM] = processor_ms() - began;
    }
    qsort(ms, n, sizeof *ms, ascending);
}

static embd_table *make_table(embd_client *client, uint32_t dim)
{
    embd_schema schema;
    embd_table *table;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "t");
    schema.dim = dim;
    schema.durability = EMBD_DURABILITY_SNAPSHOT;
    must(embd_table_create(client, &schema));
    must(embd_table_open(client, schema.name, &table));
    return table;
}

struct costs {
    double push, pull;
};

static void measure_shards(uint32_t shards, uint32_t n_keys, uint32_t dim, uint32_t calls,
                           struct costs *first)
{
    struct server_process server = {0};
    struct cpu_list allowed, cpus;
    embd_client *client;
    uint64_t *keys = room(n_keys * sizeof *keys);
    float *values = room((size_t)n_keys * dim * sizeof *values);
    double *ms = room(2 * calls * sizeof *ms), *pulls = ms + calls;
    cpu_list_allowed(&allowed);
    cpu_list_place(&cpus, &(struct cpu_list){0}, &allowed, 1, 1);
    if (server_process_start(&server, NULL, shards, &cpus, false) != 0)
        exit(1);
    cpu_list_place(&cpus, &(struct cpu_list){0}, &allowed, 0, 1);
    cpu_pin_to(&cpus);
    must(embd_connect(server.servers, NULL, &client));
    for (uint32_t i = 0; i < n_keys; i++)
        keys[i] = workload_key(i % ROWS);
    const embd_part part = EMBD_PART(.table = make_table(client, dim), .n_keys = n_keys,
                                     .keys = keys, .values = values, .raw = true);
    measure(embd_push, client, &part, ms, calls);
    measure(embd_pull, client, &part, pulls, calls);
    if (first->pull == 0)
        *first = (struct costs){ms[calls / 2], pulls[calls / 2]};
    printf("%5u shards: pull %6.2f ms, median %6.2f (%5.2f times); push %6.2f ms, median %6.2f "
           "(%5.2f times)",
           shards, pulls[0], pulls[calls / 2], pulls[calls / 2] / first->pull, ms[0], ms[calls / 2],
           ms[calls / 2] / first->push);
    double before = servers_ms();
    embd_close(client);
    server_process_stop(&server);
    printf("; server %6.2f ms\n", (servers_ms() - before) / (2 * (calls + WARM)));
    fflush(stdout);
    cpu_pin_to(&allowed);
    free(keys);
    free(values);
    free(ms);
}

static uint32_t number(int argc, char **argv, int i, uint32_t absent)
{
    return i < argc ? (uint32_t)strtoul(argv[i], NULL, 10) : absent;
}

int main(int argc, char **argv)
{
    static const uint32_t usual[] = {8, 64, 256, 1000};
    uint32_t n_keys = number(argc, argv, 1, 65536), dim = number(argc, argv, 2, 16),
             calls = number(argc, argv, 3, 21), n = argc > 4 ? (uint32_t)argc - 4 : 4;
    struct costs first = {0};
    for (uint32_t i = 0; i < n; i++)
        measure_shards(argc > 4 ? number(argc, argv, 4 + (int)i, 1) : usual[i], n_keys, dim, calls,
                       &first);
    return 0;
}
