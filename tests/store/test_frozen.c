/* test_frozen.c - a cut is the table as it was at freeze, each row once, whatever calls come while
 * it is read: compared with a scan that was made at that moment. Arguments: the store, how many
 * tables are tried, and the way of a group of GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/slice.h"
#include "tests/store/image.h"

#define POOL 400u

static const char *store_name = "host";
static uint64_t n_tables = 150;

static void change(struct pair *pair)
{
    struct dice *dice = &pair->dice;
    struct batch batch;
    batch_draw(pair, &batch, dice_below(dice, 30), 4, dice_below(dice, 2), false);
    uint32_t kind = dice_below(dice, 8);
    if (kind < 5)
        pair_push(pair, &batch, EMBD_DTYPE_F32, true);
    else if (kind < 6)
        pair_insert(pair, &batch, true);
    else
        pair_erase(pair, &batch, dice_below(dice, 2));
    batch_free(&batch);
}

/* Up to n - 1 times, while a cut is read. */
static void change_meanwhile(struct pair *pair, uint32_t n)
{
    for (uint32_t i = dice_below(&pair->dice, n); i > 0; i--)
        change(pair);
}

static bool is_odd(const struct store_skip *skip, uint64_t key, uint32_t slot)
{
    (void)skip;
    return ((key >> 7) + slot) % 2 == 1;
}
static const struct store_skip odd = {is_odd};

static void a_cut_is_the_table_at_its_moment(void **state)
{
    (void)state;
    uint64_t keys[POOL];
    for (uint32_t i = 0; i < POOL; i++)
        keys[i] = i * 0x9e3779b97f4a7c15ULL;
    for (uint64_t number = 0; number < n_tables; number++) {
        struct dice dice = {number};
        struct pair pair;
        embd_schema schema = image_schema(&dice);
        pair_open(&pair, store_name, &schema, dice_next(&dice));
        pair.pool = keys;
        pair.n_pool = POOL;
        for (int cut = 0; cut < 3; cut++) {
            struct embd__error e = {0};
            for (int i = 0; i < 12; i++)
                change(&pair);
            struct image expected = scan_all(&pair), read = image_new(&pair);
            pair.skip = cut == 1 ? &odd : NULL;
            assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
            do
                change_meanwhile(&pair, 4);
            while (!scan_some(&pair, 1 + dice_below(&pair.dice, 20), &read));
            pair.ops->thaw(pair.store);
            if (pair.skip != NULL) {
                image_skip(&read, &odd);
                image_skip(&expected, &odd);
            }
            compare_images(&read, &expected);
            pair_compare(&pair);
        }
        pair_close(&pair);
    }
}

static void a_table_that_grows_while_its_cut_is_read(void **state)
{
    (void)state;
    struct pair pair;
    struct embd__error e = {0};
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "grows");
    schema.dim = 2;
    pair_open(&pair, store_name, &schema, 7);
    uint32_t n = strcmp(store_name, "host") == 0 ? 40000 : 4000; /* kernels may be emulated */
    uint64_t *keys = calloc(n, sizeof *keys), at = 0;
    struct batch batch;
    for (uint32_t i = 0; i < n; i++)
        keys[i] = i;
    batch_of(&batch, keys, n);
    pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
    struct image expected = scan_all(&pair), read = image_new(&pair);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    bool done = false;
    while (!done) {
        for (uint32_t i = 0; i < n; i++) /* some old ones, most of them new */
            keys[i] = at + i;
        at += n / 4 * 3;
        if (at <= 3 * (uint64_t)n) {
            batch_of(&batch, keys, n);
            pair_push(&pair, &batch, EMBD_DTYPE_F32, false);
            batch_free(&batch);
        }
        done = scan_some(&pair, n / 8, &read);
    }
    pair.ops->thaw(pair.store);
    compare_images(&read, &expected);
    free(keys);
    pair_close(&pair);
}

