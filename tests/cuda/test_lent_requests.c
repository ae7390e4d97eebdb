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
    _Alignas(64) uint8_t shared[2 * GATE_BYTES]; /* of the connection: two gates */
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
    const struct device_lent lent = {bytes, w->handle, w->uuid, 0};
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
    w->rig.data.shared = w->other.shared = (struct shared_memory){w->shared, sizeof w->shared};
}

static int set_up(void **state)
{
    struct world *w = *state = aligned_alloc(64, sizeof *w);
    memset(w, 0, sizeof *w);
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
    struct device_opened opened = open_memory(w, &w->rig.data);
    assert_false(opened.takes_own); /* clients of before it refuse the field */
    w->number = opened.number;
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

/* ---- gates ---- */

static uint32_t word(const struct world *w, uint32_t gate, uint32_t at)
{
    uint32_t value;
    memcpy(&value, w->shared + (size_t)gate * GATE_BYTES + at, sizeof value);
    return value;
}

static void reach(struct world *w, uint32_t gate, uint32_t number)
{
    memcpy(w->shared + (size_t)gate * GATE_BYTES + GATE_READY_AT, &number, sizeof number);
}

static struct exchange *send_gated(struct world *w, enum method method, const char *table,
                                   uint32_t number, uint32_t needs)
{
    struct device_batch batch = batch_of(w, table);
    batch.gate = (struct device_gate){.number = number, .needs = needs};
    struct exchange *x = ask_batch(w, method, &batch);
    ask_send(x);
    shard_collect(w->rig.shard);
    return x;
}

/* Only failures of pulls show at a gate. */
static void expect_answer(struct world *w, struct exchange *x, uint32_t number, int status,
                          const char *fragment)
{
    const char *const fragments[] = {fragment, NULL};
    ask_wait(x);
    ask_read(x);
    if (status == EMBD_OK)
        assert_int_equal(x->reader.answer_status, EMBD_OK);
    else
        check_error(x, status, fragments);
    assert_int_equal(word(w, 0, GATE_DONE_AT), number);
    bool is_pull = x->request.is_lent_pull;
    assert_int_equal(word(w, 0, GATE_FAILED_AT) == number, is_pull && status != EMBD_OK);
    ask_free(x);
}

static void test_a_request_waits_at_its_gate_and_others_of_its_connection_behind_it(void **state)
{
    struct world *w = *state;
    struct device_batch plain = batch_of(w, "plain2");
    fill(w, 0);
    struct exchange *push = send_gated(w, METHOD_DEVICE_PUSH, "plain", 1, 0);
    struct exchange *pull = send_gated(w, METHOD_DEVICE_PULL, "plain", 2, 1);
    struct exchange *behind = ask_batch(w, METHOD_DEVICE_PULL, &plain);
    ask_send(behind);
    for (int i = 0; i < 10; i++)
        assert_true(shard_collect(w->rig.shard));
    assert_false(push->is_answered || pull->is_answered || behind->is_answered);
    embd_schema schema = schema_of("meanwhile");
    struct shard_session session = w->rig.data;
    w->rig.data = w->other; /* nobody else waits, also not for tables at rest */
    create_table(&w->rig, &schema);
    w->rig.data = session;
    reach(w, 0, 1);
    expect_answer(w, push, 1, EMBD_OK, NULL);
    shard_collect(w->rig.shard);
    assert_false(pull->is_answered || behind->is_answered);
    reach(w, 0, 2);
    expect_answer(w, pull, 2, EMBD_OK, NULL);
    ask_wait(behind);
    ask_free(behind);
    struct image image;
    image_take(&w->rig, "plain", &image);
    assert_int_equal(image.step, 1);
    image_fini(&image);
}

static void test_what_ends_at_a_gate_lets_the_stream_go_on(void **state)
{
    struct world *w = *state;
    fill(w, 0);
    struct exchange *x = send_gated(w, METHOD_DEVICE_PULL, "nobody", 1, 0);
    reach(w, 0, 1);
    expect_answer(w, x, 1, EMBD_UNKNOWN_TABLE, "table");
    reach(w, 0, 2);
    x = send_gated(w, METHOD_DEVICE_PUSH, "plain", 2, 1);
    expect_answer(w, x, 2, EMBD_INVALID, "call 1");
    x = send_gated(w, METHOD_DEVICE_PULL, "plain", 3, 0);
    w->rig.now_ns += UINT64_C(59000000000);
    shard_tick(w->rig.shard, w->rig.now_ns);
    shard_collect(w->rig.shard);
    assert_false(x->is_answered);
    w->rig.now_ns += UINT64_C(2000000000);
    shard_tick(w->rig.shard, w->rig.now_ns);
    expect_answer(w, x, 3, EMBD_DEADLINE, "60 s");
    x = send_gated(w, METHOD_DEVICE_PULL, "plain", 4, 0);
    struct exchange *gone = send_gated(w, METHOD_DEVICE_PULL, "plain", 5, 0);
    ask_free(gone); /* its connection is closed; nobody answers */
    shard_session_half_end(w->rig.shard, &w->rig.data);
    expect_answer(w, x, 4, EMBD_CLOSED, "closed");
    x = send_gated(w, METHOD_DEVICE_PULL, "plain", 5, 0); /* it had been sent before that */
    expect_answer(w, x, 5, EMBD_CLOSED, "closed");
    w->rig.data.has_ended = false;
    ask_free(send_gated(w, METHOD_DEVICE_PULL, "plain", 6, 0));
    assert_false(shard_collect(w->rig.shard));
    x = send_gated(w, METHOD_DEVICE_PULL, "plain", 7, 0);
    shard_drain(w->rig.shard);
    expect_answer(w, x, 7, EMBD_DRAINING, "shutting down");
}

/* Handled at once: its gate is open. */
static struct exchange *send_open(struct world *w, const char *table, uint32_t gate,
                                  uint32_t number)
{
    struct device_batch batch = batch_of(w, table);
    batch.gate = (struct device_gate){.at = (uint64_t)gate * GATE_BYTES, .number = number};
    reach(w, gate, number);
    struct exchange *x = ask_batch(w, METHOD_DEVICE_PULL, &batch);
    ask_send(x);
    return x;
}

static void free_answered(struct exchange *x)
{
    ask_wait(x);
    ask_free(x);
}

static void test_a_word_rises_when_earlier_calls_of_its_gate_have_ended_too(void **state)
{
    struct world *w = *state;
    fill(w, 0);
    struct exchange *first = send_open(w, "plain", 0, 1), *second = send_open(w, "kept", 0, 2);
    struct exchange *other = send_open(w, "nobody", 1, 9), *third = send_open(w, "nobody", 0, 3);
    assert_true(third->is_answered && other->is_answered);
    assert_false(first->is_answered || second->is_answered);
    assert_int_equal(word(w, 1, GATE_DONE_AT), 9); /* gates have nothing to do with each other */
    assert_int_equal(word(w, 0, GATE_FAILED_AT), 3);
    assert_int_equal(word(w, 0, GATE_DONE_AT), 0);
    free_answered(first);
    free_answered(second);
    assert_int_equal(word(w, 0, GATE_DONE_AT), 3);
    ask_free(third);
    ask_free(other);
    first = send_open(w, "plain", 0, 4);
    second = send_open(w, "plain", 0, 5);
    ask_free(first); /* nobody is there to hear its answer */
    free_answered(second);
    assert_int_equal(word(w, 0, GATE_DONE_AT), 5);
}

/* Where it did, shards that come to the later push before that would make it, and others not. */
static void test_a_push_that_fails_leaves_those_behind_it_alone(void **state)
{
    struct world *w = *state;
    struct image image;
    fill(w, 0);
    reach(w, 0, LIMIT_GATE);
    expect_answer(w, send_gated(w, METHOD_DEVICE_PULL, "plain", 1, 0), 1, EMBD_OK, NULL);
    expect_answer(w, send_gated(w, METHOD_DEVICE_PULL, "plain2", 2, 0), 2, EMBD_OK, NULL);
    rows_of(w)[0] = NAN;
    struct exchange *x = send_gated(w, METHOD_DEVICE_PUSH, "plain", 3, 1);
    expect_answer(w, x, 3, EMBD_NOT_FINITE, "row 0");
    assert_int_equal(word(w, 0, GATE_FAILED_AT), 0);
    rows_of(w)[0] = 1;
    expect_answer(w, send_gated(w, METHOD_DEVICE_PUSH, "plain2", 4, 2), 4, EMBD_OK, NULL);
    image_take(&w->rig, "plain2", &image);
    assert_int_equal(image.step, 1);
    image_fini(&image);
}

static void test_what_its_client_has_given_up_does_nothing_later(void **state)
{
    struct world *w = *state;
    struct image image;
    fill(w, 0);
    struct exchange *x = send_gated(w, METHOD_DEVICE_PUSH, "plain", 4, 0);
    embd__gate_raise(w->shared, GATE_DONE_AT, 4); /* as client/core/device_call.c does */
    reach(w, 0, 4); /* the stream has gone on: keys and gradients are others now */
    expect_answer(w, x, 4, EMBD_INVALID, "given it up");
    image_take(&w->rig, "plain", &image);
    assert_int_equal(image.step, 0);
    image_fini(&image);
}

static void test_a_call_needs_what_has_failed_at_the_gate_of_another_shard(void **state)
{
    struct world *w = *state;
    struct device_batch batch = batch_of(w, "plain");
    fill(w, 0);
    embd__gate_raise(w->shared + GATE_BYTES, GATE_FAILED_AT, 3); /* as that shard does */
    reach(w, 0, LIMIT_GATE);
    batch.gate = (struct device_gate){.number = 4, .needs = 3, .n_all = 2};
    refuse(w, METHOD_DEVICE_PULL, &batch, EMBD_INVALID, "needs call 3");
    batch.gate.number = 5;
    batch.gate.n_all = 1; /* its own, where 4 has failed */
    batch.gate.needs = 4;
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "needs call 4");
    batch.gate = (struct device_gate){.number = 6, .needs = 4, .all_at = GATE_BYTES, .n_all = 1};
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "needs call 4");
    batch.gate = (struct device_gate){.number = 9, .needs = 8, .n_all = 2};
    run(w, METHOD_DEVICE_PUSH, &batch);
}

