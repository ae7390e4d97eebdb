/* test_figures.c - what a client says it has seen of each shard is what happened.
 *
 * usage: test_figures EMBD */
#include "tests/unit/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/io/link_figures.h"
#include "tests/client/cluster.h"
#include "tests/client/fake_server.h"

#define SHARDS 2u
#define DIM    4u
#define KEYS   1000u

static const char *program;
static uint64_t keys[KEYS];
static float values[KEYS * DIM];

static embd_shard_figures figures_of(const embd_client *client, uint32_t shard)
{
    embd_shard_figures f = {.struct_bytes = sizeof f};
    assert_int_equal(embd_figures(client, shard, &f), EMBD_OK);
    return f;
}

static void check_latency(const embd_latency *latency, uint64_t count)
{
    uint64_t sum = 0;
    assert_int_equal(latency->count, count);
    for (uint32_t i = 0; i < EMBD_LATENCY_BUCKETS; i++)
        sum += latency->buckets[i];
    assert_int_equal(sum, count);
    assert_true((latency->sum_ns > 0) == (count > 0));
}

static embd_client *connect_to(const char *address, const embd_options *options, embd_table **table)
{
    embd_client *client;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = DIM;
    schema.durability = EMBD_DURABILITY_SNAPSHOT;
    assert_int_equal(embd_connect(address, options, &client), EMBD_OK);
    assert_int_equal(embd_table_create(client, &schema), EMBD_OK);
    assert_int_equal(embd_table_open(client, "t", table), EMBD_OK);
    return client;
}

static embd_part part_of(embd_table *table)
{
    return (embd_part)EMBD_PART(.table = table, .n_keys = KEYS, .keys = keys, .values = values,
                                .raw = true);
}

static void calls_bytes_and_times_are_counted(void **state)
{
    struct cluster cluster;
    embd_table *table;
    embd_options options;
    (void)state;
    cluster_start(&cluster, program, SHARDS, 0);
    for (int own_thread = 0; own_thread < 2; own_thread++) {
        embd_options_init(&options);
        options.own_thread = own_thread == 1;
        embd_client *client = connect_to(cluster.address, &options, &table);
        embd_part part = part_of(table);
        embd_shard_figures before = figures_of(client, 1);
        for (int i = 0; i < 5; i++)
            assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_OK);
        embd_shard_figures f = figures_of(client, 1);
        check_latency(&f.pulls, 5);
        check_latency(&f.pushes, 3);
        assert_true(f.is_connected);
        assert_int_equal(f.connections, 1);
        assert_int_equal(f.repeats + f.failures + f.unnumbered, 0);
        /* About half of the keys, each as 8 bytes in 8 calls; their rows in 3 and in 5. */
        uint64_t sent = f.bytes_sent - before.bytes_sent,
                 received = f.bytes_received - before.bytes_received;
        assert_in_range(sent, KEYS / 3 * (8 * 8 + 3 * 16), KEYS * (8 * 8 + 3 * 16));
        assert_in_range(received, KEYS / 3 * 5 * 16, KEYS * 5 * 16);
        embd_close(client);
    }
    cluster_stop(&cluster);
}

#define MANY 40000u /* rows of more than 256 KiB */

/* How many calls the client would look at its sockets for. */
static uint32_t short_calls(embd_client *client, embd_part *part, uint32_t n_keys)
{
    embd_call *call;
    part->n_keys = n_keys;
    assert_int_equal(embd_pull_start(client, part, 1, NULL, &call), EMBD_OK);
    uint32_t n = client->io.rings.n_short;
    assert_int_equal(embd_wait(call), EMBD_OK);
    assert_int_equal(client->io.rings.n_short, 0);
    return n;
}

static void sockets_are_looked_at_for_short_answers_alone(void **state)
{
    struct cluster cluster;
    embd_table *table;
    (void)state;
    cluster_start(&cluster, program, SHARDS, 0);
    embd_client *client = connect_to(cluster.address, NULL, &table);
    embd_part part = part_of(table);
    uint64_t *many_keys = calloc(MANY, sizeof *many_keys);
    float *many_values = calloc((size_t)MANY * DIM, sizeof *many_values);
    assert_non_null(many_keys);
    assert_non_null(many_values);
    for (uint64_t i = 0; i < MANY; i++)
        many_keys[i] = i;
    part.keys = many_keys;
    part.values = many_values;
    assert_int_equal(short_calls(client, &part, KEYS), 1);
    assert_int_equal(short_calls(client, &part, MANY), 0);
    cluster_stop(&cluster);
    part.n_keys = KEYS;
    assert_int_not_equal(embd_pull(client, &part, 1,
                                   &(embd_call_options){.struct_bytes = sizeof(embd_call_options),
                                                        .deadline_ms = 200}),
                         EMBD_OK);
    assert_int_equal(client->io.rings.n_short, 0);
    embd_close(client);
    free(many_keys);
    free(many_values);
}