static void push_range(struct pair *pair, uint64_t first, uint32_t n)
{
    struct batch batch;
    uint64_t *keys = calloc(n, sizeof *keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = first + i;
    batch_of(&batch, keys, n);
    pair_push(pair, &batch, EMBD_DTYPE_F32, true);
    batch_free(&batch);
    free(keys);
}

static void pull_range(struct pair *pair, uint64_t first, uint32_t n)
{
    struct batch batch;
    uint64_t keys[64];
    for (uint32_t i = 0; i < n; i++)
        keys[i] = first + i;
    batch_of(&batch, keys, n);
    pair_pull(pair, &batch, EMBD_DTYPE_F32, false, false);
    batch_free(&batch);
}

static void erase_range(struct pair *pair, uint64_t first, uint32_t n)
{
    struct batch batch;
    uint64_t keys[64];
    for (uint32_t i = 0; i < n; i++)
        keys[i] = first + i;
    batch_of(&batch, keys, n);
    pair_erase(pair, &batch, true);
    batch_free(&batch);
}

/* A table whose last push was of no keys, and steps all rows, so many columns at a time. */
static void open_global(struct pair *pair, uint64_t slice)
{
    embd_schema schema;
    struct batch none;
    embd_schema_init(&schema);
    strcpy(schema.name, "global");
    schema.dim = 8;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.05f);
    schema.optimizer.update = EMBD_UPDATE_GLOBAL;
    pair_open(pair, store_name, &schema, 11);
    store_slice = slice;
    push_range(pair, 0, 300);
    erase_range(pair, 40, 50);
    batch_of(&none, NULL, 0);
    pair_push(pair, &none, EMBD_DTYPE_F32, false);
    batch_free(&none);
}

/* Two tables with the same history. The second is divided: its pushes have rows left to step when
 * the cut is made, and while it is read. */
static void a_cut_between_slices(void **state)
{
    (void)state;
    struct embd__error e = {0};
    for (uint32_t n_before = 0; n_before < 90; n_before += 8) {
        struct pair whole, divided;
        struct image expected, read;
        open_global(&whole, UINT64_MAX);
        expected = scan_all(&whole);
        pair_close(&whole);
        open_global(&divided, 64);
        read = image_new(&divided);
        for (uint32_t n = 0; n < n_before; n++)
            divided.ops->collect(divided.store);
        assert_int_equal(divided.ops->freeze(divided.store, &(struct store_cut){0}, &e), EMBD_OK);
        while (!scan_some(&divided, 17, &read)) {
            divided.ops->collect(divided.store);
            if (read.n > 100 && read.n < 200) {
                push_range(&divided, 0, 3);
                pull_range(&divided, 200, 50);
            }
        }
        divided.ops->thaw(divided.store);
        compare_images(&read, &expected);
        pair_compare(&divided);
        pair_close(&divided);
    }
}

/* 75,000 rows in one segment of the index, and between any two scans some that go, old ones that
 * are pushed and new ones: so many that segments split in the midst of it, or none. Where the
 * kernels may be emulated a fortieth of that. */
static void read_while_it_changes(embd_on_full on_full, uint32_t n_new,
                                  const struct store_skip *skip)
{
    struct pair pair;
    struct embd__error e = {0};
    embd_schema schema;
    uint32_t part = strcmp(store_name, "host") == 0 ? 1 : 40, rows = 75000 / part, gone = 40 / part;
    uint64_t next = rows, old = 0;
    embd_schema_init(&schema);
    strcpy(schema.name, "changes");
    schema.dim = 1;
    schema.on_full = on_full;
    schema.capacity = on_full == EMBD_ON_FULL_GROW ? 0 : 110000 / part;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 0.5f);
    pair_open(&pair, store_name, &schema, 7);
    push_range(&pair, 0, rows);
    struct image expected = scan_all(&pair), read = image_new(&pair);
    pair.skip = skip;
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    for (uint32_t scans = 0; !scan_some(&pair, 1000 / part, &read); scans++) {
        assert_true(scans < 1000);
        push_range(&pair, next, n_new / part);
        erase_range(&pair, old, gone);
        push_range(&pair, old + rows / 2, 500 / part);
        next += n_new / part;
        old += gone;
    }
    pair.ops->thaw(pair.store);
    if (skip != NULL) {
        image_skip(&read, skip);
        image_skip(&expected, skip);
    }
    compare_images(&read, &expected);
    pair_compare(&pair);
    pair_close(&pair);
}

