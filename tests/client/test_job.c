/* test_job.c - embd/job.h against a server: rows, blobs and step go back together; what is wrong
 * is refused, and changes nothing. Trainers that are killed, and several server processes, are in
 * tests/python/test_job.py, over the same functions.
 *
 * usage: test_job EMBD */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embd/job.h"
#include "tests/client/cluster.h"

#define SHARDS 2u
#define DIM    2u
#define KEYS   50u

static const char *program;

/* A cluster over a directory, a client, and a job's table with rows of zeros. */
struct world {
    char data[32];
    struct cluster cluster;
    embd_client *client;
    const char *directories[1];
    embd_job job;
};

static uint64_t keys[KEYS];
static float values[KEYS * DIM];

static void open_world(struct world *w)
{
    strcpy(w->data, "/tmp/embd-job-XXXXXX");
    assert_non_null(mkdtemp(w->data));
    const char *const flags[] = {"--data-dir", w->data, "--http", "off", NULL};
    cluster_start_with(&w->cluster, program, SHARDS, flags);
    assert_int_equal(embd_connect(w->cluster.address, NULL, &w->client), EMBD_OK);
    w->directories[0] = w->data;
    w->job =
        (embd_job)EMBD_JOB(.name = "ranker", .directories = w->directories, .n_directories = 1);
}

static void close_world(struct world *w)
{
    char command[64];
    embd_close(w->client);
    cluster_kill(&w->cluster);
    snprintf(command, sizeof command, "rm -rf %s", w->data);
    assert_int_equal(system(command), 0);
}

static embd_table *table_of(struct world *w, const char *name)
{
    embd_table *table;
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = DIM;
    schema.optimizer.kind = EMBD_OPTIMIZER_SGD;
    schema.optimizer.lr = 1;
    schema.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    assert_int_equal(embd_table_create(w->client, &schema), EMBD_OK);
    assert_int_equal(embd_table_open(w->client, name, &table), EMBD_OK);
    return table;
}

static embd_table *job_table(struct world *w, const char *name)
{
    char full[EMBD_NAME_MAX + 1];
    assert_int_equal(embd_job_table_name(&w->job, name, full), EMBD_OK);
    return table_of(w, full);
}

static embd_part part_of(embd_table *table)
{
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    return (embd_part)EMBD_PART(.table = table, .n_keys = KEYS, .keys = keys, .values = values,
                                .raw = true);
}

/* Each column of each row becomes greater by one. */
static void push(struct world *w, embd_table *table)
{
    embd_part part = part_of(table);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        values[i] = -1;
    assert_int_equal(embd_push(w->client, &part, 1, NULL), EMBD_OK);
}

static void check_rows(struct world *w, embd_table *table, float expected)
{
    embd_part part = part_of(table);
    assert_int_equal(embd_pull(w->client, &part, 1, NULL), EMBD_OK);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        assert_float_equal(values[i], expected, 0);
}

static int count(void *arg, const char *name)
{
    (void)name;
    ++*(uint32_t *)arg;
    return 0;
}

static uint32_t n_tables(struct world *w)
{
    uint32_t n = 0;
    assert_int_equal(embd_table_list(w->client, count, &n), EMBD_OK);
    return n;
}

static void connect_again(struct world *w)
{
    embd_close(w->client);
    assert_int_equal(embd_connect(w->cluster.address, NULL, &w->client), EMBD_OK);
}

static void tables_blobs_and_step_go_back_and_others_stay(void **state)
{
    struct world w;
    embd_checkpoint at = EMBD_CHECKPOINT();
    const embd_blob blob = {.name = "dense", .data = "weights", .bytes = 7};
    void *read;
    uint64_t bytes;
    (void)state;
    open_world(&w);
    assert_int_equal(embd_job_resume(w.client, &w.job, &at), EMBD_OK);
    assert_false(at.is_there);
    push(&w, job_table(&w, "items"));
    push(&w, table_of(&w, "others"));
    assert_int_equal(embd_job_checkpoint(w.client, &w.job, 7, &blob, 1, NULL), EMBD_OK);
    push(&w, job_table(&w, "items"));
    push(&w, job_table(&w, "later"));
    push(&w, table_of(&w, "others"));
    connect_again(&w);
    assert_int_equal(embd_job_resume(w.client, &w.job, &at), EMBD_OK);
    assert_true(at.is_there);
    assert_int_equal(at.step, 7);
    assert_string_equal(at.name, "ranker-7");
    assert_int_equal(embd_blob_read(at.path, "dense", &read, &bytes), EMBD_OK);
    assert_string_equal(read, "weights");
    free(read);
    assert_int_equal(n_tables(&w), 2);
    check_rows(&w, job_table(&w, "items"), 1);
    check_rows(&w, table_of(&w, "others"), 2);
    close_world(&w);
}

