/* test_threads.c - two handles on two threads, each with a thread of its own for bytes, with
 * several calls in flight, pushes numbered or not; and handles whose shard moves while they work:
 * what a TSAN build is run with. Values are checked against what the same handle pushed before.
 *
 * usage: test_threads EMBD */
#include "tests/unit/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/client/cluster.h"
#include "embd/embd.h"
#include "embd/sync.h"
#include "tests/client/fake_server.h"

enum { N_KEYS = 300, DIM = 4, IN_FLIGHT = 4, STEPS = 60, N_WORKERS = 5 };

static const char *program;

struct worker {
    pthread_t thread;
    const char *address;
    uint64_t first_key; /* keys of different workers differ */
    bool own_thread;
    bool is_numbered; /* its pushes */
    embd_pusher pusher;
    uint64_t sequence;
    char failure[400];
};

static bool works(struct worker *w, int status)
{
    if (status == EMBD_OK)
        return true;
    snprintf(w->failure, sizeof w->failure, "%s", embd_error_text());
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
        embd_part push = EMBD_PART(.table = table, .n_keys = N_KEYS, .keys = keys,
                                   .values = gradient, .raw = true);
        embd_part pull = EMBD_PART(.table = table, .n_keys = N_KEYS, .keys = keys,
                                   .values = values[c], .raw = true);
        embd_call_options options = EMBD_CALL_OPTIONS(.pusher = w->is_numbered ? &w->pusher : NULL);
        options.sequence = w->is_numbered ? ++w->sequence : 0;
        if (!works(w, embd_push_start(client, &push, 1, &options, &pushes[c])) ||
            !works(w, embd_pull_start(client, &pull, 1, NULL, &pulls[c])))
            return false;
    }
    for (int c = 0; c < IN_FLIGHT; c++) {
        embd_is_done(pulls[c]);
        if (!works(w, embd_wait(pulls[c])) || !works(w, embd_wait(pushes[c])))
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
    if (embd_connect(w->address, &options, &client) != EMBD_OK) {
        snprintf(w->failure, sizeof w->failure, "%s", embd_error_text());
        return NULL;
    }
    for (int i = 0; i < N_KEYS; i++)
        keys[i] = w->first_key + (uint64_t)i;
    if (works(w, embd_table_open(client, "t", &table)))
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
    if (embd_connect(address, NULL, &client) != EMBD_OK)
        fail_msg("%s", why);
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = DIM;
    schema.optimizer.lr = 1;
    schema.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0, 0};
    assert_int_equal(embd_table_create(client, &schema), EMBD_OK);
    embd_close(client);
}

static void handles_on_threads_do_not_disturb_each_other(void **state)
{
    struct cluster cluster;
    struct worker workers[N_WORKERS] = {{.own_thread = true},
                                        {.own_thread = true},
                                        {.own_thread = false},
                                        {.own_thread = true, .is_numbered = true},
                                        {.own_thread = false, .is_numbered = true}};
    embd_pusher pusher;
    (void)state;
    cluster_start(&cluster, program, 2, 0);
    make_table(cluster.address);
    assert_int_equal(embd_pusher_new(&pusher), EMBD_OK);
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        workers[i].address = cluster.address;
        workers[i].first_key = 1000 * i;
        workers[i].pusher = pusher;
        workers[i].pusher.stream = i; /* one pusher's streams do not wait for each other */
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < N_WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < N_WORKERS; i++)
        assert_string_equal(workers[i].failure, "");
    cluster_stop(&cluster);
}

/* ---- workers of a job, which have a thread more for their signs of life ---- */

enum { N_TRAINERS = 3, CLOCKS = 20, LEASE_MS = 300, SLEEP_NS = 700000000 };

struct trainer {
    struct worker worker; /* first */
    uint32_t number;
};

