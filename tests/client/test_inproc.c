/* test_inproc.c - a server in the trainer's process: handles that close with calls in flight, and a
 * server that fails, which costs the process its tables and nothing else.
 *
 * usage: test_inproc (finds libembd-inproc where the system looks) */
#include "tests/unit/cmocka_all.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "embd/admin.h"
#include "embd/embd.h"

enum { KEYS = 4096, DIM = 16 };

static atomic_bool disk_fails;
static char dir[64];
static uint64_t keys[KEYS];
static float rows[KEYS * DIM], pulled[KEYS * DIM];

/* The journal's, too: this program comes first. */
__attribute__((visibility("default"))) int fdatasync(int fd)
{
    if (!atomic_load(&disk_fails))
        return (int)syscall(SYS_fdatasync, fd);
    errno = EIO;
    return -1;
}

/* libuv closes descriptors by system calls that the thread sanitizer does not see. To it the next
 * one of that number, which another thread may have, is the same one still. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:client/io/shared.c\nrace:inproc_dial\nrace:ask_ring\n";
}

static void check(int status)
{
    if (status != EMBD_OK)
        print_error("%s: %s\n", embd_status_text(status), embd_error_text());
    assert_int_equal(status, EMBD_OK);
}

static embd_client *connect_to(const char *settings)
{
    char place[128];
    embd_options options;
    embd_client *client;
    embd_options_init(&options);
    options.own_thread = true;
    snprintf(place, sizeof place, "inproc:%s?%s", dir, settings);
    check(embd_connect(place, &options, &client));
    return client;
}

static embd_table *open_table(embd_client *client)
{
    embd_schema schema;
    embd_table *table;
    embd_schema_init(&schema);
    strcpy(schema.name, "items");
    schema.dim = DIM;
    schema.combiner = EMBD_COMBINER_CONCAT;
    schema.durability = EMBD_DURABILITY_DURABLE;
    check(embd_table_create(client, &schema));
    check(embd_table_open(client, "items", &table));
    return table;
}

static embd_part part_of(embd_table *table)
{
    return (embd_part)EMBD_PART(.table = table, .n_rows = KEYS, .n_keys = KEYS, .keys = keys,
                                .values = rows);
}

static void handles_close_with_calls_in_flight(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        embd_client *client = connect_to("shards=2");
        embd_part part = part_of(open_table(client)), pull = part;
        embd_call *calls[3];
        pull.values = pulled;
        for (int i = 0; i < 3; i++)
            check(i % 2 == 0 ? embd_push_start(client, &part, 1, NULL, &calls[i])
                             : embd_pull_start(client, &pull, 1, NULL, &calls[i]));
        embd_close(client);
    }
}

static void *open_and_close(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        embd_client *client = connect_to("shards=2");
        assert_int_equal(embd_shard_count(client), 2);
        embd_close(client);
    }
    return NULL;
}

/* The last one stops it while the next one starts it. */
static void handles_open_and_close_on_several_threads(void **state)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* While a server of one shard closes, its shard's loop being gone: a push to another one fails. */
static struct {
    atomic_int n_closed; /* loops, by the server's thread */
    pthread_t closer;
    embd_client *client; /* NULL: not now */
    embd_part part;
    int status;
    atomic_bool is_over;
} during_close;

__attribute__((visibility("default"))) int uv_loop_close(uv_loop_t *loop)
{
    int (*real)(uv_loop_t *) = (int (*)(uv_loop_t *))(uintptr_t)dlsym(RTLD_NEXT, "uv_loop_close");
    if (during_close.client != NULL && !pthread_equal(pthread_self(), during_close.closer) &&
        atomic_fetch_add(&during_close.n_closed, 1) == 1) {
        atomic_store(&disk_fails, true);
        during_close.status = embd_push(during_close.client, &during_close.part, 1, NULL);
        atomic_store(&during_close.is_over, true);
    }
    return real(loop);
}

/* Last: no server of this process serves any more. */
static void a_server_that_fails_fails_its_calls_and_not_the_process(void **state)
{
    embd_client *client = connect_to("shards=2"), *none;
    embd_part part = part_of(open_table(client));
    (void)state;
    check(embd_push(client, &part, 1, NULL));
    embd_client *closes;
    check(embd_connect("inproc:?shards=1", NULL, &closes));
    during_close.closer = pthread_self();
    during_close.part = part;
    during_close.client = client;
    embd_close(closes);
    while (!atomic_load(&during_close.is_over)) /* nobody waits for a server that has failed */
        usleep(1000);
    assert_int_not_equal(during_close.status, EMBD_OK);
    int status = embd_pull(client, &part, 1, NULL);
    assert_int_equal(status, EMBD_UNREACHABLE);
    assert_non_null(strstr(embd_error_text(), "the server in this process has failed: "
                                              "journal_sync_failed"));
    assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_UNREACHABLE);
    embd_close(client);
    assert_int_equal(embd_connect("inproc:", NULL, &none), EMBD_UNREACHABLE);
    assert_null(none);
}

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/embd-inproc-XXXXXX");
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i * 7;
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_close_with_calls_in_flight),
        cmocka_unit_test(handles_open_and_close_on_several_threads),
        cmocka_unit_test(a_server_that_fails_fails_its_calls_and_not_the_process),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
