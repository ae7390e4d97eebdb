/* test_lent_requests.c - requests that name memory of a GPU: what they pull and push is what
 * requests through the socket do; a place outside, a number of nobody's or a forged handle is
 * refused and changes nothing; the memory is given back when the connection ends. Under the
 * emulator, where a handle is the path of a file that both sides can map. */
#include "tests/server/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/device.h"
#include "proto/route.h"
#include "proto/schema.h"
#include "tests/cuda/stand_in_device.h"

extern const struct store_ops store_cuda;

enum { N = 200, DIM = 8, BYTES = 1 << 16, ROWS_AT = 4096 };

struct world {
    struct rig rig;
    struct shard_session other; /* another connection by the data socket */
    int fd;
    uint8_t *memory; /* [BYTES] the trainer's */
    uint8_t handle[DEVICE_HANDLE_BYTES], uuid[DEVICE_UUID_BYTES];
    uint64_t number;
    char dir[64];
};

/* Only tells that the connection is by the data socket. */
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
    schema.durability =
        strncmp(name, "kept", 4) == 0 ? EMBD_DURABILITY_BUFFERED : EMBD_DURABILITY_SNAPSHOT;
    schema.create_on = strstr(name, "made") ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
    return schema;
}

static struct exchange *ask_open(struct world *w, struct shard_session *session, uint64_t bytes)
{
    const struct device_lent lent = {bytes, w->handle, w->uuid};
    struct exchange *x = ask(&w->rig, session, METHOD_DEVICE_OPEN);
    embd__device_open_write(&x->out, &lent);
    return x;
}

static struct device_opened open_memory(struct world *w, struct shard_session *session)
{
    struct device_opened opened;
    struct exchange *x = ask_open(w, session, BYTES);
    ask_ok(x);
    assert_int_equal(embd__device_opened_read(&x->reader, &opened), EMBD_OK);
    ask_free(x);
    return opened;
}

static void begin_rig(struct world *w)
{
    rig_open(&w->rig, &store_cuda, 0, 1, w->dir);
    rig_wake(&w->rig); /* answers come later */
    w->rig.data.share = w->other.share = share_nothing;
}

static int set_up(void **state)
{
    struct world *w = *state = calloc(1, sizeof *w);
    static const char *const names[] = {"plain", "kept", "made", "plain2", "kept2", "made2"};
    w->fd = memfd_create("lent", MFD_CLOEXEC);
    assert_int_equal(ftruncate(w->fd, BYTES), 0);
    w->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    snprintf((char *)w->handle, sizeof w->handle, "/proc/%d/fd/%d", (int)getpid(), w->fd);
    scratch_new(w->dir);
    begin_rig(w);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        embd_schema schema = schema_of(names[i]);
        create_table(&w->rig, &schema);
    }
    w->number = open_memory(w, &w->rig.data).number;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    shard_session_end(w->rig.shard, &w->other);
    rig_close(&w->rig);
    scratch_remove(w->dir);
    munmap(w->memory, BYTES);
    close(w->fd);
    free(w);
    return 0;
}

/* ---- what comes of them ---- */

static uint64_t *keys_of(const struct world *w)
{
    return (uint64_t *)(void *)w->memory;
}

static float *rows_of(const struct world *w)
{
    return (float *)(void *)(w->memory + ROWS_AT);
}

static struct device_batch batch_of(const struct world *w, const char *table)
{
    return (struct device_batch){.table = embd__table_id(table),
                                 .n_keys = N,
                                 .keys = {w->number, 0},
                                 .rows = {w->number, ROWS_AT}};
}

static struct exchange *ask_batch(struct world *w, enum method method,
                                  const struct device_batch *batch)
{
    struct exchange *x = ask(&w->rig, &w->rig.data, method);
    embd__device_batch_write(&x->out, batch);
    return x;
}

static void run(struct world *w, enum method method, const struct device_batch *batch)
{
    struct exchange *x = ask_batch(w, method, batch);
    ask_ok(x);
    ask_free(x);
}

static void fill(struct world *w, uint32_t turn)
{
    for (uint32_t i = 0; i < N; i++)
        keys_of(w)[i] = (i * 7 + turn * 31) % 150 * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < N * DIM; i++)
        rows_of(w)[i] = (float)((i + turn) % 17) / 8 - 1;
}

