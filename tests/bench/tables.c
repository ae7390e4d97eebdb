/* tables.c - what it costs that rows stand in many tables: pulls and pushes of as many keys of one
 * table and of many, by turns, in one run. By hand: bench-tables [TABLES [KEYS [DIM [SERVER]]]],
 * with SERVER another program. It prints medians, and what many take in times of what one takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/bench/server_process.h"
#include "client/bench/workload.h"
#include "embd/embd.h"

#define CALLS 101u
#define WARM  11u

static void must(int status)
{
    if (status == EMBD_OK)
        return;
    fprintf(stderr, "bench-tables: %s\n", embd_error_text());
    exit(1);
}

static void *room(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        exit(1);
    return memory;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static embd_table *make_table(embd_client *client, uint32_t i, uint32_t dim)
{
    embd_schema schema;
    embd_table *table;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "t%u", i);
    schema.dim = dim;
    schema.durability = EMBD_DURABILITY_SNAPSHOT;
    must(embd_table_create(client, &schema));
    must(embd_table_open(client, schema.name, &table));
    return table;
}

/* Parts 0 .. n have the keys of all; part n, of a table of its own, has them together. */
static embd_part *make_parts(embd_client *client, uint32_t n, uint32_t n_keys, uint32_t dim)
{
    embd_part *parts = room((n + 1) * sizeof *parts);
    uint64_t *keys = room((size_t)n * n_keys * sizeof *keys);
    float *values = room((size_t)n * n_keys * dim * sizeof *values);
    for (uint64_t i = 0; i < (uint64_t)n * n_keys; i++)
        keys[i] = workload_key(i);
    for (uint32_t i = 0; i <= n; i++) {
        size_t first = i == n ? 0 : (size_t)i * n_keys;
        const embd_part part =
            EMBD_PART(.table = make_table(client, i, dim),
                      .n_keys = i == n ? (size_t)n * n_keys : n_keys, .keys = keys + first,
                      .values = values + first * dim, .raw = true);
        parts[i] = part;
    }
    return parts;
}

typedef int call(embd_client *client, const embd_part *parts, size_t n,
                 const embd_call_options *options);

static double timed(call *run, embd_client *client, const embd_part *parts, size_t n)
{
    double began = seconds();
    must(run(client, parts, n, NULL));
    return seconds() - began;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, call *run, embd_client *client, const embd_part *parts,
                    uint32_t n)
{
    double one[CALLS], many[CALLS];
    for (uint32_t i = 0; i < WARM + CALLS; i++) {
        uint32_t at = i < WARM ? 0 : i - WARM;
        one[at] = timed(run, client, parts + n, 1);
        many[at] = timed(run, client, parts, n);
    }
    qsort(one, CALLS, sizeof *one, ascending);
    qsort(many, CALLS, sizeof *many, ascending);
    printf("%s: one table %.3f ms, %u tables %.3f ms, %.2f times\n", name, one[CALLS / 2] * 1e3, n,
           many[CALLS / 2] * 1e3, many[CALLS / 2] / one[CALLS / 2]);
}

static uint32_t number(int argc, char **argv, int i, uint32_t absent)
{
    return i < argc ? (uint32_t)strtoul(argv[i], NULL, 10) : absent;
}

int main(int argc, char **argv)
{
    uint32_t n = number(argc, argv, 1, 500), n_keys = number(argc, argv, 2, 128),
             dim = number(argc, argv, 3, 64);
    struct server_process server = {0};
    struct cpu_list allowed, cpus;
    embd_client *client;
    cpu_list_allowed(&allowed);
    cpu_list_place(&cpus, &(struct cpu_list){0}, &allowed, 1, 1);
    if (server_process_start(&server, argc > 4 ? argv[4] : NULL, 1, &cpus, false) != 0)
        return 1;
    must(embd_connect(server.servers, NULL, &client));
    embd_part *parts = make_parts(client, n, n_keys, dim);
    printf("%u tables of %u keys of %u columns\n", n, n_keys, dim);
    measure("push", embd_push, client, parts, n);
    measure("pull", embd_pull, client, parts, n);
    embd_close(client);
    server_process_stop(&server);
    free((void *)(uintptr_t)parts[n].keys);
    free(parts[n].values);
    free(parts);
    return 0;
}