static bool train(struct trainer *t, embd_client *client, embd_table *table)
{
    static const uint64_t key = 7;
    static const float gradient[DIM] = {1, 1, 1, 1};
    embd_clock clock = EMBD_CLOCK(.job = "job", .worker = t->number, .n_workers = N_TRAINERS,
                                  .lease_ms = LEASE_MS);
    embd_part part = EMBD_PART(.table = table, .n_keys = 1, .keys = &key,
                               .values = (float *)(uintptr_t)gradient, .raw = true);
    struct timespec sleeps = {.tv_nsec = SLEEP_NS};
    embd_clock_report report;
    uint64_t i = 0;
    int status = EMBD_OK;
    while (i < CLOCKS && status == EMBD_OK) {
        embd_call_options options = EMBD_CALL_OPTIONS(.round = &clock, .round_clock = i);
        status = embd_tick_wait(client, &clock, i, 0, 0, &report);
        if (i == CLOCKS / 2 && t->number == 1) /* longer than the lease */
            nanosleep(&sleeps, NULL);
        if (status == EMBD_OK)
            status = embd_push(client, &part, 1, &options);
        if (status == EMBD_OK)
            status = embd_tick(client, &clock, i + 1, &report);
        if (status == EMBD_OK)
            i++;
        else if (status == EMBD_LATE) /* on a machine that let no thread run for the lease */
            status = embd_tick_rejoin(client, &clock, &i, &report);
    }
    if (status == EMBD_OK)
        status = embd_tick_leave(client, &clock, i);
    if (status == EMBD_OK) /* and once more, so that a handle is closed that beats */
        status = embd_tick(client, &clock, CLOCKS, &report);
    return works(&t->worker, status);
}

static void *train_on(void *arg)
{
    struct trainer *t = arg;
    struct worker *w = &t->worker;
    embd_client *client;
    embd_table *table;
    embd_options options;
    embd_options_init(&options);
    options.own_thread = w->own_thread;
    if (embd_connect(w->address, &options, &client) != EMBD_OK) {
        snprintf(w->failure, sizeof w->failure, "%s", embd_error_text());
        return NULL;
    }
    if (works(w, embd_table_open(client, "t", &table)))
        train(t, client, table);
    embd_close(client);
    return NULL;
}

static void check_steps(const char *address)
{
    static const uint64_t key = 7;
    float values[DIM];
    char why[400];
    embd_client *client;
    embd_part part = EMBD_PART(.n_keys = 1, .keys = &key, .values = values, .raw = true);
    if (embd_connect(address, NULL, &client) != EMBD_OK)
        fail_msg("%s", why);
    assert_int_equal(embd_table_open(client, "t", &part.table), EMBD_OK);
    assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
    for (int i = 0; i < DIM; i++)
        assert_true(values[i] == -CLOCKS);
    embd_close(client);
}

static void workers_of_a_job_live_while_they_sleep_and_make_each_step_once(void **state)
{
    struct cluster cluster;
    struct trainer trainers[N_TRAINERS] = {{.worker.own_thread = true}};
    (void)state;
    cluster_start(&cluster, program, 2, 0);
    make_table(cluster.address);
    for (uint32_t i = 0; i < N_TRAINERS; i++) {
        trainers[i].worker.address = cluster.address;
        trainers[i].number = i;
        assert_int_equal(pthread_create(&trainers[i].worker.thread, NULL, train_on, &trainers[i]),
                         0);
    }
    for (int i = 0; i < N_TRAINERS; i++)
        pthread_join(trainers[i].worker.thread, NULL);
    for (int i = 0; i < N_TRAINERS; i++)
        assert_string_equal(trainers[i].worker.failure, "");
    check_steps(cluster.address);
    cluster_stop(&cluster);
}

/* ---- a shard that moves ---- */

/* The shard moves until it has been followed often enough, on a busy machine more often than that.
 */
enum { N_FOLLOWERS = 2, MOVES = 30, MOVES_MAX = 1500, FOLLOWED = 3, STAY_NS = 20000000 };