static void a_cut_ends_though_entries_move_between_all_its_scans(void **state)
{
    (void)state;
    read_while_it_changes(EMBD_ON_FULL_GROW, 40, NULL);
    read_while_it_changes(EMBD_ON_FULL_GROW, 40, &odd);
}

static bool is_any(const struct store_skip *skip, uint64_t key, uint32_t slot)
{
    (void)skip;
    (void)key;
    (void)slot;
    return true;
}

/* The host store reads no row that is not wanted, and looks at few entries at a time. */
static void a_cut_of_rows_that_nobody_wants(void **state)
{
    (void)state;
    static const struct store_skip any = {is_any};
    struct pair pair;
    struct embd__error e = {0};
    embd_schema schema;
    uint32_t scans = 0;
    if (strcmp(store_name, "host") != 0)
        skip();
    embd_schema_init(&schema);
    strcpy(schema.name, "unwanted");
    schema.dim = 1;
    pair_open(&pair, store_name, &schema, 13);
    push_range(&pair, 0, 50000);
    struct image read = image_new(&pair);
    pair.skip = &any;
    for (uint64_t id = 1; id < 3; id++) { /* by the index, then by a list of keys that changed */
        struct store_cut cut = {.id = id, .since = id - 1};
        assert_int_equal(pair.ops->freeze(pair.store, &cut, &e), EMBD_OK);
        for (scans = 0; !scan_some(&pair, 1000, &read); scans++)
            ;
        pair.ops->thaw(pair.store);
        assert_int_equal(cut.has_all, id == 1);
        assert_int_equal(read.n, 0);
        assert_in_range(scans, 5, 50);
        push_range(&pair, 0, 50000);
    }
    pair_close(&pair);
}

static void a_cut_of_a_table_that_grows_and_loses_rows(void **state)
{
    (void)state;
    read_while_it_changes(EMBD_ON_FULL_GROW, 3000, NULL);
    read_while_it_changes(EMBD_ON_FULL_EVICT_LFU, 3000, NULL);
}

/* Rows that a load puts in the place of others, between two scans. */
static void a_cut_has_the_rows_that_a_load_replaces(void **state)
{
    (void)state;
    enum { ROWS = 200, LOADED = 60 };
    struct pair pair;
    struct embd__error e = {0};
    embd_schema schema;
    uint64_t keys[LOADED];
    float rows[LOADED * 3] = {0};
    bool done = false;
    embd_schema_init(&schema);
    strcpy(schema.name, "loaded");
    schema.dim = 3;
    pair_open(&pair, store_name, &schema, 7);
    push_range(&pair, 0, ROWS);
    for (uint32_t i = 0; i < LOADED; i++)
        keys[i] = ROWS - LOADED / 2 + i; /* half of them are new */
    struct row_block block = {.n_rows = LOADED, .keys = keys, .rows = rows};
    struct image expected = scan_all(&pair), read = image_new(&pair);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    assert_int_equal(pair.ops->load(pair.store, &block, &e), EMBD_OK);
    while (!done)
        done = scan_some(&pair, 20, &read);
    pair.ops->thaw(pair.store);
    compare_images(&read, &expected);
    pair_close(&pair);
}

