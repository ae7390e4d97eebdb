/* bench.c - the cuda store's figures on one GPU, each beside what the device itself can do, in one
 * run. Medians of repeated runs; inputs change from run to run, so that nothing is in the cache
 * that would not be. usage: gpu-bench [million keys] [pushes]; pushes: those of known keys alone */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "tests/gpu/baseline.h"
#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/memory.h"

#define BATCH   ((uint32_t)1 << 20)
#define STEP    ((uint32_t)4 << 20)
#define QUERIES 16u
#define RUNS    15

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu-bench: %s: %s\n", what, cudaGetErrorString(error));
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

/* Sorts; the spread is the middle half. */
static double median(double *t, int n, double *spread_out)
{
    qsort(t, (size_t)n, sizeof *t, by_value);
    *spread_out = (t[n * 3 / 4] - t[n / 4]) / t[n / 2];
    return t[n / 2];
}

static void row(const char *what, double value, const char *unit, double spread, double of,
                const char *of_what)
{
    printf("| %-52s | %10.2f %-7s | %4.1f %% |", what, value, unit, 100 * spread);
    if (of > 0)
        printf(" %5.2f of %s |\n", value / of, of_what);
    else
        printf(" |\n");
    fflush(stdout);
}

static void *device_memory_new(uint64_t bytes)
{
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes), "memory");
    return memory;
}

/* ---- the store ---- */

struct bench {
    struct store *store;
    struct table_schema schema;
    uint64_t n_keys;
    cudaEvent_t begin, end;
    uint64_t *keys;   /* [QUERIES][STEP], device */
    float *grads;     /* [STEP][64], device */
    void *out;        /* [BATCH][256 bytes], device */
    void *rows_out;   /* [STEP][256 bytes], device */
    uint32_t *rows;   /* [QUERIES][BATCH], device */
    double copy_rate; /* bytes a microsecond, read and written */
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

static void await(struct bench *b, struct ending *ending)
{
    while (ending->calls == 0)
        store_cuda.collect(b->store);
    if (ending->status != EMBD_OK) {
        fprintf(stderr, "gpu-bench: %s\n", ending->done.error.text);
        exit(1);
    }
}

static void open_store(struct bench *b, uint32_t dim, embd_optimizer_kind optimizer)
{
    embd_schema s;
    struct embd__error e = {0};
    embd_schema_init(&s);
    strcpy(s.name, "bench");
    s.dim = dim;
    embd_optimizer_init(&s.optimizer, optimizer, 0.01f);
    s.capacity = b->n_keys / 62 * 70; /* load 0.62 */
    embd__schema_copy(&b->schema, &s, &e);
    if (store_cuda.open(&b->schema, &b->store, &e) != EMBD_OK) {
        fprintf(stderr, "gpu-bench: %s\n", e.text);
        exit(1);
    }
}

static void close_store(struct bench *b)
{
    store_cuda.close(b->store);
    embd__schema_fini(&b->schema);
}

/* All keys, from device memory; microseconds. */
static double build(struct bench *b)
{
    double us = 0;
    for (uint64_t first = 0; first < b->n_keys; first += STEP) {
        uint32_t n = b->n_keys - first < STEP ? (uint32_t)(b->n_keys - first) : STEP;
        baseline_keys(b->keys, first, n, 0, 0);
        check(cudaDeviceSynchronize(), "keys");
        struct store_change insert = {.kind = STORE_INSERT,
                                      .in = {.n_keys = n, .n_rows = n, .keys = b->keys}};
        struct ending ending = {.done.fn = on_done};
        double begin = now_us();
        store_cuda.apply(b->store, &insert, &ending.done);
        await(b, &ending);
        us += now_us() - begin;
    }
    if (b->store->n_rows != b->n_keys) {
        fprintf(stderr, "gpu-bench: %llu rows of %llu keys\n", (unsigned long long)b->store->n_rows,
                (unsigned long long)b->n_keys);
        exit(1);
    }
    return us;
}

/* ---- figures ---- */

static void measure_copy(struct bench *b)
{
    uint64_t bytes = (uint64_t)4 << 30;
    void *from = device_memory_new(bytes), *to = device_memory_new(bytes);
    double t[RUNS], spread;
    baseline_floats(from, bytes / 4);
    for (int i = 0; i < RUNS; i++) {
        float ms;
        cudaEventRecord(b->begin, NULL);
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, NULL), "copy");
        cudaEventRecord(b->end, NULL);
        check(cudaEventSynchronize(b->end), "copy");
        cudaEventElapsedTime(&ms, b->begin, b->end);
        t[i] = ms * 1e3;
    }
    b->copy_rate = 2.0 * (double)bytes / median(t, RUNS, &spread);
    row("device copy, read + write", b->copy_rate / 1e3, "GB/s", spread, 0, "");
    cudaFree(from);
    cudaFree(to);
}

