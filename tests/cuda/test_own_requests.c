/* test_own_requests.c - a cluster of three shards on cuda stores, in one process: the same request,
 * with each shard's set of vshards or residues, does on all of them together what a single shard on
 * the host's store does by requests through the socket. Sets that are not the shard's, by its map
 * when the request is handled, are refused and change nothing. Under the emulator. */
#include "tests/server/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/device.h"
#include "proto/key_set.h"
#include "proto/names.h"
#include "proto/schema.h"
#include "server/service/state.h"
#include "tests/cuda/stand_in_device.h"

extern const struct store_ops store_cuda;

enum { SHARDS = 3, N = 200, DIM = 8, BYTES = 1 << 16, ROWS_AT = 4096 };

static const char *const names[] = {"plain", "kept", "made", "modulo", "modulo_kept"};
enum { TABLES = sizeof names / sizeof names[0] };

struct world {
    struct rig rigs[SHARDS], alone;
    char dirs[SHARDS + 1][64];
    uint64_t numbers[SHARDS]; /* of the memory, on each shard */
    struct placement map;     /* of all shards */
    int fd;
    uint8_t *memory; /* [BYTES] the trainer's */
    uint8_t handle[DEVICE_HANDLE_BYTES], uuid[DEVICE_UUID_BYTES];
    _Alignas(64) uint8_t shared[SHARDS][GATE_BYTES]; /* gate s is of shard s */
};

static int share_nothing(struct shard_session *session, uint64_t bytes, struct embd__error *e)
{
    (void)session;
    return embd__error_set(e, EMBD_BUSY, "share: %llu bytes", (unsigned long long)bytes);
}

static embd_schema schema_of(const char *name)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = DIM;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    schema.durability = strstr(name, "kept") ? EMBD_DURABILITY_BUFFERED : EMBD_DURABILITY_SNAPSHOT;
    schema.create_on = strstr(name, "made") ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
    schema.partition = strstr(name, "modulo") ? EMBD_PARTITION_MODULO : EMBD_PARTITION_HASH;
    return schema;
}

static embd_partition partition_of(const char *name)
{
    return schema_of(name).partition;
}

/* ---- shards ---- */

static void open_memory(struct world *w, uint32_t s)
{
    const struct device_lent lent = {BYTES, w->handle, w->uuid, 0};
    struct device_opened opened;
    struct exchange *x = ask(&w->rigs[s], &w->rigs[s].data, METHOD_DEVICE_OPEN);
    embd__device_open_write(&x->out, &lent);
    ask_ok(x);
    assert_int_equal(embd__device_opened_read(&x->reader, &opened), EMBD_OK);
    assert_true(opened.takes_own);
    w->numbers[s] = opened.number;
    ask_free(x);
}

static void open_shard(struct world *w, uint32_t s)
{
    struct rig *rig = &w->rigs[s];
    rig_open(rig, &store_cuda, s, SHARDS, w->dirs[s]);
    rig_wake(rig); /* answers come later */
    rig->data.share = share_nothing;
    rig->data.shared = (struct shared_memory){w->shared[0], sizeof w->shared};
}

static void create_tables(struct rig *rig)
{
    for (uint32_t i = 0; i < TABLES; i++) {
        embd_schema schema = schema_of(names[i]);
        create_table(rig, &schema);
    }
}

static int set_up(void **state)
{
    struct world *w = *state = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    memset(w, 0, sizeof *w);
    w->fd = memfd_create("lent", MFD_CLOEXEC);
    assert_int_equal(ftruncate(w->fd, BYTES), 0);
    w->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    snprintf((char *)w->handle, sizeof w->handle, "/proc/%d/fd/%d", (int)getpid(), w->fd);
    embd__placement_even(&w->map, 1, SHARDS);
    for (uint32_t s = 0; s < SHARDS; s++) {
        scratch_new(w->dirs[s]);
        open_shard(w, s);
        create_tables(&w->rigs[s]);
        open_memory(w, s);
    }
    scratch_new(w->dirs[SHARDS]);
    rig_open(&w->alone, &store_host, 0, 1, w->dirs[SHARDS]);
    create_tables(&w->alone);
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (uint32_t s = 0; s < SHARDS; s++)
        rig_close(&w->rigs[s]);
    rig_close(&w->alone);
    for (uint32_t s = 0; s <= SHARDS; s++)
        scratch_remove(w->dirs[s]);
    munmap(w->memory, BYTES);
    close(w->fd);
    free(w);
    return 0;
}

/* ---- requests ---- */

static uint64_t *keys_of(const struct world *w)
{
    return (uint64_t *)(void *)w->memory;
}