static void test_gates_of_other_shards_elsewhere_are_refused(void **state)
{
    struct world *w = *state;
    struct device_batch batch = batch_of(w, "plain");
    reach(w, 0, LIMIT_GATE);
    batch.gate = (struct device_gate){.number = 1, .needs = 1, .n_all = 3};
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "3 gates at 0");
    batch.gate = (struct device_gate){.number = 2, .needs = 1, .all_at = 1ull << 40, .n_all = 1};
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "1 gates at");
    batch.gate = (struct device_gate){.number = 3, .needs = 1, .all_at = 192, .n_all = 1};
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "1 gates at 192");
    batch.gate.all_at = 32;
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "multiple of 64");
    batch.gate = (struct device_gate){.number = 4, .needs = 1, .n_all = LIMIT_SHARDS + 1};
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "'gates'");
}

static void test_gates_elsewhere_are_refused_and_nothing_is_written(void **state)
{
    static const uint64_t outside[] = {2 * GATE_BYTES - 64, 2 * GATE_BYTES, 1ull << 40};
    struct world *w = *state;
    struct device_batch batch = batch_of(w, "plain");
    batch.gate.number = 1;
    for (int i = 0; i < 3; i++) {
        batch.gate.at = outside[i];
        refuse(w, METHOD_DEVICE_PULL, &batch, EMBD_INVALID, "the gate at");
    }
    batch.gate.at = 32;
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "multiple of 64");
    batch.gate = (struct device_gate){.number = LIMIT_GATE + 1};
    refuse(w, METHOD_DEVICE_PUSH, &batch, EMBD_INVALID, "'gate'");
    w->rig.data.shared = (struct shared_memory){NULL, 0};
    batch.gate = (struct device_gate){.number = 1};
    refuse(w, METHOD_DEVICE_PULL, &batch, EMBD_INVALID, "shares 0");
    for (size_t i = 0; i < sizeof w->shared; i++)
        assert_int_equal(w->shared[i], 0);
}