/* Four calls at a time, one behind the other: the device waits for none of them. Each has keys, or
 * rows, of its own. */
enum { IN_A_ROW = 4 };

static uint64_t at_query(int run, int i)
{
    return (uint64_t)((uint32_t)(run * IN_A_ROW + i) % QUERIES) * BATCH;
}

static double time_gather(struct bench *b, uint32_t row_bytes, double *spread_out)
{
    double t[RUNS];
    for (int run = 0; run < RUNS; run++) {
        float ms;
        cudaEventRecord(b->begin, b->store->stream);
        for (int i = 0; i < IN_A_ROW; i++)
            baseline_gather(b->store->view.values, b->rows + at_query(run, i), BATCH, row_bytes,
                            b->out, b->store->stream);
        cudaEventRecord(b->end, b->store->stream);
        check(cudaEventSynchronize(b->end), "gather");
        cudaEventElapsedTime(&ms, b->begin, b->end);
        t[run] = ms * 1e3 / IN_A_ROW;
    }
    return median(t, RUNS, spread_out);
}

static double time_pull(struct bench *b, double *spread_out)
{
    double t[RUNS];
    for (int run = 0; run < RUNS; run++) {
        float ms;
        struct pull_view pull = {
            .in = {.n = BATCH, .n_rows = BATCH}, .values = b->out, .is_aligned = true};
        cudaEventRecord(b->begin, b->store->stream);
        for (int i = 0; i < IN_A_ROW; i++) {
            pull.in.keys = b->keys + at_query(run, i);
            launch_gather(b->store->view, pull, b->store->stream);
        }
        cudaEventRecord(b->end, b->store->stream);
        check(cudaEventSynchronize(b->end), "pull");
        cudaEventElapsedTime(&ms, b->begin, b->end);
        t[run] = ms * 1e3 / IN_A_ROW;
    }
    return median(t, RUNS, spread_out);
}

static void measure_pull(struct bench *b, uint32_t row_bytes)
{
    char name[96];
    double spread;
    baseline_keys(b->keys, 0, (uint64_t)QUERIES * BATCH, b->n_keys, 77);
    baseline_rows(b->rows, (uint64_t)QUERIES * BATCH, b->n_keys, 99);
    check(cudaDeviceSynchronize(), "inputs");
    double gather = time_gather(b, row_bytes, &spread);
    snprintf(name, sizeof name, "plain gather, %u B rows, 1 Mi", row_bytes);
    row(name, BATCH / gather / 1e3, "G/s", spread, 0, "");
    double pull = time_pull(b, &spread);
    snprintf(name, sizeof name, "pull, %u B rows, 1 Mi keys, load %.2f", row_bytes,
             (double)b->n_keys / (double)(b->store->view.n_buckets * ENTRY_BUCKET));
    row(name, BATCH / pull / 1e3, "G/s", spread, BATCH / gather / 1e3, "the gather");
}

