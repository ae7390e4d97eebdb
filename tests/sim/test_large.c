/* test_large.c - large.h where its results are known: by adding up, and by laws of queues. */
#include "tests/unit/cmocka_all.h"

#include "tests/sim/large.h"

static struct large small(uint32_t shards, uint32_t trainers)
{
    struct large of;
    large_init(&of);
    of.n_shards = shards;
    of.n_trainers = trainers;
    of.keys = 64 * shards;
    of.compute_ns = 1e6;
    of.seconds = 1;
    return of;
}

static struct large_result run(const struct large *of)
{
    struct large_result result;
    assert_true(large_run(of, &result));
    return result;
}

static bool is_near(double got, double want, double part)
{
    return got >= want * (1 - part) && got <= want * (1 + part);
}

static double client_ns(const struct large_costs *c)
{
    return c->client_request_ns + c->client_key_ns * 64;
}

static double server_ns(const struct large_costs *c)
{
    return c->server_request_ns + c->server_key_ns * 64;
}

static void test_alone(void **state)
{
    (void)state;
    struct large of = small(1, 1);
    of.pull.cold_ns = 80e3; /* after the pause of 1 ms, which a push follows too */
    of.rest_ns = 0.5e6;
    double pull = client_ns(&of.pull) + server_ns(&of.pull) + 2 * of.wire_ns;
    double push = client_ns(&of.push) + server_ns(&of.push) + 2 * of.wire_ns;
    struct large_result r = run(&of);
    assert_true(is_near(r.pull_p50_ns, pull, 1e-6));
    assert_true(is_near(r.push_p99_ns, push, 1e-6));
    assert_true(is_near(r.steps_per_second, 1e9 / (pull + push + of.compute_ns), 0.01));
    of.push.cold_ns = 80e3;
    assert_true(is_near(run(&of).push_p50_ns, push + 80e3, 1e-6));
}

/* A shard that never rests serves everybody in turn: a call takes one turn of all. */
static void test_in_turn(void **state)
{
    (void)state;
    struct large of = small(1, 100);
    of.compute_ns = of.wire_ns = 0;
    of.push = of.pull = (struct large_costs){.server_request_ns = 1e4};
    struct large_result r = run(&of);
    assert_true(is_near(r.busy, 1, 0.01));
    assert_true(is_near(r.pull_p50_ns, 100 * 1e4, 1e-6));
    assert_true(is_near(r.push_p99_ns, 100 * 1e4, 1e-6));
    assert_true(is_near(r.steps_per_second, 1e9 / 1e4 / 100 / 2, 0.02));
}

/* Work that is asked for is work that is done. */
static void test_busy(void **state)
{
    (void)state;
    struct large of = small(16, 64);
    struct large_result r = run(&of);
    double asked = r.steps_per_second * 64 * (server_ns(&of.pull) + server_ns(&of.push)) / 1e9;
    assert_true(r.busy > 0.2 && r.busy < 0.95);
    assert_true(is_near(r.busy, asked, 0.02));
    assert_true(r.pull_p99_ns >= r.pull_p50_ns);
    assert_true(r.pull_p50_ns > 15.99 * client_ns(&of.pull));
}

/* All trainers wait for a shard that is down, and for little longer. */
static void test_down(void **state)
{
    (void)state;
    struct large of = small(16, 64);
    struct large_result whole = run(&of);
    of.down_at_ns = 0.3e9;
    of.down_ns = 0.25e9;
    struct large_result r = run(&of);
    double lost = (1 - (double)r.n_steps / (double)whole.n_steps) * 0.9e9;
    assert_true(r.longest_ns >= 0.25e9 && r.longest_ns < 0.26e9);
    assert_true(lost > 0.24e9 && lost < 0.28e9);
    assert_true(whole.longest_ns < 0.02e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
