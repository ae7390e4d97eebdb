/* longest.c - how long one call keeps a shard's thread, by kind: what others wait for at worst. A
 * table of the host store has ROWS rows of DIM columns; each call is made a few times, and the
 * longest is shown, in ms of this thread's CPU time.
 *
 * usage: store-longest ROWS DIM */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/engine/table_setting.h"
#include "server/store/slice.h"

enum { FRAME = 4 << 20, FEW = 256, TIMES = 3 };

static uint64_t n_rows;
static uint32_t dim;
static uint64_t *keys;
static float *grads, *states;
static uint8_t *statuses;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void must(bool is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "store-longest: %s failed\n", what);
    exit(1);
}

static uint32_t n_done;

static void on_done(struct store_done *done, int status)
{
    n_done++;
    must(status == EMBD_OK, done->error.text);
}

/* ---- tables ---- */

static struct tables tables;

static struct table *open_table(const char *name, embd_optimizer_kind kind, embd_update update,
                                embd_on_full on_full, uint32_t columns)
{
    struct embd__error e = {.status = EMBD_OK};
    struct table *table;
    embd_schema s;
    bool created;
    embd_schema_init(&s);
    snprintf(s.name, sizeof s.name, "%s", name);
    s.dim = columns;
    s.on_full = on_full;
    s.capacity = on_full == EMBD_ON_FULL_GROW ? 0 : n_rows;
    embd_optimizer_init(&s.optimizer, kind, 0.01f);
    s.optimizer.update = update;
    must(tables_create(&tables, &s, 0, &table, &created, &e) == EMBD_OK, e.text);
    return table;
}

/* Keys first .. first + n, in no order. */
static struct store_keys draw(uint64_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        keys[i] = first + i * UINT64_C(2654435761) % n;
    return (struct store_keys){.n_keys = n, .n_rows = n, .keys = keys};
}

static void keep_longest(double *longest, double ms)
{
    *longest = ms > *longest ? ms : *longest;
}

static double push_ms; /* of all slices of the last push */

/* The longest of its slices. */
static double push(struct table *table, uint64_t first, uint32_t n)
{
    struct store_done done = {.fn = on_done};
    struct store_change change = {
        .in = draw(first, n), .dtype = EMBD_DTYPE_F32, .grads = grads, .statuses = statuses};
    double began = now_ms(), longest, before;
    n_done = 0;
    tables.ops->apply(table->store, &change, &done);
    longest = now_ms() - began;
    while (n_done == 0) {
        before = now_ms();
        tables.ops->collect(table->store);
        keep_longest(&longest, now_ms() - before);
    }
    push_ms = now_ms() - began;
    return longest;
}

/* The longest push of a few new keys on the way. */
static double fill(struct table *table, uint64_t from, uint64_t to)
{
    double longest = 0;
    for (uint64_t at = from; at < to; at += FEW)
        keep_longest(&longest, push(table, at, FEW));
    return longest;
}

static void show(const char *what, double ms)
{
    printf("%-72s %10.2f\n", what, ms);
    fflush(stdout);
}

/* ---- what is measured ---- */

/* With less than a slice a push, the table would be filled in the square of its rows. */
static void fill_global(struct table *table)
{
    struct embd__error e = {.status = EMBD_OK};
    for (uint64_t at = 0; at < n_rows; at += FRAME / 8) {
        struct store_keys in = draw(at, FRAME / 8);
        struct row_block block = {
            .n_rows = in.n_keys, .keys = in.keys, .rows = grads, .states = states};
        must(tables.ops->load(table->store, &block, &e) == EMBD_OK, e.text);
    }
}

static void global(void)
{
    struct table *table =
        open_table("g", EMBD_OPTIMIZER_ADAM, EMBD_UPDATE_GLOBAL, EMBD_ON_FULL_GROW, dim);
    uint64_t slice = store_slice;
    double whole = 0, first = 0, slices = 0, total = 0;
    fill_global(table);
    store_slice = UINT64_MAX;
    for (int i = 0; i < TIMES; i++)
        keep_longest(&whole, push(table, 0, 0));
    store_slice = slice;
    for (int i = 0; i < TIMES; i++) {
        double began = now_ms(), before;
        bool has_more = true;
        keep_longest(&first, push(table, 0, 0));
        while (has_more) {
            before = now_ms();
            has_more = tables.ops->collect(table->store);
            keep_longest(&slices, now_ms() - before);
        }
        keep_longest(&total, now_ms() - began);
    }
    show("push of no keys, update global: not divided", whole);
    show("push of no keys, update global: all slices", total);
    show("push of no keys, update global: its own call", first);
    show("push of no keys, update global: a slice", slices);
    tables_drop(&tables, table);
}

static void frames(void)
{
    struct table *table =
        open_table("f", EMBD_OPTIMIZER_ADAM, EMBD_UPDATE_LAZY_GLOBAL, EMBD_ON_FULL_GROW, 1);
    double pull, began;
    show("push of 4 Mi new keys, dim 1, adam lazy_global: a slice", push(table, 0, FRAME));
    show("the same, all slices", push_ms);
    show("push of 4 Mi keys that have rows: a slice", push(table, 0, FRAME));
    show("the same, all slices", push_ms);
    struct store_pull p = {.in = draw(0, FRAME), .dtype = EMBD_DTYPE_F32, .values = grads};
    struct store_read r = {.in = p.in, .rows = grads, .states = states, .statuses = statuses};
    struct store_erase erase = {.in = p.in, .statuses = statuses};
    struct store_done done = {.fn = on_done};
    struct embd__error e = {.status = EMBD_OK};
    p.count = 65536;
    began = now_ms();
    tables.ops->pull(table->store, &p, &done);
    pull = now_ms() - began;
    show("pull of 4 Mi keys: a piece of 256 KiB", pull);
    began = now_ms();
    must(tables.ops->read(table->store, &r, &e) == EMBD_OK, "read");
    show("get of 4 Mi keys", now_ms() - began);
    began = now_ms();
    must(tables.ops->erase(table->store, &erase, &e) == EMBD_OK, "erase");
    show("erase of 4 Mi keys", now_ms() - began);
    struct row_block block = {.n_rows = FRAME, .keys = keys, .rows = grads, .states = states};
    began = now_ms();
    must(tables.ops->load(table->store, &block, &e) == EMBD_OK, "load");
    show("load or put of 4 Mi rows", now_ms() - began);
    tables_drop(&tables, table);
}