/* Rows of 64 columns with adam's state, which a cut for who keeps none is read without. */
static uint64_t copies_bytes(bool no_states)
{
    enum { ROWS = 2000, DIM = 64 };
    static uint64_t keys[ROWS], candidates[ROWS];
    static uint32_t counts[ROWS];
    static float before[ROWS][DIM], rows[ROWS][DIM];
    struct store_scan out = {
        .keys = keys, .rows = rows, .candidate_keys = candidates, .candidate_counts = counts};
    struct store_cut cut = {.no_states = no_states};
    struct store_stats stats, unfrozen;
    struct pair pair;
    struct embd__error e = {0};
    embd_schema schema;
    float *states = no_states ? NULL : calloc(ROWS * 3 * DIM, sizeof *states);
    bool done;
    embd_schema_init(&schema);
    strcpy(schema.name, "narrow");
    schema.dim = DIM;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.1f);
    pair_open(&pair, store_name, &schema, 5);
    push_range(&pair, 0, ROWS);
    uint64_t cursor = 0;
    assert_int_equal(pair.ops->scan(pair.store, &cursor, ROWS, &out, &e), EMBD_OK);
    for (uint32_t i = 0; i < out.n_rows; i++)
        memcpy(before[keys[i]], rows[i], sizeof rows[i]);
    assert_int_equal(pair.ops->freeze(pair.store, &cut, &e), EMBD_OK);
    pair.ops->stats(pair.store, &unfrozen);
    push_range(&pair, 0, ROWS / 2); /* these are copied */
    pair.ops->stats(pair.store, &stats);
    out.states = states;
    assert_int_equal(pair.ops->scan_frozen(pair.store, ROWS, &out, &done, &e), EMBD_OK);
    assert_true(done);
    assert_int_equal(out.n_rows, ROWS);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_memory_equal(rows[i], before[keys[i]], sizeof rows[i]);
    pair.ops->thaw(pair.store);
    pair_compare(&pair);
    pair_close(&pair);
    free(states);
    return stats.memory_bytes - unfrozen.memory_bytes;
}

/* The host store copies no state for it. */
static void a_cut_without_states_has_the_rows(void **state)
{
    (void)state;
    if (strcmp(store_name, "host") != 0)
        skip();
    uint64_t with = copies_bytes(false), without = copies_bytes(true);
    assert_true(without + 1000 * 64 * sizeof(float) < with);
}

static void a_store_closes_in_the_middle_of_a_cut(void **state)
{
    (void)state;
    struct dice dice = {3};
    struct pair pair;
    struct embd__error e = {0};
    uint64_t keys[3] = {1, 2, 3};
    embd_schema schema = image_schema(&dice);
    pair_open(&pair, store_name, &schema, 9);
    pair.pool = keys;
    pair.n_pool = 3;
    change(&pair);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){.id = 1}, &e), EMBD_OK);
    change_meanwhile(&pair, 9);
    pair_close(&pair);
}

/* Keys wait in the table of the cut and no more while it is read, or the other way round. */
static void cut_while_admission_is_set(uint32_t first, uint32_t then)
{
    struct pair pair;
    struct embd__error e = {0};
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "waits");
    schema.dim = 2;
    schema.admit_after = first;
    pair_open(&pair, store_name, &schema, 13);
    push_range(&pair, 0, 40);
    push_range(&pair, 30, 40);
    struct image expected = scan_all(&pair), read = image_new(&pair);
    assert_int_equal(pair.ops->freeze(pair.store, &(struct store_cut){0}, &e), EMBD_OK);
    if (then == 0) /* no key waits any more */
        erase_range(&pair, 20, 30);
    pair.schema.s.admit_after = pair.model->schema.admit_after = then;
    pair.ops->alter(pair.store);
    do
        push_range(&pair, dice_below(&pair.dice, 100), 10);
    while (!scan_some(&pair, 1 + dice_below(&pair.dice, 20), &read));
    pair.ops->thaw(pair.store);
    compare_images(&read, &expected);
    pair_compare(&pair);
    pair_close(&pair);
}

static void a_cut_has_the_candidates_of_its_definition(void **state)
{
    (void)state;
    cut_while_admission_is_set(0, 3);
    cut_while_admission_is_set(3, 0);
}