static void push_both(struct world *w, const char *name, const char *twin, uint32_t turn)
{
    struct device_batch batch = batch_of(w, name);
    fill(w, turn);
    batch.lr = turn % 2 ? 0.25f : 0;
    const struct part part = {.table = embd__table_id(twin),
                              .n_keys = N,
                              .n_rows = N,
                              .lr = batch.lr,
                              .keys = keys_of(w),
                              .grads = rows_of(w),
                              .grads_bytes = N * DIM * sizeof(float)};
    push(&w->rig, &part, NULL);
    run(w, METHOD_DEVICE_PUSH, &batch);
}

static void pull_both(struct world *w, const char *name, const char *twin, bool zero)
{
    struct device_batch batch = batch_of(w, name);
    float rows[N * DIM];
    batch.zero_missing = zero;
    const struct part part = {.table = embd__table_id(twin),
                              .n_keys = N,
                              .n_rows = N,
                              .zero_missing = zero,
                              .keys = keys_of(w)};
    pull(&w->rig, &part, rows, NULL);
    run(w, METHOD_DEVICE_PULL, &batch);
    assert_memory_equal(rows_of(w), rows, sizeof rows);
}

/* The seeds of two tables differ where their names do: twins begin with zeros. */
static void check_twins(struct world *w, const char *name, const char *twin)
{
    struct image one, other;
    image_take(&w->rig, name, &one);
    image_take(&w->rig, twin, &other);
    assert_int_equal(one.rows, other.rows);
    assert_int_equal(one.step, other.step);
    assert_memory_equal(one.records, other.records, (one.rows + one.candidates) * one.record_bytes);
    image_fini(&one);
    image_fini(&other);
}

static void run_twins(struct world *w, const char *name, const char *twin)
{
    for (uint32_t turn = 0; turn < 4; turn++) {
        fill(w, turn);
        pull_both(w, name, twin, turn % 2);
        push_both(w, name, twin, turn);
        pull_both(w, name, twin, false);
    }
    check_twins(w, name, twin);
}

static void test_rows_are_those_of_requests_through_the_socket(void **state)
{
    struct world *w = *state;
    run_twins(w, "plain", "plain2");
    run_twins(w, "made", "made2");
    run_twins(w, "kept", "kept2");
}

static void test_a_journaled_push_is_there_after_a_start(void **state)
{
    struct world *w = *state;
    struct image before;
    push_both(w, "kept", "kept2", 1);
    image_take(&w->rig, "kept", &before);
    rig_close(&w->rig);
    begin_rig(w);
    image_check(&w->rig, "kept", &before);
    image_fini(&before);
}

/* ---- what is refused ---- */

static void refuse(struct world *w, enum method method, const struct device_batch *batch,
                   int status, const char *fragment)
{
    ask_error(ask_batch(w, method, batch), status, fragment, NULL);
}

static void refuse_places(struct world *w, enum method method)
{
    static const uint64_t outside[] = {BYTES - 16, BYTES, BYTES + 16, 1ull << 40};
    struct device_batch good = batch_of(w, "plain"), bad = good;
    for (int i = 0; i < 4; i++) {
        bad = good;
        bad.keys.at = outside[i];
        refuse(w, method, &bad, EMBD_INVALID, "keys lie at");
        bad = good;
        bad.rows.at = outside[i];
        refuse(w, method, &bad, EMBD_INVALID, "rows lie at");
    }
    bad.rows.at = 8;
    refuse(w, method, &bad, EMBD_INVALID, "multiple of 16");
    bad = good;
    bad.n_keys = LIMIT_KEYS;
    refuse(w, method, &bad, EMBD_INVALID, "memory");
    bad.n_keys = LIMIT_KEYS + 1;
    refuse(w, method, &bad, EMBD_TOO_LARGE, "n_keys");
    bad = good;
    bad.dtype = EMBD_DTYPE_I8;
    refuse(w, method, &bad, EMBD_INVALID, "dtype");
    bad = good;
    bad.table++;
    refuse(w, method, &bad, EMBD_UNKNOWN_TABLE, "table");
    bad = good;
    bad.keys.number = open_memory(w, &w->other).number; /* another connection's */
    refuse(w, method, &bad, EMBD_INVALID, "has the number");
}

