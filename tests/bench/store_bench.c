/* store_bench.c - the host store against the plainest loops that do the same work, in one process:
 * finding each key in an open-addressing table of power-of-two size and copying its row (gather),
 * adding eight rows into one (pool), adding each gradient to its row (gpush: no merging of
 * duplicates, no rule). Both sides take the same batches in turn; shown are medians over the
 * batches, in CPU time of this thread, in ns for each key.
 *
 * usage: store-bench ROWS DIM [ROUNDS]      (batches of 65,536 keys, uniform and zipf:1.05) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "server/store/store.h"

enum { BATCH = 65536, BATCHES = 16, GATHER_BYTES = 1 << 20, POOL = 8 };

/* ---- the work ---- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

static uint64_t key_of(uint64_t rank)
{
    return mix(~rank);
}

static uint64_t dice = 1;

static double draw(void)
{
    dice = mix(dice);
    return (double)(dice >> 11) * 0x1p-53;
}

/* Zipf's law with exponent 1.05 as a continuous distribution, which is near enough for a load. */
static uint64_t draw_rank(uint64_t n, bool is_zipf)
{
    if (!is_zipf)
        return (uint64_t)(draw() * (double)n);
    double end = pow((double)n + 1, -0.05);
    uint64_t rank = (uint64_t)(pow(1 - draw() * (1 - end), -20)) - 1;
    return rank < n ? rank : n - 1;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *big(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(2);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

/* ---- the plain loops ---- */

struct place {
    uint64_t key;
    uint32_t row, used;
};

struct plain {
    struct place *places;
    uint64_t mask;
    float *rows;
    uint32_t dim;
    char *out;
};

static void plain_fill(struct plain *plain, uint64_t n, uint32_t dim)
{
    uint64_t size = 1;
    while (size < n * 3 / 2)
        size *= 2;
    *plain =
        (struct plain){.places = big(size * sizeof *plain->places), .mask = size - 1, .dim = dim};
    plain->rows = big(n * dim * 4);
    plain->out = big(GATHER_BYTES + 65536);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t p = key_of(i) & plain->mask;
        while (plain->places[p].used)
            p = (p + 1) & plain->mask;
        plain->places[p] = (struct place){key_of(i), (uint32_t)i, 1};
    }
}

static void plain_find(const struct plain *plain, const uint64_t *keys, uint64_t *rows, int write)
{
    for (int i = 0; i < 64; i++)
        __builtin_prefetch(&plain->places[keys[i] & plain->mask]);
    for (int i = 0; i < 64; i++) {
        uint64_t p = keys[i] & plain->mask;
        while (plain->places[p].key != keys[i] && plain->places[p].used)
            p = (p + 1) & plain->mask;
        rows[i] = plain->places[p].row;
        const char *row = (const char *)(plain->rows + rows[i] * plain->dim);
        for (size_t b = 0; b < plain->dim * 4; b += 64) {
            if (write)
                __builtin_prefetch(row + b, 1);
            else
                __builtin_prefetch(row + b);
        }
    }
}

static void plain_gather(const struct plain *plain, const uint64_t *keys, uint32_t pool)
{
    size_t at = 0, row_bytes = plain->dim * 4;
    uint64_t rows[64];
    for (int k = 0; k < BATCH; k += 64) {
        plain_find(plain, keys + k, rows, 0);
        for (uint32_t i = 0; i < 64; i += pool, at += row_bytes) {
            float *to = (float *)(void *)(plain->out + at);
            memcpy(to, plain->rows + rows[i] * plain->dim, row_bytes);
            for (uint32_t j = 1; j < pool; j++) {
                const float *row = plain->rows + rows[i + j] * plain->dim;
                for (uint32_t c = 0; c < plain->dim; c++)
                    to[c] += row[c];
            }
        }
        if (at >= GATHER_BYTES)
            at = 0;
    }
}

static void plain_push(const struct plain *plain, const uint64_t *keys, const float *grads)
{
    uint64_t rows[64];
    for (int k = 0; k < BATCH; k += 64) {
        plain_find(plain, keys + k, rows, 1);
        for (int i = 0; i < 64; i++) {
            float *row = plain->rows + rows[i] * plain->dim;
            const float *g = grads + (size_t)(k + i) * plain->dim;
            for (uint32_t c = 0; c < plain->dim; c++)
                row[c] += g[c];
        }
    }
}

/* ---- the store ---- */

static void on_done(struct store_done *done, int status)
{
    if (status != EMBD_OK) {
        fprintf(stderr, "%s\n", done->error.text);
        exit(1);
    }
}

static struct store_done done = {.fn = on_done};

static void store_fill(struct store *store, uint64_t n, uint32_t dim, const void *rows)
{
    enum { BLOCK = 4096 };
    uint64_t keys[BLOCK];
    for (uint64_t first = 0; first < n; first += BLOCK) {
        uint32_t count = n - first < BLOCK ? (uint32_t)(n - first) : BLOCK;
        for (uint32_t i = 0; i < count; i++)
            keys[i] = key_of(first + i);
        struct row_block block = {
            .n_rows = count, .keys = keys, .rows = (const float *)rows + first * dim};
        if (store_host.load(store, &block, &done.error) != EMBD_OK)
            on_done(&done, done.error.status);
    }
}

static void store_gather(struct store *store, const uint64_t *keys, const uint32_t *offsets,
                         uint32_t dim, char *out)
{
    uint32_t rows = offsets ? BATCH / POOL : BATCH;
    uint32_t step = (uint32_t)(store_host.caps.pull_bytes / (dim * 4));
    struct store_pull pull = {
        .in = {.n_keys = BATCH, .n_rows = rows, .keys = keys, .offsets = offsets}, .values = out};
    for (pull.first = 0; pull.first < rows; pull.first += pull.count) {
        pull.count = rows - pull.first < step ? rows - pull.first : step;
        store_host.pull(store, &pull, &done);
    }
}

static void push_batch(struct store *store, const uint64_t *keys, const float *grads)
{
    struct store_change push = {.in = {.n_keys = BATCH, .n_rows = BATCH, .keys = keys},
                                .grads = grads};
    store_host.apply(store, &push, &done);
}

/* ---- the measurement ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, size_t n)
{
    qsort(times, n, sizeof *times, ascending);
    return times[n / 2] / BATCH;
}

enum work { PULL, POOLED, PUSH };

struct bench {
    struct plain plain;
    struct store *store;
    uint64_t *keys[BATCHES];
    uint32_t offsets[BATCH / POOL + 1];
    float *grads;
    uint32_t dim;
};

static void run_plain(struct bench *b, enum work work, const uint64_t *keys)
{
    if (work == PUSH)
        plain_push(&b->plain, keys, b->grads);
    else
        plain_gather(&b->plain, keys, work == POOLED ? POOL : 1);
}

static void run_store(struct bench *b, enum work work, const uint64_t *keys)
{
    if (work == PUSH)
        push_batch(b->store, keys, b->grads);
    else
        store_gather(b->store, keys, work == POOLED ? b->offsets : NULL, b->dim, b->plain.out);
}

static void measure(struct bench *b, const char *name, enum work work, int rounds)
{
    size_t n = 0;
    double *plain = malloc((size_t)rounds * BATCHES * sizeof *plain);
    double *store = malloc((size_t)rounds * BATCHES * sizeof *store);
    for (int round = -1; round < rounds; round++)
        for (int i = 0; i < BATCHES; i++) {
            double start = now_ns();
            run_plain(b, work, b->keys[i]);
            double middle = now_ns();
            run_store(b, work, b->keys[(i + BATCHES / 2) % BATCHES]);
            double end = now_ns();
            if (round < 0)
                continue;
            plain[n] = middle - start;
            store[n++] = end - middle;
        }
    double p = median(plain, n), s = median(store, n);
    printf("%-16s plain %6.2f  store %6.2f ns/key  ratio %.2f\n", name, p, s, p / s);
    fflush(stdout);
    free(plain);
    free(store);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: store-bench ROWS DIM [ROUNDS]\n");
        return 2;
    }
    uint64_t n = strtoull(argv[1], NULL, 10);
    static struct bench b;
    b.dim = (uint32_t)atoi(argv[2]);
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    struct table_schema schema = {0};
    embd_schema_init(&schema.s);
    strcpy(schema.s.name, "bench");
    schema.s.dim = b.dim;
    if (store_host.open(&schema, &b.store, &done.error) != EMBD_OK)
        return 1;
    plain_fill(&b.plain, n, b.dim);
    store_fill(b.store, n, b.dim, b.plain.rows);
    struct store_stats stats;
    store_host.stats(b.store, &stats);
    printf("%llu rows of %u floats; index %.1f bytes a key\n", (unsigned long long)n, b.dim,
           (double)stats.index_bytes / (double)n);
    b.grads = big((size_t)BATCH * b.dim * 4);
    for (uint32_t i = 0; i <= BATCH / POOL; i++)
        b.offsets[i] = i * POOL;
    for (int is_zipf = 0; is_zipf < 2; is_zipf++) {
        for (int i = 0; i < BATCHES; i++) {
            b.keys[i] = b.keys[i] ? b.keys[i] : big(BATCH * 8);
            for (int k = 0; k < BATCH; k++)
                b.keys[i][k] = key_of(draw_rank(n, is_zipf));
        }
        measure(&b, is_zipf ? "pull zipf" : "pull uniform", PULL, rounds);
        measure(&b, is_zipf ? "pooled zipf" : "pooled uniform", POOLED, rounds);
        measure(&b, is_zipf ? "push zipf" : "push uniform", PUSH, rounds);
    }
    return 0;
}