/* ---- cuts of what changed ---- */

#define CUTS 20u

/* A store that a chain of cuts was loaded into. */
struct copy {
    uint64_t id;         /* 0: forgotten */
    struct store *store; /* NULL: none */
};

static void add_block(const struct pair *pair, struct store *store, const struct store_scan *s)
{
    struct embd__error e = {0};
    const struct row_block block = {
        .n_rows = s->n_rows,
        .n_candidates = s->n_candidates,
        .keys = s->keys,
        .slots = s->slots,
        .rows = s->rows,
        .states = s->states,
        .candidate_keys = s->candidate_keys,
        .candidate_slots = s->candidate_slots,
        .candidate_counts = s->candidate_counts,
    };
    struct store_erase erase = {.in = {.n_keys = s->n_candidates,
                                       .n_rows = s->n_candidates,
                                       .keys = s->candidate_keys,
                                       .slots = s->candidate_slots}};
    if (s->n_candidates == 0 || s->candidate_counts[0] > 0) {
        if (pair->ops->load(store, &block, &e) != EMBD_OK)
            fail_msg("%s", e.text);
        return;
    }
    assert_int_equal(s->n_rows, 0);
    for (uint32_t i = 0; i < s->n_candidates; i++)
        assert_int_equal(s->candidate_counts[i], 0);
    assert_int_equal(pair->ops->erase(store, &erase, &e), EMBD_OK);
}

static struct store *copy_of(const struct pair *pair, struct store *from)
{
    struct store *to;
    struct scanned scanned;
    struct embd__error e = {0};
    uint64_t cursor = 0;
    assert_int_equal(pair->ops->open(&pair->schema, &to, &e), EMBD_OK);
    scanned_init(&scanned, &pair->schema.s, 50, pair->model->state_floats);
    while (from != NULL && cursor != UINT64_MAX) {
        assert_int_equal(pair->ops->scan(from, &cursor, 50, &scanned.out, &e), EMBD_OK);
        scanned.out.n_candidates = 0; /* those of the next cut are all there are */
        add_block(pair, to, &scanned.out);
    }
    scanned_free(&scanned);
    return to;
}

/* The cut's next blocks, into the store; true: there are no more. */
static bool take_some(struct pair *pair, struct store *to, uint32_t max_rows, uint64_t *n_rows)
{
    struct scanned scanned;
    struct embd__error e = {0};
    bool done;
    scanned_init(&scanned, &pair->schema.s, max_rows, pair->model->state_floats);
    assert_int_equal(pair->ops->scan_frozen(pair->store, max_rows, &scanned.out, &done, &e),
                     EMBD_OK);
    add_block(pair, to, &scanned.out);
    *n_rows += scanned.out.n_rows;
    scanned_free(&scanned);
    return done;
}

static struct image image_of(struct pair *pair, struct store *store)
{
    struct store *own = pair->store;
    pair->store = store;
    struct image image = scan_all(pair);
    pair->store = own;
    return image;
}

/* One cut since one of those before, or whole; loaded over that one's copy it is the table. */
static void cut_and_load(struct pair *pair, struct copy copies[CUTS], uint32_t n)
{
    struct embd__error e = {0};
    uint32_t back = 1 + dice_below(&pair->dice, 17), base = n >= back ? n - back : CUTS;
    if (base < CUTS && copies[base].id == 0)
        base = CUTS;
    struct store_cut cut = {.id = 100 + n, .since = base < CUTS ? copies[base].id : 0};
    uint64_t n_rows = 0;
    struct image expected = scan_all(pair);
    assert_int_equal(pair->ops->freeze(pair->store, &cut, &e), EMBD_OK);
    assert_true(cut.has_all || base < CUTS);
    assert_true(!cut.has_all || base == CUTS || back > 15);
    copies[n] = (struct copy){cut.id, copy_of(pair, cut.has_all ? NULL : copies[base].store)};
    do
        change_meanwhile(pair, 3);
    while (!take_some(pair, copies[n].store, 1 + dice_below(&pair->dice, 40), &n_rows));
    pair->ops->thaw(pair->store);
    struct image read = image_of(pair, copies[n].store);
    compare_images(&read, &expected);
    for (uint32_t i = dice_below(&pair->dice, 3); i > 0; i--) {
        struct copy *forgotten = &copies[dice_below(&pair->dice, n + 1)];
        pair->ops->forget(pair->store, forgotten->id);
        forgotten->id = 0;
    }
}

