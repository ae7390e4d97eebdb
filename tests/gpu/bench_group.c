/* bench_group.c - pulls of the nccl store in device memory, on all GPUs there are: every GPU has a
 * batch and gets its rows. Beside them what one GPU does with a batch of its own by the cuda
 * store's kernels, and what the links carry when nothing else is done. Medians. usage:
 * gpu-bench-group [million keys a GPU [peer|nccl]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "server/store/nccl/group.h"

#define DIM     64u
#define SLOTS   16u
#define QUERIES 4u
#define RUNS    9
#define CALLS   32 /* of a run, */
#define DEPTH   4  /* so many under way at a time */
#define STEP    ((uint32_t)2 << 20)

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu-bench-group: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *t, int n, double *spread_out)
{
    qsort(t, (size_t)n, sizeof *t, by_value);
    *spread_out = (t[n * 3 / 4] - t[n / 4]) / t[n / 2];
    return t[n / 2];
}

static void *device_memory_new(uint64_t bytes)
{
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes), "memory");
    return memory;
}

struct bench {
    struct group *group;
    struct table_schema schema;
    uint64_t n_keys; /* in the table */
    uint32_t n_rows, per_row;
    struct device_batch batches[QUERIES][WIRE_MAX], one[QUERIES];
};

struct ending {
    struct store_done done;
    int status, calls;
};

static void on_done(struct store_done *done, int status)
{
    struct ending *ending = (struct ending *)done;
    ending->status = status;
    ending->calls++;
}

static void finish(struct bench *b, const struct ending *ending)
{
    while (ending->calls == 0)
        store_nccl.collect((struct store *)b->group);
    if (ending->status == EMBD_OK)
        return;
    fprintf(stderr, "gpu-bench-group: %s\n", ending->done.error.text);
    exit(1);
}

/* ---- the table ---- */

static void open_table(struct bench *b, embd_partition partition)
{
    embd_schema s;
    struct embd__error e = {0};
    struct store *store;
    embd_schema_init(&s);
    strcpy(s.name, "bench");
    s.dim = DIM;
    s.slots = SLOTS;
    s.partition = partition;
    s.combiner = EMBD_COMBINER_SUM;
    embd_optimizer_init(&s.optimizer, EMBD_OPTIMIZER_SGD, 0.01f);
    s.capacity = b->n_keys;
    embd__schema_copy(&b->schema, &s, &e);
    if (store_nccl.open(&b->schema, &store, &e) != EMBD_OK) {
        fprintf(stderr, "gpu-bench-group: %s\n", e.text);
        exit(1);
    }
    b->group = (struct group *)store;
}

/* Key k is in slot k % SLOTS. */
static void fill(struct bench *b)
{
    uint64_t *keys = store_nccl.buffer_new(STEP * sizeof *keys);
    uint16_t *slots = store_nccl.buffer_new(STEP * sizeof *slots);
    bool has_slots = b->schema.s.partition == EMBD_PARTITION_SLOT;
    for (uint64_t first = 0; first < b->n_keys; first += STEP) {
        struct ending ending = {.done = {.fn = on_done}};
        struct store_change insert = {
            .kind = STORE_INSERT, .in = {STEP, STEP, keys, NULL, has_slots ? slots : NULL, NULL}};
        for (uint32_t i = 0; i < STEP; i++) {
            keys[i] = first + i;
            slots[i] = (uint16_t)((first + i) % SLOTS);
        }
        store_nccl.apply((struct store *)b->group, &insert, &ending.done);
        finish(b, &ending);
    }
    store_nccl.buffer_free(keys, STEP * sizeof *keys);
    store_nccl.buffer_free(slots, STEP * sizeof *slots);
}

/* ---- batches ---- */

static uint64_t random_number(void)
{
    static uint64_t state = 7;
    uint64_t x = state += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

static const void *to_device(const void *from, uint64_t bytes)
{
    void *to = device_memory_new(bytes);
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "a copy");
    return to;
}

static uint64_t random_key(const struct bench *b, uint32_t slot, bool is_first)
{
    uint64_t key;
    do
        key = random_number() % (b->n_keys / SLOTS) * SLOTS + slot;
    while (is_first && owner_of(b->schema.s.partition, b->group->n, key, slot) != 0);
    return key;
}