static float *rows_of(const struct world *w)
{
    return (float *)(void *)(w->memory + ROWS_AT);
}

static void fill(struct world *w, uint32_t turn)
{
    for (uint32_t i = 0; i < N; i++)
        keys_of(w)[i] = (i * 7 + turn * 31) % 150 * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < N * DIM; i++)
        rows_of(w)[i] = (float)((i + turn) % 17) / 8 - 1;
}

static void own_set(const struct world *w, const char *name, uint32_t s,
                    uint8_t own[PLACEMENT_SET_BYTES])
{
    embd__placement_set(&w->map, partition_of(name), s, own);
}

static struct device_batch batch_of(const struct world *w, uint32_t s, const char *name,
                                    const uint8_t *own)
{
    return (struct device_batch){.table = embd__table_id(name),
                                 .n_keys = N,
                                 .keys = {w->numbers[s], 0},
                                 .rows = {w->numbers[s], ROWS_AT},
                                 .own = own,
                                 .placement = w->map.is_even ? 0 : w->map.version};
}

static struct exchange *ask_batch(struct world *w, uint32_t s, enum method method,
                                  const struct device_batch *batch)
{
    struct exchange *x = ask(&w->rigs[s], &w->rigs[s].data, method);
    embd__device_batch_write(&x->out, batch);
    return x;
}

static void run_all(struct world *w, enum method method, const char *name, float lr, bool zero)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        uint8_t own[PLACEMENT_SET_BYTES];
        own_set(w, name, s, own);
        struct device_batch batch = batch_of(w, s, name, own);
        batch.lr = lr;
        batch.zero_missing = zero;
        struct exchange *x = ask_batch(w, s, method, &batch);
        memset(own, 0xff, sizeof own); /* the message has a copy */
        ask_ok(x);
        ask_free(x);
    }
}

static void push_all(struct world *w, const char *name, uint32_t turn)
{
    const struct part part = {.table = embd__table_id(name),
                              .n_keys = N,
                              .n_rows = N,
                              .lr = turn % 2 ? 0.25f : 0,
                              .keys = keys_of(w),
                              .grads = rows_of(w),
                              .grads_bytes = N * DIM * sizeof(float)};
    fill(w, turn);
    push(&w->alone, &part, NULL);
    run_all(w, METHOD_DEVICE_PUSH, name, part.lr, false);
}

static void pull_all(struct world *w, const char *name, bool zero)
{
    const struct part part = {.table = embd__table_id(name),
                              .n_keys = N,
                              .n_rows = N,
                              .zero_missing = zero,
                              .keys = keys_of(w)};
    float rows[N * DIM];
    pull(&w->alone, &part, rows, NULL);
    memset(rows_of(w), 0xff, sizeof rows); /* no row is left out */
    run_all(w, METHOD_DEVICE_PULL, name, 0, zero);
    assert_memory_equal(rows_of(w), rows, sizeof rows);
}

/* ---- tables ---- */

static size_t sorted_bytes;

static int compare_records(const void *a, const void *b)
{
    return memcmp(a, b, sorted_bytes);
}

/* The records of all shards are those of the single one; each shard counted each step. */
static void check_union(struct world *w, const char *name)
{
    struct image whole, part;
    uint8_t *all = NULL;
    uint64_t n = 0;
    image_take(&w->alone, name, &whole);
    sorted_bytes = whole.record_bytes;
    for (uint32_t s = 0; s < SHARDS; s++) {
        image_take(&w->rigs[s], name, &part);
        assert_int_equal(part.step, whole.step);
        all = realloc(all, (n + part.rows + 1) * sorted_bytes);
        memcpy(all + n * sorted_bytes, part.records, part.rows * sorted_bytes);
        n += part.rows;
        image_fini(&part);
    }
    assert_int_equal(n, whole.rows);
    qsort(all, n, sorted_bytes, compare_records);
    qsort(whole.records, n, sorted_bytes, compare_records);
    assert_memory_equal(all, whole.records, n * sorted_bytes);
    image_fini(&whole);
    free(all);
}

static void all_shards_together_do_what_one_does(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < TABLES; i++) {
        for (uint32_t turn = 0; turn < 4; turn++) {
            fill(w, turn + 1);
            pull_all(w, names[i], turn % 2);
            push_all(w, names[i], turn);
            pull_all(w, names[i], false);
        }
        check_union(w, names[i]);
    }
    assert_true(figure(&w->rigs[0], "plain", "rows") > 30);
}