static void a_cut_of_what_changed_makes_the_table_of_an_earlier_one(void **state)
{
    (void)state;
    uint64_t keys[POOL];
    for (uint32_t i = 0; i < POOL; i++)
        keys[i] = i * 0x9e3779b97f4a7c15ULL;
    for (uint64_t number = 0; number < n_tables / 5 * 2; number++) {
        struct dice dice = {number};
        struct pair pair;
        struct copy copies[CUTS];
        embd_schema schema = image_schema(&dice);
        pair_open(&pair, store_name, &schema, dice_next(&dice));
        pair.pool = keys;
        pair.n_pool = POOL;
        for (uint32_t n = 0; n < CUTS; n++) {
            for (uint32_t i = dice_below(&pair.dice, 8); i > 0; i--)
                change(&pair);
            cut_and_load(&pair, copies, n);
            pair_compare(&pair);
        }
        for (uint32_t n = 0; n < CUTS; n++)
            pair.ops->close(copies[n].store);
        pair_close(&pair);
    }
}

/* How many rows and keys that are gone a cut since the one before has. */
static uint64_t count_changed(struct pair *pair, uint64_t id)
{
    struct embd__error e = {0};
    struct store_cut cut = {.id = id, .since = id - 1};
    assert_int_equal(pair->ops->freeze(pair->store, &cut, &e), EMBD_OK);
    assert_int_equal(cut.has_all, id == 1);
    struct image read = image_new(pair);
    while (!scan_some(pair, 100, &read))
        ;
    pair->ops->thaw(pair->store);
    free(read.records);
    return read.n;
}

static void push_some(struct pair *pair, const uint64_t *keys, uint32_t n)
{
    struct batch batch;
    batch_of(&batch, keys, n);
    pair_push(pair, &batch, EMBD_DTYPE_F32, false);
    batch_free(&batch);
}

static void a_cut_of_what_changed_has_no_other_rows(void **state)
{
    (void)state;
    struct pair pair;
    struct embd__error e = {0};
    embd_schema schema;
    uint64_t keys[1000], id = 1;
    float rows[6] = {1, 2, 3, 4, 5, 6};
    embd_schema_init(&schema);
    strcpy(schema.name, "few");
    schema.dim = 2;
    pair_open(&pair, store_name, &schema, 11);
    for (uint32_t i = 0; i < 1000; i++)
        keys[i] = i;
    push_some(&pair, keys, 1000);
    assert_int_equal(count_changed(&pair, id++), 1000);
    for (; id < 20; id++) { /* more than are known at a time */
        push_some(&pair, keys + 40 * id, 7);
        assert_int_equal(count_changed(&pair, id), 7);
    }
    struct row_block block = {.n_rows = 3, .keys = keys + 10, .rows = rows};
    assert_int_equal(pair.ops->load(pair.store, &block, &e), EMBD_OK);
    assert_int_equal(count_changed(&pair, id++), 3);
    assert_int_equal(count_changed(&pair, id++), 0);
    struct store_cut unknown = {.since = 99};
    assert_int_equal(pair.ops->freeze(pair.store, &unknown, &e), EMBD_OK);
    assert_true(unknown.has_all);
    pair_close(&pair);
}