/* Of keys that have just been pulled: the device is at rest again. */
static void pull_first(struct bench *b)
{
    struct store_pull pull = {.in = {.n_keys = STEP, .n_rows = STEP, .keys = b->keys},
                              .count = STEP,
                              .values = b->rows_out};
    struct ending ending = {.done.fn = on_done};
    store_cuda.pull(b->store, &pull, &ending.done);
    await(b, &ending);
    check(cudaDeviceSynchronize(), "pull");
}

static double time_push(struct bench *b, bool is_pulled, double *spread_out)
{
    double t[RUNS];
    for (int i = -2; i < RUNS; i++) {
        baseline_keys(b->keys, 0, STEP, b->n_keys, 1000 + (uint64_t)(i + 2) * STEP);
        check(cudaDeviceSynchronize(), "keys");
        if (is_pulled)
            pull_first(b);
        struct store_change push = {.in = {.n_keys = STEP, .n_rows = STEP, .keys = b->keys},
                                    .grads = b->grads};
        struct ending ending = {.done.fn = on_done};
        double begin = now_us();
        store_cuda.apply(b->store, &push, &ending.done);
        await(b, &ending);
        if (i >= 0)
            t[i] = now_us() - begin;
    }
    return median(t, RUNS, spread_out);
}

/* All keys, none of which has a row. */
static void measure_first_push(struct bench *b)
{
    char what[96];
    double us = 0;
    open_store(b, 64, EMBD_OPTIMIZER_SGD);
    for (uint64_t first = 0; first < b->n_keys; first += STEP) {
        baseline_keys(b->keys, first, STEP, 0, 0);
        check(cudaDeviceSynchronize(), "keys");
        struct store_change push = {.in = {.n_keys = STEP, .n_rows = STEP, .keys = b->keys},
                                    .grads = b->grads};
        struct ending ending = {.done.fn = on_done};
        double begin = now_us();
        store_cuda.apply(b->store, &push, &ending.done);
        await(b, &ending);
        us += now_us() - begin;
    }
    snprintf(what, sizeof what, "first push of %llu Mi new keys, sgd dim 64",
             (unsigned long long)(b->n_keys >> 20));
    row(what, (double)b->n_keys / us / 1e3, "G/s", 0, 0, "");
    close_store(b);
}

/* Bytes: each key and gradient read, the row and state of each distinct key read and written; then
 * also the bucket in which each key has to be looked up. */
static void measure_push(struct bench *b, const char *name, double row_and_state)
{
    double spread, us = time_push(b, false, &spread), n = (double)b->n_keys;
    double n_distinct = n * (1.0 - exp(-(double)STEP / n));
    double bytes = STEP * (8.0 + 256.0) + n_distinct * 2.0 * row_and_state;
    double buckets = STEP * (double)(ENTRY_BUCKET * sizeof(struct entry));
    row(name, STEP / us / 1e3, "G/s", spread, 0, "");
    row("  its bytes", bytes / us / 1e3, "GB/s", spread, b->copy_rate / 1e3, "the copy");
    row("  and those of its keys' buckets", (bytes + buckets) / us / 1e3, "GB/s", spread,
        b->copy_rate / 1e3, "the copy");
    us = time_push(b, true, &spread);
    row("  of keys that were pulled", STEP / us / 1e3, "G/s", spread, 0, "");
    row("  its bytes", bytes / us / 1e3, "GB/s", spread, b->copy_rate / 1e3, "the copy");
}