/* ---- the end ---- */

static void test_what_is_closed_is_gone_and_the_rest_goes_with_the_connection(void **state)
{
    struct world *w = *state;
    const struct device_batch batch = batch_of(w, "plain");
    uint32_t before = stand_in_unimports;
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_DEVICE_CLOSE);
    open_memory(w, &w->other);
    embd__device_close_write(&x->out, w->number);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(stand_in_unimports, before); /* the other one has it open */
    refuse(w, METHOD_DEVICE_PULL, &batch, EMBD_INVALID, "has the number");
    x = ask(&w->rig, &w->rig.data, METHOD_DEVICE_CLOSE);
    embd__device_close_write(&x->out, w->number);
    ask_error(x, EMBD_INVALID, "has the number", NULL);
    open_memory(w, &w->other);
    shard_session_end(w->rig.shard, &w->other);
    assert_int_equal(stand_in_unimports, before + 1); /* once, as often as it was opened */
    open_memory(w, &w->other);
}

/* ---- memory of the server's own process ---- */

static struct exchange *ask_here(struct world *w, struct shard_session *session, uint64_t bytes)
{
    const struct device_lent lent = {bytes, w->handle, w->uuid, (uintptr_t)w->memory};
    struct exchange *x = ask(&w->rig, session, METHOD_DEVICE_OPEN);
    embd__device_open_write(&x->out, &lent);
    return x;
}

