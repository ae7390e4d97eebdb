/* test_restarts.c - a trainer that pushes as the header shows, with no pusher, while its servers
 * are stopped and killed at random points: no call fails, and in the end every push was applied
 * once, so that the rows equal the model's bit for bit. And what ends a push still does.
 *
 * usage: test_restarts EMBD */
#include "tests/unit/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/client/batch.h"
#include "tests/client/cluster.h"

#define SHARDS    2u
#define RESTARTS  8
#define IN_FLIGHT 3u
#define DIM       4u

static const char *program;

/* A trainer on a thread, and the model of its table. */
struct trainer {
    char address[64];
    bool own_thread;
    atomic_int n_restarts; /* that were; all of them end the loop */
    embd_durability durability;
    struct model *model;
    uint64_t random_state;
    uint64_t n_pushes;
    int status;
    char why[512];
};

static int pause_for(long ms)
{
    return nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static int open_table(embd_client *client, struct trainer *t, embd_table **table_out)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = DIM;
    schema.durability = t->durability;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.05f);
    t->model = model_new(&schema);
    int status = embd_table_create(client, &schema);
    return status == EMBD_OK ? embd_table_open(client, "t", table_out) : status;
}

/* Some pushes behind each other, and their batches to the model. */
static int push_some(embd_client *client, embd_table *table, struct trainer *t)
{
    static struct batch batches[IN_FLIGHT];
    static float grads[IN_FLIGHT][BATCH_KEYS_MAX * DIM];
    static uint8_t statuses[BATCH_KEYS_MAX];
    embd_call *calls[IN_FLIGHT];
    int status = EMBD_OK;
    uint32_t n = 0;
    for (; n < IN_FLIGHT && status == EMBD_OK; n++) {
        struct batch *b = &batches[n];
        batch_make(b, &t->model->schema, 7, 40, false, &t->random_state);
        for (uint64_t i = 0; i < b->n_rows * DIM; i++)
            grads[n][i] = batch_random_float(&t->random_state);
        embd_part part = EMBD_PART(.table = table, .n_rows = b->n_rows, .offsets = b->offsets,
                                   .n_keys = b->n_keys, .keys = b->keys, .values = grads[n]);
        status = embd_push_start(client, &part, 1, NULL, &calls[n]);
        n -= status != EMBD_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        int ended = embd_wait(calls[i]);
        status = status == EMBD_OK ? ended : status;
        batch_push(t->model, &batches[i], true, grads[i], statuses);
    }
    t->n_pushes += n;
    return status;
}

/* Every row of the model. */
static int compare(embd_client *client, embd_table *table, const struct trainer *t)
{
    for (uint64_t i = 0; i < t->model->n_keys; i++) {
        const struct model_key *key = t->model->keys[i];
        float row[DIM];
        embd_part part =
            EMBD_PART(.table = table, .n_keys = 1, .keys = &key->key, .values = row, .raw = true);
        int status = embd_pull(client, &part, 1, NULL);
        if (status != EMBD_OK)
            return status;
        if (memcmp(row, key->w, sizeof row) != 0)
            return EMBD_CORRUPT;
    }
    return EMBD_OK;
}

static void *train(void *arg)
{
    struct trainer *t = arg;
    embd_client *client;
    embd_table *table;
    embd_options options;
    embd_options_init(&options);
    options.own_thread = t->own_thread;
    t->status = embd_connect(t->address, &options, &client);
    if (t->status == EMBD_OK) {
        t->status = open_table(client, t, &table);
        atomic_store(&t->n_restarts, 0); /* from here on servers may go */
        while (t->status == EMBD_OK && atomic_load(&t->n_restarts) < RESTARTS)
            t->status = push_some(client, table, t);
        if (t->status == EMBD_OK)
            t->status = compare(client, table, t);
        embd_close(client);
    }
    snprintf(t->why, sizeof t->why, "%s", t->status == EMBD_CORRUPT ? "" : embd_error_text());
    atomic_store(&t->n_restarts, RESTARTS);
    return NULL;
}

