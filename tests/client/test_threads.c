/* test_threads.c - two handles on two threads, each with a thread of its own for bytes, with
 * several calls in flight: what a TSAN build is run with. Values are checked against what the same
 * handle pushed before.
 *
 * usage: test_threads EMBD */
#include "../unit/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cluster.h"
#include "embd/embd.h"

enum { N_KEYS = 300, DIM = 4, IN_FLIGHT = 4, STEPS = 60 };

static const char *program;

struct worker {
    pthread_t thread;
    const char *address;
    uint64_t first_key; /* keys of different workers differ */
    bool own_thread;
    char failure[400];
};

static bool works(struct worker *w, embd_client *client, int status)
{
    if (status == EMBD_OK)
        return true;
    snprintf(w->failure, sizeof w->failure, "%s", embd_last_error(client));
    return false;
}

/* A push and then a pull, IN_FLIGHT times over without waiting: those to one shard take effect in
 * order. */
static bool step(struct worker *w, embd_client *client, embd_table *table, const uint64_t *keys,
                 float *expected)
{
    float values[IN_FLIGHT][N_KEYS * DIM], gradient[N_KEYS * DIM];
    embd_call *pushes[IN_FLIGHT], *pulls[IN_FLIGHT];
    for (int i = 0; i < N_KEYS * DIM; i++)
        gradient[i] = -1;
    for (int c = 0; c < IN_FLIGHT; c++) {
        embd_part push = {
            .table = table, .n_keys = N_KEYS, .keys = keys, .values = gradient, .raw = true};
        embd_part pull = {
            .table = table, .n_keys = N_KEYS, .keys = keys, .values = values[c], .raw = true};
        if (!works(w, client, embd_push_start(client, &push, 1, NULL, &pushes[c])) ||
            !works(w, client, embd_pull_start(client, &pull, 1, NULL, &pulls[c])))
            return false;
    }
    for (int c = 0; c < IN_FLIGHT; c++) {
        embd_is_done(pulls[c]);
        if (!works(w, client, embd_wait(pulls[c])) || !works(w, client, embd_wait(pushes[c])))
            return false;
        *expected += 1;
        for (int i = 0; i < N_KEYS * DIM; i++)
            if (values[c][i] != *expected) {
                snprintf(w->failure, sizeof w->failure, "value %d is %g, not %g", i,
                         (double)values[c][i], (double)*expected);
                return false;
            }
    }
    return true;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t keys[N_KEYS];
    embd_client *client;
    embd_table *table;
    embd_options options;
    float expected = 0;
    embd_options_init(&options);
    options.own_thread = w->own_thread;
    if (embd_connect(w->address, &options, &client, w->failure, sizeof w->failure) != EMBD_OK)
        return NULL;
    for (int i = 0; i < N_KEYS; i++)
        keys[i] = w->first_key + (uint64_t)i;
    if (works(w, client, embd_table_open(client, "t", &table)))
        for (int i = 0; i < STEPS; i++)
            if (!step(w, client, table, keys, &expected))
                break;
    embd_close(client);
    return NULL;
}

static void make_table(const char *address)
{
    embd_client *client;
    embd_schema schema;
    char why[400];
    if (embd_connect(address, NULL, &client, why, sizeof why) != EMBD_OK)
        fail_msg("%s", why);
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = DIM;
    schema.optimizer.lr = 1;
    schema.initializer = (embd_initializer){EMBD_CONSTANT, 0, 0};
    assert_int_equal(embd_table_create(client, &schema), EMBD_OK);
    embd_close(client);
}

static void handles_on_threads_do_not_disturb_each_other(void **state)
{
    struct cluster cluster;
    struct worker workers[3] = {{.first_key = 0, .own_thread = true},
                                {.first_key = 1000, .own_thread = true},
                                {.first_key = 2000, .own_thread = false}};
    (void)state;
    cluster_start(&cluster, program, 2, 0);
    make_table(cluster.address);
    for (int i = 0; i < 3; i++) {
        workers[i].address = cluster.address;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < 3; i++)
        assert_string_equal(workers[i].failure, "");
    cluster_stop(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_on_threads_do_not_disturb_each_other)};
    if (argc != 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
