/* pause.c - how long pushes wait while a snapshot of a large table is made: gpu-pause ADDRESS
 * MILLION_KEYS SNAPSHOTS
 *
 * Fills a table of rows of 256 bytes (64 M keys: 16 GiB), then PUSHERS trainers push BATCH keys
 * drawn at random without a pause, each waiting for its answer: for some seconds, then beside one
 * snapshot after the other. Prints the quantiles of their latencies for both, and how long the
 * servers held pushes for the cut. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "embd/embd.h"
#include "embd/admin.h"

enum { DIM = 64, PUSHERS = 4, BATCH = 4096, FILL = 32768, QUIET_S = 3 };
#define LATENCIES ((size_t)1 << 20)

struct pusher {
    pthread_t thread;
    const char *address;
    uint64_t seed, first, end; /* keys that it fills */
    atomic_size_t n;
    double *began, *took; /* [LATENCIES] ms */
};

static atomic_bool is_over;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void check(embd_client *client, int status, const char *what)
{
    if (status == EMBD_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, embd_status_text(status),
            client ? embd_error_text() : "");
    exit(1);
}

static embd_client *connect_to(const char *address)
{
    embd_client *client = NULL;
    embd_options options;
    const char *why = embd_error_text();
    embd_options_init(&options);
    options.deadline_ms = 60000;
    if (embd_connect(address, &options, &client) != EMBD_OK) {
        fprintf(stderr, "connecting: %s\n", why);
        exit(1);
    }
    return client;
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

static embd_table *open_table(embd_client *client)
{
    embd_table *table = NULL;
    check(client, embd_table_open(client, "pause", &table), "opening the table");
    return table;
}

static void *fill(void *arg)
{
    struct pusher *p = arg;
    embd_client *client = connect_to(p->address);
    embd_part part = EMBD_PART(.table = open_table(client), .raw = true);
    uint64_t *keys = malloc(FILL * sizeof *keys);
    part.keys = keys;
    part.values = calloc((size_t)FILL * DIM, sizeof *part.values);
    for (uint64_t at = p->first; at < p->end; at += part.n_keys) {
        part.n_keys = p->end - at < FILL ? p->end - at : FILL;
        for (uint64_t i = 0; i < part.n_keys; i++)
            keys[i] = mixed(at + i);
        check(client, embd_push(client, &part, 1, NULL), "filling the table");
    }
    free(part.values);
    free(keys);
    embd_close(client);
    return NULL;
}

static void *push(void *arg)
{
    struct pusher *p = arg;
    embd_client *client = connect_to(p->address);
    embd_part part = EMBD_PART(.table = open_table(client), .n_keys = BATCH, .raw = true);
    uint64_t *keys = malloc(BATCH * sizeof *keys), n_all = p->end;
    part.keys = keys;
    part.values = malloc((size_t)BATCH * DIM * sizeof *part.values);
    for (uint32_t i = 0; i < BATCH * DIM; i++)
        part.values[i] = (float)(i % 17) - 8;
    for (size_t n = 0; n < LATENCIES && !atomic_load(&is_over); n++) {
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = mixed(mixed(++p->seed) % n_all);
        p->began[n] = now_ms();
        check(client, embd_push(client, &part, 1, NULL), "pushing");
        p->took[n] = now_ms() - p->began[n];
        atomic_store(&p->n, n + 1);
    }
    free(part.values);
    free(keys);
    embd_close(client);
    return NULL;
}

static void start(struct pusher pushers[PUSHERS], void *(*run)(void *arg))
{
    for (int i = 0; i < PUSHERS; i++)
        if (pthread_create(&pushers[i].thread, NULL, run, &pushers[i]) != 0)
            exit(1);
}

static void join(struct pusher pushers[PUSHERS])
{
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(pushers[i].thread, NULL);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of pushes that were under way between two moments. */
static void print(const struct pusher pushers[PUSHERS], double begin, double end, const char *when)
{
    double *all = malloc(PUSHERS * LATENCIES * sizeof *all);
    size_t n_all = 0;
    for (int p = 0; p < PUSHERS; p++)
        for (size_t i = 0, n = atomic_load(&pushers[p].n); i < n; i++)
            if (pushers[p].began[i] < end && pushers[p].began[i] + pushers[p].took[i] > begin)
                all[n_all++] = pushers[p].took[i];
    if (n_all == 0)
        exit(1);
    qsort(all, n_all, sizeof *all, compare);
    printf("  %-22s %6.1f s, %5.2f M keys/s; a push %6.2f ms median, %6.2f p99, %6.2f p99.9, %6.2f "
           "longest\n",
           when, (end - begin) / 1e3, (double)n_all * BATCH / 1e3 / (end - begin), all[n_all / 2],
           all[(size_t)((double)(n_all - 1) * 0.99)], all[(size_t)((double)(n_all - 1) * 0.999)],
           all[n_all - 1]);
    free(all);
}

static void snapshot(embd_client *client, const struct pusher pushers[PUSHERS], int number)
{
    char name[16], when[64];
    embd_snapshot_options options = EMBD_SNAPSHOT_OPTIONS(.keep = 1);
    embd_dump_report report;
    snprintf(name, sizeof name, "s%d", number);
    double begin = now_ms();
    check(client, embd_snapshot(client, name, &options, &report), "the snapshot");
    double end = now_ms();
    snprintf(when, sizeof when, "snapshot %d", number);
    print(pushers, begin, end, when);
    printf("  %-22s %.2f GiB written, pushes held %.2f ms\n", "", (double)report.bytes / (1 << 30),
           (double)report.pause_us / 1e3);
}

int main(int argc, char **argv)
{
    static struct pusher pushers[PUSHERS];
    embd_schema schema;
    if (argc != 4)
        return 2;
    uint64_t n_keys = strtoull(argv[2], NULL, 10) << 20;
    embd_client *client = connect_to(argv[1]);
    embd_schema_init(&schema);
    strcpy(schema.name, "pause");
    schema.dim = DIM;
    schema.durability = EMBD_DURABILITY_SNAPSHOT;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 0.01f);
    check(client, embd_table_create(client, &schema), "creating the table");
    for (uint64_t i = 0; i < PUSHERS; i++) {
        pushers[i] = (struct pusher){.address = argv[1],
                                     .seed = i << 40,
                                     .first = n_keys * i / PUSHERS,
                                     .end = n_keys * (i + 1) / PUSHERS};
        pushers[i].began = malloc(LATENCIES * sizeof(double));
        pushers[i].took = malloc(LATENCIES * sizeof(double));
    }
    double begin = now_ms();
    start(pushers, fill);
    join(pushers);
    printf("%s M rows of 256 bytes (filled in %.1f s), %d trainers that push %d keys:\n", argv[2],
           (now_ms() - begin) / 1e3, PUSHERS, BATCH);
    for (int i = 0; i < PUSHERS; i++)
        pushers[i].end = n_keys;
    start(pushers, push);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* what is new to the device is made */
    begin = now_ms();
    nanosleep(&(struct timespec){.tv_sec = QUIET_S}, NULL);
    print(pushers, begin, now_ms(), "no snapshot");
    for (int i = 0; i < atoi(argv[3]); i++)
        snapshot(client, pushers, i);
    atomic_store(&is_over, true);
    join(pushers);
    embd_close(client);
    for (int i = 0; i < PUSHERS; i++) {
        free(pushers[i].began);
        free(pushers[i].took);
    }
    return 0;
}