static void restart_under(bool own_thread, embd_durability durability)
{
    char data[] = "/tmp/embd-restarts-XXXXXX", command[64];
    struct cluster cluster;
    struct trainer t = {.own_thread = own_thread, .durability = durability, .random_state = 1};
    pthread_t thread;
    assert_non_null(mkdtemp(data));
    const char *const flags[] = {"--data-dir", data, "--http", "off", NULL};
    int port = cluster_free_ports((int)SHARDS);
    cluster_start_at(&cluster, program, SHARDS, port, flags);
    strcpy(t.address, cluster.address);
    atomic_store(&t.n_restarts, -1);
    pthread_create(&thread, NULL, train, &t);
    while (atomic_load(&t.n_restarts) < 0)
        pause_for(1);
    for (int i = 0; i < RESTARTS && atomic_load(&t.n_restarts) < RESTARTS; i++) {
        pause_for(random() % 60);
        if (i % 2 == 0)
            cluster_kill(&cluster);
        else
            cluster_stop(&cluster);
        cluster_start_at(&cluster, program, SHARDS, port, flags);
        atomic_fetch_add(&t.n_restarts, 1);
    }
    pthread_join(thread, NULL);
    if (t.status == EMBD_CORRUPT)
        fail_msg("after %llu pushes a row is not the model's", (unsigned long long)t.n_pushes);
    if (t.status != EMBD_OK)
        fail_msg("after %llu pushes: %s: %s", (unsigned long long)t.n_pushes,
                 embd_status_text(t.status), t.why);
    print_message("%llu pushes, %d restarts\n", (unsigned long long)t.n_pushes, RESTARTS);
    model_free(t.model);
    cluster_kill(&cluster);
    snprintf(command, sizeof command, "rm -rf %s", data);
    assert_int_equal(system(command), 0);
}

static void durable_tables_lose_nothing(void **state)
{
    (void)state;
    restart_under(false, EMBD_DURABILITY_DURABLE);
}

static void buffered_tables_lose_nothing_and_a_thread_of_the_library_neither(void **state)
{
    (void)state;
    restart_under(true, EMBD_DURABILITY_BUFFERED);
}

/* Of three that are under way the first is refused: nobody applies those behind it. */
static void pushes_behind_one_that_failed_fail_too(void **state)
{
    struct cluster cluster;
    embd_client *client;
    embd_table *table;
    embd_call *calls[3];
    struct trainer t = {.durability = EMBD_DURABILITY_SNAPSHOT};
    const uint64_t key = 1;
    float grads[3][DIM] = {{__builtin_nanf("")}}, row[DIM], before[DIM];
    (void)state;
    cluster_start(&cluster, program, 1, 0);
    assert_int_equal(embd_connect(cluster.address, NULL, &client), EMBD_OK);
    assert_int_equal(open_table(client, &t, &table), EMBD_OK);
    embd_part part = EMBD_PART(.table = table, .n_keys = 1, .keys = &key, .raw = true);
    part.values = before;
    assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
    for (int i = 0; i < 3; i++) {
        part.values = grads[i];
        assert_int_equal(embd_push_start(client, &part, 1, NULL, &calls[i]), EMBD_OK);
    }
    assert_int_equal(embd_wait(calls[2]), EMBD_NOT_FINITE);
    assert_non_null(strstr(embd_error_text(), "behind one that failed"));
    assert_non_null(strstr(embd_error_text(), cluster.address));
    assert_int_equal(embd_wait(calls[0]), EMBD_NOT_FINITE);
    assert_int_equal(embd_wait(calls[1]), EMBD_NOT_FINITE);
    part.values = row;
    assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
    assert_memory_equal(row, before, sizeof row);
    part.values = grads[1];
    assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_OK);
    model_free(t.model);
    embd_close(client);
    cluster_stop(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durable_tables_lose_nothing),
        cmocka_unit_test(buffered_tables_lose_nothing_and_a_thread_of_the_library_neither),
        cmocka_unit_test(pushes_behind_one_that_failed_fail_too),
    };
    if (argc != 2)
        return 2;
    program = argv[1];
    srandom((unsigned)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