static void a_record_has_the_keys_of_its_shard_alone(void **state)
{
    static const char *const kept[] = {"kept", "modulo_kept"};
    struct world *w = *state;
    for (uint32_t turn = 0; turn < 3; turn++)
        for (uint32_t i = 0; i < 2; i++)
            push_all(w, kept[i], turn);
    for (uint32_t s = 0; s < SHARDS; s++) {
        rig_close(&w->rigs[s]);
        open_shard(w, s);
    }
    for (uint32_t i = 0; i < 2; i++)
        check_union(w, kept[i]);
}

/* Of them their share is counted. */
static void keys_are_counted_once(void **state)
{
    struct world *w = *state;
    uint64_t pulled = 0, pushed = 0, kept = 0;
    fill(w, 0);
    run_all(w, METHOD_DEVICE_PULL, "plain", 0, true);
    run_all(w, METHOD_DEVICE_PUSH, "plain", 0, false);
    for (uint32_t s = 0; s < SHARDS; s++) {
        pulled += figure(&w->rigs[s], NULL, "keys_pulled");
        pushed += figure(&w->rigs[s], NULL, "keys_pushed");
    }
    assert_in_range(pulled, N - SHARDS, N);
    assert_in_range(pushed, N - SHARDS, N);
    run_all(w, METHOD_DEVICE_PUSH, "kept", 0, false);
    for (uint32_t s = 0; s < SHARDS; s++)
        kept += figure(&w->rigs[s], NULL, "keys_pushed");
    assert_int_equal(kept, pushed + N); /* the host has seen these */
}

/* ---- what is refused ---- */

static void refuse(struct world *w, const struct device_batch *batch, int status,
                   const char *fragment, const char *another)
{
    static const enum method methods[] = {METHOD_DEVICE_PULL, METHOD_DEVICE_PUSH};
    for (int i = 0; i < 2; i++)
        ask_error(ask_batch(w, 1, methods[i], batch), status, fragment, another, NULL);
}

static void refuse_sets(struct world *w, const char *name, uint32_t foreign)
{
    uint8_t own[PLACEMENT_SET_BYTES];
    bool is_hash = partition_of(name) == EMBD_PARTITION_HASH;
    struct device_batch batch = batch_of(w, 1, name, NULL);
    refuse(w, &batch, EMBD_UNSUPPORTED, "'own'", "3 shards");
    own_set(w, name, 1, own);
    batch.own = own;
    batch.placement = 4;
    refuse(w, &batch, EMBD_MOVED, "version 4", "placement");
    batch.placement = 0;
    own[foreign / 8] = (uint8_t)(own[foreign / 8] | 1u << foreign % 8);
    refuse(w, &batch, EMBD_MOVED, "'own'", "belongs to shard 2 of 3");
    memset(own, 0xff, sizeof own);
    refuse(w, &batch, EMBD_MOVED, "'own'", is_hash ? "vshard 0" : "residue 0");
    memset(own, 0, sizeof own);
    own[127] = 0x80; /* 1023: there are 1023 residues of three shards */
    if (is_hash)
        refuse(w, &batch, EMBD_MOVED, "vshard 1023", "shard 2 of 3");
    else
        refuse(w, &batch, EMBD_INVALID, "residue 1023", "1023");
}

static void sets_of_others_are_refused_and_change_nothing(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < TABLES; i++) {
        struct image before;
        uint8_t rows[N * DIM * sizeof(float)];
        push_all(w, names[i], 0);
        image_take(&w->rigs[1], names[i], &before);
        memcpy(rows, rows_of(w), sizeof rows);
        refuse_sets(w, names[i], partition_of(names[i]) == EMBD_PARTITION_HASH ? 1000 : 20);
        image_check(&w->rigs[1], names[i], &before);
        assert_memory_equal(rows_of(w), rows, sizeof rows);
        image_fini(&before);
    }
}

/* The fields of a pull, `own` as it is given, and a bin of so many bytes; 0: none. */
static struct exchange *ask_raw(struct world *w, enum method method, bool has_own, uint32_t bytes)
{
    static const uint8_t zeros[2 * PLACEMENT_SET_BYTES];
    struct exchange *x = ask(&w->rigs[1], &w->rigs[1].data, method);
    embd__msg_map(&x->out, 8);
    embd__msg_field_uint(&x->out, "table", embd__table_id("plain"));
    embd__msg_field_uint(&x->out, "n_keys", N);
    embd__msg_field_str(&x->out, "dtype", embd_dtype_name(EMBD_DTYPE_F32));
    embd__msg_field_uint(&x->out, "keys_in", w->numbers[1]);
    embd__msg_field_uint(&x->out, "keys_at", 0);
    embd__msg_field_uint(&x->out, "rows_in", w->numbers[1]);
    embd__msg_field_uint(&x->out, "rows_at", ROWS_AT);
    embd__msg_field_bool(&x->out, "own", has_own);
    if (bytes > 0)
        embd__msg_bin(&x->out, zeros, bytes);
    return x;
}