static void measure_scan(struct bench *b)
{
    enum { ROWS = 262144, TURNS = 64 };
    uint32_t state_floats = b->store->view.state_floats;
    uint64_t row_bytes = 8 + 256 + 4ull * state_floats, cursor = 0, n = 0;
    struct embd__error e = {0};
    struct store_scan out = {.keys = buffer_new(8ull * ROWS),
                             .rows = buffer_new(256ull * ROWS),
                             .states =
                                 state_floats ? buffer_new(4ull * state_floats * ROWS) : NULL};
    void *from = device_memory_new(256ull * ROWS);
    double begin = now_us();
    for (int i = 0; i < TURNS; i++)
        check(cudaMemcpy(out.rows, from, 256ull * ROWS, cudaMemcpyDeviceToHost), "copy");
    double rate = 256.0 * ROWS * TURNS / (now_us() - begin);
    begin = now_us();
    for (int i = 0; i < TURNS && cursor != UINT64_MAX; i++, n += out.n_rows)
        store_cuda.scan(b->store, &cursor, ROWS, &out, &e);
    double us = now_us() - begin;
    row("pinned copy to the host, 64 MiB", rate / 1e3, "GB/s", 0, 0, "");
    row("scan to pinned memory", (double)(n * row_bytes) / us / 1e3, "GB/s", 0, rate / 1e3,
        "the pinned copy");
    cudaFree(from);
    buffer_free(out.keys, 8ull * ROWS);
    buffer_free(out.rows, 256ull * ROWS);
    if (out.states)
        buffer_free(out.states, 4ull * state_floats * ROWS);
}

/* From pinned memory to pinned memory, through the store's calls. */
static void measure_small(struct bench *b, bool is_push, uint32_t n)
{
    enum { TIMES = 500 };
    static double t[TIMES];
    char name[64];
    double spread;
    uint64_t *keys = buffer_new(n * sizeof *keys);
    void *values = buffer_new(n * 256ull);
    memset(values, 0, n * 256ull);
    for (int i = 0; i < TIMES; i++) {
        baseline_keys(b->keys, 0, n, b->n_keys, 5000 + (uint64_t)i * n);
        check(cudaMemcpy(keys, b->keys, n * sizeof *keys, cudaMemcpyDeviceToHost), "keys");
        struct store_pull pull = {
            .in = {.n_keys = n, .n_rows = n, .keys = keys}, .count = n, .values = values};
        struct store_change push = {.in = pull.in, .grads = values};
        struct ending ending = {.done.fn = on_done};
        double begin = now_us();
        if (is_push)
            store_cuda.apply(b->store, &push, &ending.done);
        else
            store_cuda.pull(b->store, &pull, &ending.done);
        await(b, &ending);
        t[i] = now_us() - begin;
    }
    snprintf(name, sizeof name, "%s of %u keys x 256 B, from and to pinned memory",
             is_push ? "push" : "pull", n);
    double us = median(t, TIMES, &spread);
    row(name, us, "us", spread, 0, "");
    buffer_free(keys, n * sizeof *keys);
    buffer_free(values, n * 256ull);
}

/* Small calls that come at once: those behind the first go together. */
enum { AT_ONCE = 16, SMALL = 256 };

static void begin_small(struct bench *b, bool is_push, uint64_t *keys, void *values,
                        struct ending *ending)
{
    static struct store_pull pulls[AT_ONCE];
    static struct store_change pushes[AT_ONCE];
    static uint32_t turn;
    struct store_keys in = {.n_keys = SMALL, .n_rows = SMALL, .keys = keys};
    uint32_t i = turn++ % AT_ONCE;
    *ending = (struct ending){.done.fn = on_done};
    pulls[i] = (struct store_pull){.in = in, .count = SMALL, .values = values};
    pushes[i] = (struct store_change){.in = in, .grads = values};
    if (is_push)
        store_cuda.apply(b->store, &pushes[i], &ending->done);
    else
        store_cuda.pull(b->store, &pulls[i], &ending->done);
}