struct follower {
    pthread_t thread;
    struct fake_server homes[2];
    struct fake_moves moves;
    atomic_bool stops;
    atomic_int n_pulls, n_moves;
    char failure[400];
};

/* Where it says the shard is. */
static void note_move(struct follower *f, const embd_client *client, const char **address)
{
    const char *now = embd_shard_address(client, 0);
    f->n_moves += now != *address;
    *address = now;
}

/* A pull that was on its way when the shard moved may be lost, and says so. */
static void pull_on(struct follower *f, embd_client *client, embd_table *table)
{
    static const uint64_t keys[2] = {1, 2};
    float values[2 * FAKE_DIM];
    embd_part part =
        EMBD_PART(.table = table, .n_keys = 2, .keys = keys, .values = values, .raw = true);
    const char *address = embd_shard_address(client, 0);
    while (!f->stops && f->failure[0] == '\0') {
        int status = embd_pull(client, &part, 1, NULL);
        note_move(f, client, &address);
        if (status == EMBD_OK) {
            f->n_pulls++;
            for (uint32_t i = 0; i < 2 * FAKE_DIM; i++)
                if (values[i] != 1)
                    snprintf(f->failure, sizeof f->failure, "a value of %g", (double)values[i]);
        } else if (status != EMBD_CLOSED && status != EMBD_UNREACHABLE) {
            snprintf(f->failure, sizeof f->failure, "%s", embd_error_text());
        }
    }
}

static void *follow(void *arg)
{
    struct follower *f = arg;
    embd_client *client;
    embd_table *table;
    embd_options options;
    embd_options_init(&options);
    options.own_thread = true;
    options.reconnect_max_ms = 5;
    if (embd_connect(f->homes[0].address, &options, &client) != EMBD_OK) {
        snprintf(f->failure, sizeof f->failure, "%s", embd_error_text());
        return NULL;
    }
    if (embd_table_open(client, "t", &table) == EMBD_OK)
        pull_on(f, client, table);
    else
        snprintf(f->failure, sizeof f->failure, "%s", embd_error_text());
    embd_close(client);
    return NULL;
}

static void start_follower(struct follower *f)
{
    for (int i = 0; i < 2; i++) {
        fake_server_start(&f->homes[i]);
        f->homes[i].moves = &f->moves;
        f->moves.homes[i] = &f->homes[i];
    }
    f->moves.version = 2;
    assert_int_equal(pthread_create(&f->thread, NULL, follow, f), 0);
}

static bool has_followed(const struct follower *f)
{
    return f->n_moves >= FOLLOWED && f->n_pulls > FOLLOWED;
}

static void clients_follow_a_shard_that_moves_while_they_work(void **state)
{
    static struct follower followers[N_FOLLOWERS];
    struct timespec stay = {.tv_nsec = STAY_NS};
    (void)state;
    for (int i = 0; i < N_FOLLOWERS; i++)
        start_follower(&followers[i]);
    for (int m = 0; m < MOVES || (m < MOVES_MAX &&
                                  !(has_followed(&followers[0]) && has_followed(&followers[1])));
         m++) {
        nanosleep(&stay, NULL);
        for (int i = 0; i < N_FOLLOWERS; i++)
            atomic_fetch_add(&followers[i].moves.version, 1);
    }
    for (int i = 0; i < N_FOLLOWERS; i++)
        followers[i].stops = true;
    for (int i = 0; i < N_FOLLOWERS; i++) {
        pthread_join(followers[i].thread, NULL);
        assert_string_equal(followers[i].failure, "");
        assert_true(has_followed(&followers[i]));
        fake_server_stop(&followers[i].homes[0]);
        fake_server_stop(&followers[i].homes[1]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_on_threads_do_not_disturb_each_other),
        cmocka_unit_test(workers_of_a_job_live_while_they_sleep_and_make_each_step_once),
        cmocka_unit_test(clients_follow_a_shard_that_moves_while_they_work)};
    if (argc != 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
