/* test_followers_missing.c - changes of replicated tables on a shard that has no follower, by a
 * clock of the test: what an operator began ends after ten seconds and says so, what a trainer
 * pushed goes on waiting, and what comes later is refused before it is written. */
#include "tests/server/journaled.h"

#include <time.h>

#include "server/journal/syncs.h"
#include "server/service/replicated.h"
#include "server/service/state.h"

enum { ROWS = 2, PATIENCE_S = 10 };
#define NS UINT64_C(1000000000)

static uint64_t passed_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int status = __real_clock_gettime(clock, out);
    uint64_t ns = (uint64_t)out->tv_nsec + (clock == CLOCK_MONOTONIC ? passed_ns : 0);
    out->tv_sec += (time_t)(ns / NS);
    out->tv_nsec = (long)(ns % NS);
    return status;
}

/* Followers have been missing for that long, however slow the host is; also what that ends. */
static void pass_to(struct rig *rig, uint64_t seconds)
{
    uint64_t missing_ns = monotonic_ns() - rig->shard->replicated.lacks_ns;
    if (missing_ns < seconds * NS)
        passed_ns += seconds * NS - missing_ns;
    replicated_look(rig->shard);
}

/* The table "there" is there, as when the shard had followers. */
static void begin(struct journaled *j)
{
    const embd_schema schema = kept_schema("there", EMBD_DURABILITY_REPLICATED);
    journaled_new(j);
    create_table(&j->rig, &schema);
    j->rig.config.replicas = 1;
    rig_wake(&j->rig);
}

/* It has been written, applied, and answered but for the sending. */
static struct exchange *await_parked(struct rig *rig, struct exchange *x)
{
    while (x->request.waits != WAITS_FOLLOWERS || x->request.state != REQUEST_PARKED) {
        assert_false(x->is_answered);
        shard_collect(rig->shard);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return x;
}

static struct exchange *ask_create(struct rig *rig, const char *name)
{
    const embd_schema schema = kept_schema(name, EMBD_DURABILITY_REPLICATED);
    struct exchange *x = ask(rig, &rig->data, METHOD_TABLE_CREATE);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, &schema);
    ask_send(x);
    return x;
}

/* As a restore sends it. */
static struct exchange *ask_load(struct rig *rig, struct shard_session *session)
{
    static const uint64_t keys[ROWS] = {1, 2};
    static const float values[ROWS * 8];
    const embd_schema schema = kept_schema("there", EMBD_DURABILITY_REPLICATED);
    const struct row_block block = {.n_rows = ROWS, .keys = keys, .rows = values, .states = values};
    struct exchange *x = ask(rig, session, METHOD_LOAD);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", "there");
    embd__msg_field_uint(&x->out, "rows", ROWS);
    embd__msg_field_uint(&x->out, "candidates", 0);
    embd__row_block_write(&x->out, &schema, &block);
    ask_send(x);
    return x;
}

static struct exchange *ask_push(struct rig *rig)
{
    static const uint64_t keys[ROWS] = {1, 2};
    static const float grads[ROWS * 4] = {1};
    const struct part part = part_of("there", keys, ROWS, grads);
    struct exchange *x = ask_parts(rig, METHOD_PUSH, &part, 1);
    ask_send(x);
    return x;
}

static void check_busy(struct exchange *x, const char *so)
{
    const char *const fragments[] = {"0 of 1 followers", so, NULL};
    ask_wait(x);
    ask_read(x);
    check_error(x, EMBD_BUSY, fragments);
    ask_free(x);
}

/* Not a second before ten. */
static void ends_busy(struct rig *rig, struct exchange *x)
{
    await_parked(rig, x);
    pass_to(rig, PATIENCE_S - 1);
    assert_false(x->is_answered);
    pass_to(rig, PATIENCE_S);
    assert_true(x->is_answered);
    check_busy(x, "this server alone has the change");
}

static void a_table_that_is_created_ends_busy_after_ten_seconds(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j);
    ends_busy(&j.rig, ask_create(&j.rig, "new"));
    journaled_end(&j);
}

static void so_does_a_load(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j);
    ends_busy(&j.rig, ask_load(&j.rig, &j.rig.admin));
    assert_int_equal(figure(&j.rig, "there", "rows"), ROWS);
    journaled_end(&j);
}

static void a_push_waits_on_and_the_next_is_refused_before_it_is_written(void **state)
{
    (void)state;
    struct journaled j;
    begin(&j);
    struct rig *rig = &j.rig;
    struct exchange *first = await_parked(rig, ask_push(rig));
    pass_to(rig, 2 * PATIENCE_S);
    assert_false(first->is_answered);
    uint64_t position = rig->shard->commit.ended.position;
    struct shard_session other = {.is_admin = true};
    check_busy(ask_load(rig, &other), "nothing was changed");
    assert_int_equal(rig->shard->commit.ended.position, position);
    assert_false(first->is_answered);
    shard_session_end(rig->shard, &rig->data); /* it is given up with its connection */
    ask_free(first);
    shard_session_end(rig->shard, &other);
    journaled_end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_that_is_created_ends_busy_after_ten_seconds),
        cmocka_unit_test(so_does_a_load),
        cmocka_unit_test(a_push_waits_on_and_the_next_is_refused_before_it_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