/* is_first: of keys that the first device owns. */
static struct device_batch make_batch(const struct bench *b, bool is_first)
{
    bool has_slots = b->schema.s.partition == EMBD_PARTITION_SLOT;
    uint32_t n_rows = b->n_rows, n_keys = n_rows * b->per_row;
    uint32_t step = has_slots && is_first ? b->group->n : 1;
    uint64_t *keys = malloc(n_keys * sizeof *keys);
    uint32_t *offsets = malloc((n_rows + 1) * sizeof *offsets);
    uint16_t *slots = malloc(n_rows * sizeof *slots);
    for (uint32_t r = 0; r <= n_rows; r++)
        offsets[r] = r * b->per_row;
    for (uint32_t r = 0; r < n_rows; r++)
        slots[r] = (uint16_t)(r * step % SLOTS);
    for (uint32_t i = 0; i < n_keys; i++)
        keys[i] = random_key(b, slots[i / b->per_row], is_first);
    struct device_batch batch = {.n_rows = n_rows,
                                 .n_keys = n_keys,
                                 .keys = to_device(keys, n_keys * sizeof *keys),
                                 .values =
                                     device_memory_new((uint64_t)n_rows * DIM * sizeof(float))};
    if (b->per_row > 1)
        batch.offsets = to_device(offsets, (n_rows + 1) * sizeof *offsets);
    if (has_slots)
        batch.slots = to_device(slots, n_rows * sizeof *slots);
    free(keys);
    free(offsets);
    free(slots);
    return batch;
}

static void make_batches(struct bench *b)
{
    for (uint32_t d = 0; d < b->group->n; d++) {
        check(cudaSetDevice((int)d), "a device");
        for (uint32_t q = 0; q < QUERIES; q++)
            b->batches[q][d] = make_batch(b, false);
    }
    check(cudaSetDevice(0), "a device");
    for (uint32_t q = 0; q < QUERIES; q++)
        b->one[q] = make_batch(b, true);
}

static void free_batch(struct device_batch *batch)
{
    cudaFree((void *)batch->keys);
    cudaFree((void *)batch->offsets);
    cudaFree((void *)batch->slots);
    cudaFree(batch->values);
}

static void free_batches(struct bench *b)
{
    for (uint32_t q = 0; q < QUERIES; q++) {
        for (uint32_t d = 0; d < b->group->n; d++)
            free_batch(&b->batches[q][d]);
        free_batch(&b->one[q]);
    }
}

/* ---- measured ---- */

/* Microseconds of one pull of all GPUs, where the next ones are asked for before it ends. */
static double time_group(struct bench *b, double *spread_out)
{
    double t[RUNS];
    struct store_pull pull = {.dtype = EMBD_DTYPE_F32};
    for (int run = -2; run < RUNS; run++) {
        struct ending endings[CALLS];
        double start = now_us();
        for (int i = 0; i < CALLS; i++) {
            endings[i] = (struct ending){.done = {.fn = on_done}};
            if (i >= DEPTH)
                finish(b, &endings[i - DEPTH]);
            flow_submit_batches(b->group, &pull, b->batches[(uint32_t)(run + 2 + i) % QUERIES],
                                &endings[i].done);
        }
        for (int i = CALLS - DEPTH; i < CALLS; i++)
            finish(b, &endings[i]);
        if (run >= 0)
            t[run] = (now_us() - start) / CALLS;
    }
    return median(t, RUNS, spread_out);
}