static void sets_of_another_size_are_refused(void **state)
{
    static const uint32_t sizes[] = {0, 1, 120, 127, 129, 256};
    struct world *w = *state;
    struct image before;
    push_all(w, "plain", 0);
    image_take(&w->rigs[1], "plain", &before);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ask_error(ask_raw(w, METHOD_DEVICE_PULL, true, sizes[i]), EMBD_MALFORMED, "device_pull own",
                  NULL);
        ask_error(ask_raw(w, METHOD_DEVICE_PUSH, true, sizes[i]), EMBD_MALFORMED, "device_push own",
                  NULL);
    }
    ask_error(ask_raw(w, METHOD_DEVICE_PULL, false, 128), EMBD_MALFORMED, NULL);
    image_check(&w->rigs[1], "plain", &before);
    image_fini(&before);
}

static void a_set_may_be_empty(void **state)
{
    static const uint8_t none[PLACEMENT_SET_BYTES];
    struct world *w = *state;
    for (uint32_t i = 0; i < TABLES; i++) {
        struct device_batch batch = batch_of(w, 1, names[i], none);
        uint8_t rows[N * DIM * sizeof(float)];
        struct image before, after;
        push_all(w, names[i], 0);
        image_take(&w->rigs[1], names[i], &before);
        memset(rows_of(w), 0xff, sizeof rows); /* no gradient of other keys is looked at */
        memcpy(rows, rows_of(w), sizeof rows);
        for (int push = 0; push < 2; push++) {
            struct exchange *x =
                ask_batch(w, 1, push ? METHOD_DEVICE_PUSH : METHOD_DEVICE_PULL, &batch);
            ask_ok(x);
            ask_free(x);
        }
        assert_memory_equal(rows_of(w), rows, sizeof rows);
        image_take(&w->rigs[1], names[i], &after);
        assert_int_equal(after.step, before.step + 1);
        before.step++;
        image_check(&w->rigs[1], names[i], &before);
        image_fini(&before);
        image_fini(&after);
    }
}

static void a_gradient_of_another_shards_key_may_be_anything(void **state)
{
    static const char *const tried[] = {"plain", "kept"};
    struct world *w = *state;
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t own[PLACEMENT_SET_BYTES];
        own_set(w, tried[i], 1, own);
        const struct device_batch batch = batch_of(w, 1, tried[i], own);
        uint32_t n_refused = 0;
        char named[16];
        fill(w, 0);
        for (uint32_t row = 0; row < 40; row++) {
            uint64_t key = keys_of(w)[row];
            float was = rows_of(w)[row * DIM + 3];
            rows_of(w)[row * DIM + 3] = NAN;
            struct exchange *x = ask_batch(w, 1, METHOD_DEVICE_PUSH, &batch);
            bool is_own = embd__placement_shard(&w->map, EMBD_PARTITION_HASH, 0, key) == 1;
            n_refused += is_own;
            snprintf(named, sizeof named, "row %u", row);
            if (is_own) {
                ask_error(x, EMBD_NOT_FINITE, "grads", named, NULL);
            } else {
                ask_ok(x);
                ask_free(x);
            }
            rows_of(w)[row * DIM + 3] = was;
        }
        assert_in_range(n_refused, 5, 35);
    }
}

/* ---- the map ---- */

/* The first vshards of shard 0 are shard 1's. */
static void move_vshards(struct world *w)
{
    struct placement even = w->map;
    embd__placement_move(&w->map, &even, 0, 100, 1);
    for (uint32_t s = 0; s < SHARDS; s++)
        w->rigs[s].shard->config.placement = &w->map;
}

static void keep_map(struct world *w)
{
    for (uint32_t s = 0; s < SHARDS; s++)
        w->rigs[s].shard->config.placement = NULL;
}

static void a_set_is_of_the_map_that_there_is(void **state)
{
    struct world *w = *state;
    uint8_t own[PLACEMENT_SET_BYTES];
    struct image before;
    own_set(w, "plain", 1, own);
    struct device_batch batch = batch_of(w, 1, "plain", own);
    move_vshards(w);
    image_take(&w->rigs[1], "plain", &before);
    refuse(w, &batch, EMBD_MOVED, "even one", "version 2"); /* its keys are all the shard's */
    own_set(w, "plain", 1, own);
    refuse(w, &batch, EMBD_MOVED, "even one", "version 2");
    image_check(&w->rigs[1], "plain", &before);
    image_fini(&before);
    for (uint32_t i = 0; i < TABLES; i++) {
        push_all(w, names[i], 1);
        pull_all(w, names[i], true);
        check_union(w, names[i]);
    }
    keep_map(w);
}