static void failures_and_pushes_without_a_number_are_counted(void **state)
{
    struct cluster cluster;
    embd_table *table;
    embd_options options;
    (void)state;
    cluster_start(&cluster, program, 1, 0);
    embd_options_init(&options);
    options.unnumbered = true;
    embd_client *client = connect_to(cluster.address, &options, &table);
    embd_part part = part_of(table);
    assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_OK);
    values[0] = __builtin_nanf("");
    assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_NOT_FINITE);
    values[0] = 0;
    embd_shard_figures f = figures_of(client, 0);
    check_latency(&f.pushes, 2);
    assert_int_equal(f.unnumbered, 2);
    assert_int_equal(f.failures, 1);
    embd_close(client);
    cluster_stop(&cluster);
}

static void a_lost_connection_and_what_is_sent_again_are_counted(void **state)
{
    struct fake_server server;
    embd_client *client;
    embd_table *table;
    (void)state;
    fake_server_start(&server);
    assert_int_equal(embd_connect(server.address, NULL, &client), EMBD_OK);
    assert_int_equal(embd_table_open(client, "t", &table), EMBD_OK);
    embd_part part = part_of(table);
    part.n_keys = 6;
    assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
    server.manner = FAKE_CLOSES_MIDWAY_ONCE;
    assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
    embd_shard_figures f = figures_of(client, 0);
    check_latency(&f.pulls, 2);
    assert_int_equal(f.connections, 2);
    assert_int_equal(f.repeats, 1);
    assert_int_equal(f.failures, 0);
    server.manner = FAKE_CLOSES;
    embd_call_options options = EMBD_CALL_OPTIONS(.deadline_ms = 200);
    assert_int_not_equal(embd_pull(client, &part, 1, &options), EMBD_OK);
    f = figures_of(client, 0);
    check_latency(&f.pulls, 2);
    assert_int_equal(f.failures, 1);
    embd_close(client);
    fake_server_stop(&server);
}

/* Another thread reads while this one is in calls. */
struct reader_thread {
    const embd_client *client;
    atomic_bool stops;
    bool fell; /* a figure that was lower than before */
};

static void *read_on(void *arg)
{
    struct reader_thread *r = arg;
    uint64_t before = 0;
    while (!atomic_load(&r->stops)) {
        embd_shard_figures f = {.struct_bytes = sizeof f};
        r->fell = r->fell || embd_figures(r->client, 0, &f) != EMBD_OK || f.pulls.count < before;
        before = f.pulls.count;
    }
    return NULL;
}

static void another_thread_may_read(void **state)
{
    struct cluster cluster;
    struct reader_thread r = {.stops = false};
    pthread_t thread;
    embd_table *table;
    (void)state;
    cluster_start(&cluster, program, 1, 0);
    embd_client *client = connect_to(cluster.address, NULL, &table);
    embd_part part = part_of(table);
    r.client = client;
    pthread_create(&thread, NULL, read_on, &r);
    for (int i = 0; i < 200; i++)
        assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
    atomic_store(&r.stops, true);
    pthread_join(thread, NULL);
    assert_false(r.fell);
    assert_int_equal(figures_of(client, 0).pulls.count, 200);
    embd_close(client);
    cluster_stop(&cluster);
}

static void buckets_have_the_bounds_that_the_header_says(void **state)
{
    (void)state;
    assert_int_equal(embd__latency_bucket(0), 0);
    for (uint32_t i = 0; i < EMBD_LATENCY_BUCKETS - 1; i++) {
        uint64_t bound_ns = (UINT64_C(1) << i) * 1000;
        assert_int_equal(embd__latency_bucket(bound_ns), i);
        assert_int_equal(embd__latency_bucket(bound_ns + 1), i + 1);
    }
    assert_int_equal(embd__latency_bucket(UINT64_MAX), EMBD_LATENCY_BUCKETS - 1);
}

static void another_shard_and_another_size_are_told_apart(void **state)
{
    struct fake_server server;
    embd_client *client;
    embd_shard_figures f;
    (void)state;
    fake_server_start(&server);
    assert_int_equal(embd_connect(server.address, NULL, &client), EMBD_OK);
    memset(&f, 0xee, sizeof f);
    f.struct_bytes = offsetof(embd_shard_figures, repeats);
    assert_int_equal(embd_figures(client, 0, &f), EMBD_OK);
    assert_int_equal(f.connections, 1);
    assert_int_equal(f.repeats, 0xeeeeeeeeeeeeeeee);
    assert_int_equal(embd_figures(client, 1, &f), EMBD_INVALID);
    assert_string_equal(embd_error_text(), "shard 1; there are 1");
    embd_close(client);
    fake_server_stop(&server);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_bytes_and_times_are_counted),
        cmocka_unit_test(sockets_are_looked_at_for_short_answers_alone),
        cmocka_unit_test(failures_and_pushes_without_a_number_are_counted),
        cmocka_unit_test(a_lost_connection_and_what_is_sent_again_are_counted),
        cmocka_unit_test(another_thread_may_read),
        cmocka_unit_test(buckets_have_the_bounds_that_the_header_says),
        cmocka_unit_test(another_shard_and_another_size_are_told_apart),
    };
    if (argc != 2)
        return 2;
    program = argv[1];
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