/* The same batch on one GPU, whose table has a GPU's share of the keys: its kernels alone. */
static double time_one(struct bench *b, double *spread_out)
{
    double t[RUNS];
    struct store *table = b->group->tables[0];
    struct table_view view = table->view;
    uint32_t n = b->n_rows * b->per_row, *refs, *row_of;
    check(cudaSetDevice(0), "a device");
    refs = device_memory_new(n * sizeof *refs);
    row_of = device_memory_new(n * sizeof *row_of);
    for (int run = -2; run < RUNS; run++) {
        double start = now_us();
        for (int i = 0; i < CALLS; i++) {
            const struct device_batch *batch = &b->one[(uint32_t)(run + 2 + i) % QUERIES];
            struct pull_view pull = {.in = {.n = n,
                                            .n_rows = b->n_rows,
                                            .keys = batch->keys,
                                            .offsets = batch->offsets,
                                            .slots = batch->slots,
                                            .row_of = batch->offsets ? row_of : NULL},
                                     .dtype = EMBD_DTYPE_F32,
                                     .divide = EMBD_COMBINER_CONCAT,
                                     .values = batch->values,
                                     .is_aligned = true};
            if (gather_fits(&view, &pull)) {
                launch_gather(view, pull, table->stream);
                continue;
            }
            launch_expand(pull.in, table->stream);
            launch_find(view, pull.in, refs, NULL, table->stream);
            launch_pool(view, pull, refs, table->stream);
        }
        check(cudaStreamSynchronize(table->stream), "a pull on one GPU");
        if (run >= 0)
            t[run] = (now_us() - start) / CALLS;
    }
    cudaFree(refs);
    cudaFree(row_of);
    return median(t, RUNS, spread_out);
}

/* ---- what the links carry ---- */

/* Bytes a microsecond that leave a GPU for others, when all send to all. */
static double link_rate(uint32_t n, enum wire_way way)
{
    uint64_t ns = wire_measure(way);
    return ns == UINT64_MAX ? 0 : (double)(n - 1) * WIRE_MEASURED_BYTES / ((double)ns / 1e3);
}

static void measure(struct bench *b, const char *what, embd_partition partition, uint32_t n_rows,
                    uint32_t per_row)
{
    double spread, spread_one;
    b->n_rows = n_rows;
    b->per_row = per_row;
    if (b->group == NULL) {
        open_table(b, partition);
        fill(b);
    }
    make_batches(b);
    uint32_t n = b->group->n;
    double us = time_group(b, &spread), one = time_one(b, &spread_one);
    uint32_t n_moved = partition == EMBD_PARTITION_SLOT ? n_rows : n_rows * per_row;
    if (b->group->has_parts)
        n_moved = n_rows * n;
    double away = (double)n_moved * DIM * sizeof(float) * (n - 1) / n;
    double link = link_rate(n, wire_is_peer() ? WIRE_BY_PEER : WIRE_BY_NCCL);
    printf("| %u GPUs, by %s: %-44s | %8.1f us | %4.1f %% | %6.2f G rows/s | %.2f of linear | %.2f "
           "of the "
           "links' %.0f GB/s |\n",
           n, wire_is_peer() ? "peer access" : "NCCL", what, us, 100 * spread,
           (double)n_rows * n / us / 1e3, one / us, link > 0 ? away / us / link : 0, link / 1e3);
    fflush(stdout);
    free_batches(b);
}

static void close_table(struct bench *b)
{
    store_nccl.close((struct store *)b->group);
    embd__schema_fini(&b->schema);
    b->group = NULL;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    int n = 0;
    check(cudaGetDeviceCount(&n), "devices");
    b.n_keys = (argc > 1 ? strtoull(argv[1], NULL, 10) : 16) << 20;
    if (argc > 2)
        store_gpus.way = strcmp(argv[2], "peer") == 0 ? STORE_WAY_PEER : STORE_WAY_NCCL;
    b.n_keys *= (uint64_t)n;
    measure(&b, "slot table, 10 keys a row of 256 bytes", EMBD_PARTITION_SLOT, 1 << 18, 10);
    measure(&b, "slot table, 40 keys a row of 256 bytes", EMBD_PARTITION_SLOT, 1 << 16, 40);
    measure(&b, "slot table, 1 key a row", EMBD_PARTITION_SLOT, 1 << 20, 1);
    close_table(&b);
    measure(&b, "hash table, 1 key a row", EMBD_PARTITION_HASH, 1 << 20, 1);
    measure(&b, "hash table, 10 keys a row", EMBD_PARTITION_HASH, 1 << 18, 10);
    close_table(&b);
    store_gpus.partial_sums = true;
    measure(&b, "hash table, 10 keys a row, partial sums", EMBD_PARTITION_HASH, 1 << 18, 10);
    measure(&b, "hash table, 40 keys a row, partial sums", EMBD_PARTITION_HASH, 1 << 16, 40);
    close_table(&b);
    return 0;
}