static void cut(struct table *table)
{
    struct embd__error e = {.status = EMBD_OK};
    struct store_stats stats;
    double began = now_ms();
    must(tables.ops->freeze(table->store, &(struct store_cut){.id = 1}, &e) == EMBD_OK, "freeze");
    show("freeze, of a snapshot or a base", now_ms() - began);
    began = now_ms();
    tables.ops->thaw(table->store);
    show("thaw", now_ms() - began);
    began = now_ms();
    tables.ops->stats(table->store, &stats);
    show("stats", now_ms() - began);
}

/* A cut since another one reads what 1024 keys changed. */
static void increment(struct table *table)
{
    struct embd__error e = {.status = EMBD_OK};
    struct store_cut later = {.id = 2, .since = 1};
    struct store_scan scan = {.keys = keys, .rows = grads, .states = states};
    double longest = 0, began;
    uint64_t n = 0;
    bool is_done = false;
    must(tables.ops->freeze(table->store, &(struct store_cut){.id = 1}, &e) == EMBD_OK, "freeze");
    tables.ops->thaw(table->store);
    push(table, n_rows, 1024);
    must(tables.ops->freeze(table->store, &later, &e) == EMBD_OK && !later.has_all, "freeze");
    double all = now_ms();
    for (; !is_done; keep_longest(&longest, now_ms() - began)) {
        began = now_ms();
        must(tables.ops->scan_frozen(table->store, 65536, &scan, &is_done, &e) == EMBD_OK, e.text);
        n += scan.n_rows;
    }
    show("scan of a cut in which 1024 rows changed: a part", longest);
    show("the same, all parts", now_ms() - all);
    must(n == 1024, "rows");
    tables.ops->thaw(table->store);
}

struct set {
    struct setting_owner owner; /* first */
    bool has_ended;
    uint32_t n_gone;
};

static void on_set(struct setting_owner *owner, uint32_t n_gone, const struct embd__error *e)
{
    struct set *s = (struct set *)(void *)owner;
    must(e->status == EMBD_OK, e->text);
    s->has_ended = true;
    s->n_gone = n_gone;
}

static void set(struct table *table, const char *field, const char *value)
{
    struct embd__error e = {.status = EMBD_OK};
    struct schema_change change;
    struct set s = {.owner = {.ended = on_set}};
    char what[96];
    embd__schema_change_init(&change);
    must(embd__schema_change_add(&change, field, value, &e) == EMBD_OK, e.text);
    double began = now_ms(), longest;
    tables_begin_set(&tables, table, &change, &s.owner);
    longest = now_ms() - began;
    while (!s.has_ended) {
        double before = now_ms();
        tables_sweep(&tables);
        keep_longest(&longest, now_ms() - before);
    }
    double total = now_ms() - began;
    snprintf(what, sizeof what, "table_set %s=%s: %u rows go", field, value, s.n_gone);
    show(what, longest);
    if (s.n_gone > 0)
        show("the same, all slices", total);
}

static void growing(void)
{
    struct table *table =
        open_table("w", EMBD_OPTIMIZER_ADAGRAD, EMBD_UPDATE_LOCAL, EMBD_ON_FULL_GROW, dim);
    show("push of 256 new keys: the longest while a table grows", fill(table, 0, n_rows));
    tables_drop(&tables, table);
}

static void bounded(void)
{
    struct table *table =
        open_table("b", EMBD_OPTIMIZER_ADAGRAD, EMBD_UPDATE_LOCAL, EMBD_ON_FULL_EVICT_LRU, dim);
    char capacity[32];
    show("push of 256 new keys: the longest until a table with evict_lru is full",
         fill(table, 0, n_rows));
    show("push of 256 new keys: the longest while it evicts",
         fill(table, n_rows, n_rows + n_rows / 4));
    cut(table);
    increment(table);
    set(table, "optimizer.lr", "0.5");
    snprintf(capacity, sizeof capacity, "%llu", (unsigned long long)n_rows - 1000);
    set(table, "capacity", capacity);
    snprintf(capacity, sizeof capacity, "%llu", (unsigned long long)n_rows / 2);
    set(table, "capacity", capacity);
    double began = now_ms();
    tables_drop(&tables, table);
    show("drop of a table", now_ms() - began);
}

int main(int argc, char **argv)
{
    n_rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    dim = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 16;
    size_t columns = (size_t)FRAME / 8 * dim > FRAME ? (size_t)FRAME / 8 * dim : FRAME;
    keys = calloc(FRAME, sizeof *keys);
    grads = calloc(columns, sizeof *grads);
    states = calloc(3 * columns, sizeof *states);
    statuses = calloc(FRAME, 1);
    must(keys != NULL && grads != NULL && states != NULL && statuses != NULL, "memory");
    tables_init(&tables, &store_host);
    global();
    frames();
    growing();
    bounded();
    tables_fini(&tables);
    free(keys);
    free(grads);
    free(states);
    free(statuses);
    return 0;
}