static void measure_at_once(struct bench *b, bool is_push)
{
    enum { TIMES = 200, KEY_BYTES = AT_ONCE * SMALL * 8, VALUE_BYTES = AT_ONCE * SMALL * 256 };
    static double t[TIMES];
    static struct ending endings[AT_ONCE];
    char name[64];
    double spread;
    uint64_t *keys = buffer_new(KEY_BYTES);
    uint8_t *values = buffer_new(VALUE_BYTES);
    memset(values, 0, VALUE_BYTES);
    for (int turn = 0; turn < TIMES; turn++) {
        baseline_keys(b->keys, 0, AT_ONCE * SMALL, b->n_keys, 8000 + (uint64_t)turn * KEY_BYTES);
        check(cudaMemcpy(keys, b->keys, KEY_BYTES, cudaMemcpyDeviceToHost), "keys");
        double begin = now_us();
        for (uint32_t i = 0; i < AT_ONCE; i++)
            begin_small(b, is_push, keys + i * SMALL, values + i * SMALL * 256ull, &endings[i]);
        for (uint32_t i = 0; i < AT_ONCE; i++)
            await(b, &endings[i]);
        t[turn] = now_us() - begin;
    }
    snprintf(name, sizeof name, "%d %s of %d keys x 256 B at once", AT_ONCE,
             is_push ? "pushes" : "pulls", SMALL);
    double us = median(t, TIMES, &spread);
    row(name, us, "us", spread, 0, "");
    buffer_free(keys, KEY_BYTES);
    buffer_free(values, VALUE_BYTES);
}

/* ---- more rows than the device finds its way in ---- */

/* Random keys, 64-byte rows, in windows of so many bytes. */
static double time_windows(struct bench *b, uint64_t window_bytes, double *spread_out)
{
    double t[RUNS];
    b->store->window_bytes = window_bytes;
    for (int i = -1; i < RUNS; i++) {
        baseline_keys(b->keys, 0, STEP, b->n_keys, 9000 + (uint64_t)(i + 1) * STEP);
        check(cudaDeviceSynchronize(), "keys");
        struct store_pull pull = {.in = {.n_keys = STEP, .n_rows = STEP, .keys = b->keys},
                                  .count = STEP,
                                  .values = b->out};
        struct ending ending = {.done.fn = on_done};
        double begin = now_us();
        store_cuda.pull(b->store, &pull, &ending.done);
        await(b, &ending);
        if (i >= 0)
            t[i] = now_us() - begin;
    }
    return median(t, RUNS, spread_out);
}

static void measure_windows(struct bench *b, uint64_t n_keys)
{
    uint64_t kept = b->n_keys, bytes = (uint64_t)STEP * 64;
    char *without = malloc(bytes), *with = malloc(bytes), name[96];
    double spread;
    b->n_keys = n_keys;
    open_store(b, 16, EMBD_OPTIMIZER_SGD);
    build(b);
    double us = time_windows(b, UINT64_MAX, &spread);
    check(cudaMemcpy(without, b->out, bytes, cudaMemcpyDeviceToHost), "rows");
    snprintf(name, sizeof name, "pull of 4 Mi keys, %.0f GiB of 64-byte rows, as they come",
             (double)(n_keys * 64) / 0x1p30);
    row(name, STEP / us / 1e3, "G/s", spread, 0, "");
    double plain = STEP / us / 1e3;
    us = time_windows(b, WINDOW_BYTES, &spread);
    check(cudaMemcpy(with, b->out, bytes, cudaMemcpyDeviceToHost), "rows");
    row("  in windows", STEP / us / 1e3, "G/s", spread, plain, "that");
    if (memcmp(with, without, bytes) != 0) {
        fprintf(stderr, "gpu-bench: windows give other rows\n");
        exit(1);
    }
    close_store(b);
    free(without);
    free(with);
    b->n_keys = kept;
}