static void reach(struct world *w, uint32_t s, uint32_t number)
{
    memcpy(w->shared[s] + GATE_READY_AT, &number, sizeof number);
}

static uint32_t word(const struct world *w, uint32_t s, uint32_t at)
{
    uint32_t value;
    memcpy(&value, w->shared[s] + at, sizeof value);
    return value;
}

static struct exchange *send_gated(struct world *w, uint32_t s, const uint8_t *own, uint32_t number)
{
    struct device_batch batch = batch_of(w, s, "plain", own);
    batch.gate = (struct device_gate){.at = s * GATE_BYTES, .number = number};
    struct exchange *x = ask_batch(w, s, METHOD_DEVICE_PUSH, &batch);
    ask_send(x);
    shard_collect(w->rigs[s].shard);
    return x;
}

static void a_request_at_its_gate_is_compared_with_the_map_when_it_goes_on(void **state)
{
    static const char *const fragments[] = {"even one", NULL};
    struct world *w = *state;
    struct exchange *x[SHARDS];
    uint8_t own[PLACEMENT_SET_BYTES];
    fill(w, 0);
    for (uint32_t turn = 1; turn < 3; turn++) {
        for (uint32_t s = 0; s < SHARDS; s++) {
            own_set(w, "plain", s, own);
            x[s] = send_gated(w, s, own, turn);
            assert_false(x[s]->is_answered);
        }
        if (turn == 2)
            move_vshards(w);
        for (uint32_t s = 0; s < SHARDS; s++) {
            reach(w, s, turn);
            ask_wait(x[s]);
            ask_read(x[s]);
            if (turn == 2)
                check_error(x[s], EMBD_MOVED, fragments);
            assert_int_equal(word(w, s, GATE_DONE_AT), turn);
            assert_int_equal(word(w, s, GATE_FAILED_AT), 0); /* it is of pulls */
            ask_free(x[s]);
        }
    }
    keep_map(w);
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct image image;
        image_take(&w->rigs[s], "plain", &image);
        assert_int_equal(image.step, 1);
        image_fini(&image);
    }
}

/* Else cuts would wait for it: shards that it was refused by would be behind the others. */
static void a_push_that_is_refused_at_its_gate_is_one_that_its_client_has_made(void **state)
{
    static const char *const fragments[] = {"60 s", NULL};
    struct world *w = *state;
    uint8_t own[PLACEMENT_SET_BYTES];
    fill(w, 0);
    for (uint32_t order = 8; order < 10; order++) {
        own_set(w, "plain", 0, own);
        struct device_batch batch = batch_of(w, 0, "plain", own);
        batch.gate.number = order;
        batch.order = order;
        struct exchange *x = ask_batch(w, 0, METHOD_DEVICE_PUSH, &batch);
        ask_send(x);
        if (order == 8)
            reach(w, 0, order);
        else
            w->rigs[0].now_ns += UINT64_C(61000000000);
        shard_tick(w->rigs[0].shard, w->rigs[0].now_ns);
        ask_wait(x);
        ask_read(x);
        if (order == 9)
            check_error(x, EMBD_DEADLINE, fragments);
        assert_int_equal(w->rigs[0].data.pushed, order);
        ask_free(x);
    }
}

/* ---- the same memory, for all ---- */

static void memory_goes_when_the_last_shard_gives_it_back(void **state)
{
    struct world *w = *state;
    uint32_t before = stand_in_unimports;
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct exchange *x = ask(&w->rigs[s], &w->rigs[s].data, METHOD_DEVICE_CLOSE);
        embd__device_close_write(&x->out, w->numbers[s]);
        ask_ok(x);
        ask_free(x);
        assert_int_equal(stand_in_unimports, before + (s + 1 == SHARDS));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(all_shards_together_do_what_one_does),
        TEST(a_record_has_the_keys_of_its_shard_alone),
        TEST(keys_are_counted_once),
        TEST(sets_of_others_are_refused_and_change_nothing),
        TEST(sets_of_another_size_are_refused),
        TEST(a_set_may_be_empty),
        TEST(a_gradient_of_another_shards_key_may_be_anything),
        TEST(a_set_is_of_the_map_that_there_is),
        TEST(a_request_at_its_gate_is_compared_with_the_map_when_it_goes_on),
        TEST(a_push_that_is_refused_at_its_gate_is_one_that_its_client_has_made),
        TEST(memory_goes_when_the_last_shard_gives_it_back),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