/* The host store lists keys that changed, as long as they are few. */
static void a_cut_of_what_changed_has_all_of_many_rows(void **state)
{
    (void)state;
    if (strcmp(store_name, "host") != 0)
        skip();
    enum { MANY = 70000, STEP = 10000 };
    struct pair pair;
    embd_schema schema;
    uint64_t *keys = calloc(MANY, sizeof *keys), id = 1;
    assert_non_null(keys);
    embd_schema_init(&schema);
    strcpy(schema.name, "many");
    schema.dim = 2;
    pair_open(&pair, store_name, &schema, 11);
    for (uint32_t i = 0; i < MANY; i++)
        keys[i] = i;
    push_some(&pair, keys, 100);
    assert_int_equal(count_changed(&pair, id++), 100);
    for (uint32_t i = 0; i < MANY; i += STEP)
        push_some(&pair, keys + i, STEP);
    assert_int_equal(count_changed(&pair, id++), MANY);
    push_some(&pair, keys + MANY / 2, 100);
    assert_int_equal(count_changed(&pair, id++), 100);
    for (uint32_t n = 65535; n < 65538; n++) { /* about as many as are listed */
        push_some(&pair, keys, n);
        assert_int_equal(count_changed(&pair, id++), n);
    }
    free(keys);
    pair_close(&pair);
}

/* A cut that nothing is noted since has no set of its own: what goes while it is read is not in it.
 */
static void a_cut_of_what_changed_has_no_key_that_goes_while_it_is_read(void **state)
{
    (void)state;
    struct pair pair;
    struct embd__error e = {0};
    struct store_cut first = {.id = 1}, second = {.since = 1};
    embd_schema schema;
    uint64_t keys[100];
    embd_schema_init(&schema);
    strcpy(schema.name, "few");
    schema.dim = 2;
    pair_open(&pair, store_name, &schema, 12);
    for (uint32_t i = 0; i < 100; i++)
        keys[i] = i;
    push_some(&pair, keys, 100);
    assert_int_equal(pair.ops->freeze(pair.store, &first, &e), EMBD_OK);
    pair.ops->thaw(pair.store);
    struct store_erase before = {.in = {.n_keys = 2, .n_rows = 2, .keys = keys}},
                       meanwhile = {.in = {.n_keys = 3, .n_rows = 3, .keys = keys + 50}};
    assert_int_equal(pair.ops->erase(pair.store, &before, &e), EMBD_OK);
    assert_int_equal(pair.ops->freeze(pair.store, &second, &e), EMBD_OK);
    assert_false(second.has_all);
    assert_int_equal(pair.ops->erase(pair.store, &meanwhile, &e), EMBD_OK);
    struct image read = image_new(&pair);
    while (!scan_some(&pair, 100, &read))
        ;
    pair.ops->thaw(pair.store);
    assert_int_equal(read.n, 2);
    free(read.records);
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        store_name = argv[1];
    if (argc > 2)
        n_tables = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        pair_set_way(argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_is_the_table_at_its_moment),
        cmocka_unit_test(a_table_that_grows_while_its_cut_is_read),
        cmocka_unit_test(a_cut_ends_though_entries_move_between_all_its_scans),
        cmocka_unit_test(a_cut_of_rows_that_nobody_wants),
        cmocka_unit_test(a_cut_of_a_table_that_grows_and_loses_rows),
        cmocka_unit_test(a_cut_has_the_rows_that_a_load_replaces),
        cmocka_unit_test(a_cut_without_states_has_the_rows),
        cmocka_unit_test(a_store_closes_in_the_middle_of_a_cut),
        cmocka_unit_test(a_cut_has_the_candidates_of_its_definition),
        cmocka_unit_test(a_cut_between_slices),
        cmocka_unit_test(a_cut_of_what_changed_makes_the_table_of_an_earlier_one),
        cmocka_unit_test(a_cut_of_what_changed_has_no_other_rows),
        cmocka_unit_test(a_cut_of_what_changed_has_all_of_many_rows),
        cmocka_unit_test(a_cut_of_what_changed_has_no_key_that_goes_while_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