static void a_step_may_be_made_again_and_the_newest_counts(void **state)
{
    struct world w;
    embd_checkpoint at = EMBD_CHECKPOINT();
    (void)state;
    open_world(&w);
    embd_table *items = job_table(&w, "items");
    for (int i = 0; i < 3; i++) {
        push(&w, items);
        assert_int_equal(embd_job_checkpoint(w.client, &w.job, 7, NULL, 0, NULL), EMBD_OK);
    }
    push(&w, items);
    connect_again(&w);
    assert_int_equal(embd_job_resume(w.client, &w.job, &at), EMBD_OK);
    assert_string_equal(at.name, "ranker-7-r2");
    check_rows(&w, job_table(&w, "items"), 3);
    close_world(&w);
}

static void refuses(struct world *w, embd_job job, int status, const char *says)
{
    embd_checkpoint at = EMBD_CHECKPOINT();
    assert_int_equal(embd_job_resume(w->client, &job, &at), status);
    assert_non_null(strstr(embd_error_text(), says));
}

static void what_is_wrong_is_refused_and_changes_nothing(void **state)
{
    struct world w;
    char out[EMBD_NAME_MAX + 1], longest[EMBD_NAME_MAX + 1];
    const embd_blob twice[] = {{.name = "a", .data = "", .bytes = 0}, {.name = "a", .data = ""}};
    const embd_blob step = {.name = "embd-step", .data = "", .bytes = 0};
    const char *const nowhere[] = {"/nonexistent"};
    (void)state;
    open_world(&w);
    embd_table *items = job_table(&w, "items");
    push(&w, items);
    refuses(&w, (embd_job)EMBD_JOB(.name = "a--b"), EMBD_INVALID, "'--' separates");
    refuses(&w, (embd_job)EMBD_JOB(.name = "a-"), EMBD_INVALID, "'--' separates");
    refuses(&w, (embd_job)EMBD_JOB(.name = "A"), EMBD_INVALID, "'A'");
    refuses(&w, (embd_job)EMBD_JOB(.name = NULL), EMBD_INVALID, "''");
    refuses(&w, (embd_job)EMBD_JOB(.name = "a"), EMBD_INVALID, "no directories");
    refuses(&w, (embd_job)EMBD_JOB(.name = "a", .directories = nowhere, .n_directories = 1),
            EMBD_IO, "/nonexistent: No such file");
    refuses(&w, (embd_job)EMBD_JOB(.name = "a", .n_directories = 1025), EMBD_TOO_LARGE, "1025");
    refuses(&w, (embd_job){.name = "a"}, EMBD_INVALID, "struct_bytes");
    assert_int_equal(embd_job_checkpoint(w.client, &w.job, 1, twice, 2, NULL), EMBD_EXISTS);
    assert_int_equal(embd_job_checkpoint(w.client, &w.job, 1, &step, 1, NULL), EMBD_EXISTS);
    assert_int_equal(embd_job_checkpoint(w.client, &w.job, 1, twice, 16, NULL), EMBD_TOO_LARGE);
    embd_job other = EMBD_JOB(.name = "other");
    assert_int_equal(embd_job_checkpoint(w.client, &other, 1, NULL, 0, NULL), EMBD_UNKNOWN_TABLE);
    memset(longest, 'x', sizeof longest);
    longest[EMBD_NAME_MAX - strlen("ranker--")] = '\0';
    assert_int_equal(embd_job_table_name(&w.job, longest, out), EMBD_OK);
    strcat(longest, "x");
    assert_int_equal(embd_job_table_name(&w.job, longest, out), EMBD_INVALID);
    check_rows(&w, items, 1);
    assert_int_equal(n_tables(&w), 1);
    close_world(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_blobs_and_step_go_back_and_others_stay),
        cmocka_unit_test(a_step_may_be_made_again_and_the_newest_counts),
        cmocka_unit_test(what_is_wrong_is_refused_and_changes_nothing),
    };
    if (argc != 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