static void test_places_outside_are_refused_and_change_nothing(void **state)
{
    struct world *w = *state;
    struct image before;
    push_both(w, "plain", "plain2", 0);
    image_take(&w->rig, "plain", &before);
    refuse_places(w, METHOD_DEVICE_PUSH);
    refuse_places(w, METHOD_DEVICE_PULL);
    image_check(&w->rig, "plain", &before);
    image_fini(&before);
}

static void test_gradients_that_are_not_finite(void **state)
{
    static const char *const names[] = {"plain", "kept"};
    struct world *w = *state;
    for (int i = 0; i < 2; i++) {
        struct image before;
        const struct device_batch batch = batch_of(w, names[i]);
        push_both(w, i ? "kept" : "plain", i ? "kept2" : "plain2", 0);
        image_take(&w->rig, names[i], &before);
        rows_of(w)[N * DIM - 1] = NAN;
        refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_NOT_FINITE, "row 199");
        image_check(&w->rig, names[i], &before);
        image_fini(&before);
    }
}

static void test_slots_and_other_connections_are_refused(void **state)
{
    struct world *w = *state;
    embd_schema schema = schema_of("slotted");
    schema.slots = 2;
    schema.partition = EMBD_PARTITION_SLOT;
    create_table(&w->rig, &schema);
    const struct device_batch batch = batch_of(w, "slotted");
    refuse(w, METHOD_DEVICE_PULL, &batch, EMBD_UNSUPPORTED, "slots");
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_UNSUPPORTED, "slots");
    w->other.share = NULL;
    ask_error(ask_open(w, &w->other, BYTES), EMBD_UNSUPPORTED, "data socket", NULL);
}

static void test_handles_are_looked_at(void **state)
{
    struct world *w = *state;
    uint8_t good[DEVICE_HANDLE_BYTES];
    memcpy(good, w->handle, sizeof good);
    ask_error(ask_open(w, &w->rig.data, BYTES + 1), EMBD_INVALID, "fewer than 65537 bytes", NULL);
    memset(w->handle, 0xff, sizeof w->handle);
    ask_error(ask_open(w, &w->rig.data, BYTES), EMBD_UNSUPPORTED, "handle", NULL);
    memcpy(w->handle, good, sizeof good);
    for (int i = 1; i < 16; i++)
        open_memory(w, &w->rig.data);
    ask_error(ask_open(w, &w->rig.data, BYTES), EMBD_FULL, "16", NULL);
    w->uuid[0] = 1; /* of the server's own device, which takes turns */
    assert_true(open_memory(w, &w->other).takes_turns);
}

/* ---- the end ---- */

static void test_what_is_closed_is_gone_and_the_rest_goes_with_the_connection(void **state)
{
    struct world *w = *state;
    const struct device_batch batch = batch_of(w, "plain");
    uint32_t before = stand_in_unimports;
    open_memory(w, &w->rig.data);
    open_memory(w, &w->other);
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_DEVICE_CLOSE);
    embd__device_close_write(&x->out, w->number);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(stand_in_unimports, before + 1);
    refuse(w, METHOD_DEVICE_PULL, &batch, EMBD_INVALID, "has the number");
    x = ask(&w->rig, &w->rig.data, METHOD_DEVICE_CLOSE);
    embd__device_close_write(&x->out, w->number);
    ask_error(x, EMBD_INVALID, "has the number", NULL);
    shard_session_end(w->rig.shard, &w->other);
    assert_int_equal(stand_in_unimports, before + 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_rows_are_those_of_requests_through_the_socket),
        TEST(test_a_journaled_push_is_there_after_a_start),
        TEST(test_places_outside_are_refused_and_change_nothing),
        TEST(test_gradients_that_are_not_finite),
        TEST(test_slots_and_other_connections_are_refused),
        TEST(test_handles_are_looked_at),
        TEST(test_what_is_closed_is_gone_and_the_rest_goes_with_the_connection),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