/* The longest insert of 1 Mi keys while the key table becomes twice as large. */
static void measure_growth(struct bench *b, uint64_t n_keys)
{
    char what[96];
    uint64_t kept = b->n_keys, rows_then = 0;
    double longest = 0;
    b->n_keys = n_keys;
    open_store(b, 16, EMBD_OPTIMIZER_SGD);
    build(b);
    for (uint64_t first = n_keys; first < n_keys + n_keys / 4; first += BATCH) {
        baseline_keys(b->keys, first, BATCH, 0, 0);
        check(cudaDeviceSynchronize(), "keys");
        struct store_change insert = {.kind = STORE_INSERT,
                                      .in = {.n_keys = BATCH, .n_rows = BATCH, .keys = b->keys}};
        struct ending ending = {.done.fn = on_done};
        double begin = now_us();
        store_cuda.apply(b->store, &insert, &ending.done);
        await(b, &ending);
        double us = now_us() - begin;
        rows_then = us > longest ? b->store->n_rows : rows_then;
        longest = us > longest ? us : longest;
    }
    snprintf(what, sizeof what, "longest insert of 1 Mi keys in growth, at %llu M rows",
             (unsigned long long)(rows_then / 1000000));
    row(what, longest / 1e3, "ms", 0, 0, "");
    close_store(b);
    b->n_keys = kept;
}

static void run_table(struct bench *b, uint32_t dim, embd_optimizer_kind optimizer,
                      const char *name)
{
    char what[96];
    double spread = 0;
    open_store(b, dim, optimizer);
    double us = build(b);
    snprintf(what, sizeof what, "insert of %llu Mi new keys, %s dim %u",
             (unsigned long long)(b->n_keys >> 20), name, dim);
    row(what, (double)b->n_keys / us / 1e3, "G/s", spread, 0, "");
    if (optimizer == EMBD_OPTIMIZER_SGD) {
        measure_pull(b, dim * 4);
        if (dim == 64) {
            measure_small(b, false, 256);
            measure_small(b, false, 4096);
            measure_small(b, false, 65536);
            measure_small(b, true, 256);
            measure_small(b, true, 4096);
            measure_small(b, true, 65536);
            measure_at_once(b, false);
            measure_at_once(b, true);
        }
    } else {
        snprintf(what, sizeof what, "push of 4 Mi keys, dim %u, %s", dim, name);
        measure_push(b, what, optimizer == EMBD_OPTIMIZER_ADAM ? 768.0 : 260.0);
        measure_scan(b);
    }
    close_store(b);
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct cudaDeviceProp p;
    b.n_keys = (uint64_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    check(cudaGetDeviceProperties(&p, 0), "device");
    check(cudaEventCreate(&b.begin), "event");
    check(cudaEventCreate(&b.end), "event");
    b.keys = device_memory_new((uint64_t)QUERIES * BATCH * 8);
    b.rows = device_memory_new((uint64_t)QUERIES * BATCH * 4);
    b.out = device_memory_new((uint64_t)BATCH * 256);
    b.grads = device_memory_new((uint64_t)STEP * 256);
    b.rows_out = device_memory_new((uint64_t)STEP * 256);
    baseline_floats(b.grads, (uint64_t)STEP * 64);
    printf("%s, %d multiprocessors\n", p.name, p.multiProcessorCount);
    printf("| %-52s | %18s | spread | |\n| --- | --- | --- | --- |\n", "what", "median");
    measure_copy(&b);
    if (argc > 2 && strcmp(argv[2], "pushes") == 0) {
        run_table(&b, 64, EMBD_OPTIMIZER_ROWWISE_ADAGRAD, "row-wise adagrad");
        run_table(&b, 64, EMBD_OPTIMIZER_ADAM, "adam");
        return 0;
    }
    run_table(&b, 16, EMBD_OPTIMIZER_SGD, "sgd");
    run_table(&b, 32, EMBD_OPTIMIZER_SGD, "sgd");
    run_table(&b, 64, EMBD_OPTIMIZER_SGD, "sgd");
    run_table(&b, 64, EMBD_OPTIMIZER_ROWWISE_ADAGRAD, "row-wise adagrad");
    run_table(&b, 64, EMBD_OPTIMIZER_ADAM, "adam");
    measure_first_push(&b);
    measure_growth(&b, b.n_keys / 64 * 300);
    if (p.totalGlobalMem > (uint64_t)136 << 30)
        measure_windows(&b, (uint64_t)1300 << 20);
    return 0;
}