static void memory_of_the_servers_process_is_lent_by_its_address(void **state)
{
    struct world *w = *state;
    struct device_opened opened;
    const uint32_t unimports = stand_in_unimports;
    w->rig.data.is_own_process = true;
    struct exchange *x = ask_here(w, &w->rig.data, BYTES);
    ask_ok(x);
    assert_int_equal(embd__device_opened_read(&x->reader, &opened), EMBD_OK);
    ask_free(x);
    w->number = opened.number;
    run_twins(w, "plain", "plain2");
    x = ask(&w->rig, &w->rig.data, METHOD_DEVICE_CLOSE);
    embd__device_close_write(&x->out, w->number);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(stand_in_unimports, unimports); /* it is not the server's to give back */
}

static void an_address_of_another_process_is_refused(void **state)
{
    struct world *w = *state;
    struct exchange *x = ask_here(w, &w->rig.data, BYTES);
    ask_error(x, EMBD_INVALID, "address", NULL);
    w->rig.data.is_own_process = true;
    stand_in_reach = BYTES - 1;
    x = ask_here(w, &w->rig.data, BYTES);
    ask_error(x, EMBD_INVALID, "the address", "fewer", NULL);
    stand_in_reach = UINT64_MAX;
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
        TEST(test_a_request_waits_at_its_gate_and_others_of_its_connection_behind_it),
        TEST(test_what_ends_at_a_gate_lets_the_stream_go_on),
        TEST(test_a_word_rises_when_earlier_calls_of_its_gate_have_ended_too),
        TEST(test_a_push_that_fails_leaves_those_behind_it_alone),
        TEST(test_what_its_client_has_given_up_does_nothing_later),
        TEST(test_a_call_needs_what_has_failed_at_the_gate_of_another_shard),
        TEST(test_gates_of_other_shards_elsewhere_are_refused),
        TEST(test_gates_elsewhere_are_refused_and_nothing_is_written),
        TEST(memory_of_the_servers_process_is_lent_by_its_address),
        TEST(an_address_of_another_process_is_refused),
        TEST(test_what_is_closed_is_gone_and_the_rest_goes_with_the_connection),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
