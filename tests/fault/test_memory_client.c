/* test_memory_client.c - each piece of memory that libembd asks for is refused once, in every call
 * of a trainer and of an operator, with real servers at the other end. The call then fails with a
 * status and a sentence, or did without; the handle works again; and a push is applied by each
 * shard whole or not at all, and surely where it said so.
 *
 * usage: test_memory_client EMBD */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/client/cluster.h"
#include "embd/embd.h"
#include "embd/admin.h"
#include "embd/sync.h"
#include "tests/fault/failing_memory.h"

enum { SHARDS = 2, KEYS = 64, DIM = 4, ROWS = 16 };

static const char *program;

/* What the calls are made with. */
struct world {
    struct cluster cluster;
    embd_options options;
    embd_client *client;
    embd_table *table;
    uint64_t keys[KEYS], offsets[ROWS + 1];
    float weights[KEYS], values[KEYS * DIM];
    uint8_t statuses[KEYS];
    char dir[64], dump[96];
    uint32_t tried, acknowledged; /* pushes of all keys */
    uint32_t n_refused;
};

static embd_schema schema_of(const char *name)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = DIM;
    schema.partition = EMBD_PARTITION_MODULO;
    schema.initializer = (embd_initializer){.kind = EMBD_INITIALIZER_CONSTANT};
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 1.0f);
    return schema;
}

static embd_part raw_part(struct world *w)
{
    return (embd_part)EMBD_PART(.table = w->table, .n_keys = KEYS, .keys = w->keys,
                                .values = w->values, .statuses = w->statuses, .raw = true);
}

static embd_part pooled_part(struct world *w)
{
    return (embd_part)EMBD_PART(.table = w->table, .n_rows = ROWS, .offsets = w->offsets,
                                .n_keys = KEYS, .keys = w->keys, .weights = w->weights,
                                .values = w->values);
}

/* ---- the calls ---- */

static int connect_again(struct world *w)
{
    const char *why = embd_error_text();
    embd_client *client = (embd_client *)w;
    int status = embd_connect(w->cluster.address, &w->options, &client);
    assert_true((status == EMBD_OK) == (client != (embd_client *)w && client != NULL));
    assert_true(status == EMBD_OK || strlen(why) > 5);
    embd_close(client);
    return status;
}

static int create_table(struct world *w)
{
    embd_schema schema = schema_of("other");
    return embd_table_create(w->client, &schema);
}

static int open_table(struct world *w)
{
    embd_table *table;
    return embd_table_open(w->client, "other", &table);
}

static int count_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

static int list_tables(struct world *w)
{
    int n = 0;
    return embd_table_list(w->client, count_name, &n);
}

static int push_raw(struct world *w)
{
    embd_part part = raw_part(w);
    for (int i = 0; i < KEYS * DIM; i++)
        w->values[i] = -1;
    w->tried++;
    int status = embd_push(w->client, &part, 1, NULL);
    w->acknowledged += status == EMBD_OK;
    return status;
}

static int push_distinct(struct world *w)
{
    embd_part part = raw_part(w);
    embd_call_options rows = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_ROWS, .wire = EMBD_DTYPE_F16);
    embd_call *call;
    for (int i = 0; i < KEYS * DIM; i++)
        w->values[i] = -1;
    w->tried++;
    int status = embd_push_start(w->client, &part, 1, &rows, &call);
    if (status == EMBD_OK)
        status = embd_wait(call);
    w->acknowledged += status == EMBD_OK;
    return status;
}

static int pull_raw(struct world *w)
{
    embd_part part = raw_part(w);
    return embd_pull(w->client, &part, 1, NULL);
}

static int pull_pooled(struct world *w)
{
    embd_part part = pooled_part(w);
    return embd_pull(w->client, &part, 1, NULL);
}

static int pull_distinct(struct world *w)
{
    embd_part part = pooled_part(w);
    embd_call_options rows = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_ROWS, .wire = EMBD_DTYPE_BF16);
    return embd_pull(w->client, &part, 1, &rows);
}

static int erase_none(struct world *w)
{
    static const uint64_t absent[2] = {1 << 20, (1 << 20) + 1};
    embd_part part = EMBD_PART(.table = w->table, .n_keys = 2, .keys = absent);
    return embd_erase(w->client, &part, 1, NULL);
}

static int tick(struct world *w)
{
    embd_clock clock = EMBD_CLOCK(.job = "job", .n_workers = 1, .lease_ms = 10000);
    return embd_tick(w->client, &clock, 1, NULL);
}

static int dump(struct world *w)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s*", w->dump);
    memory_pause();
    assert_int_equal(system(command), 0);
    memory_go_on();
    return embd_dump(w->client, NULL, w->dump, NULL, NULL, NULL);
}

static int verify(struct world *w)
{
    const char *why = embd_error_text();
    int status = embd_verify(w->dump, NULL, NULL, NULL);
    assert_true(status == EMBD_OK || strlen(why) > 5);
    return status;
}

static int load(struct world *w)
{
    memory_pause();
    embd_table_drop(w->client, "other");
    memory_go_on();
    return embd_load(w->client, "other", w->dump, NULL, NULL, NULL);
}

/* ---- refusing ---- */

/* The same count in every lane of a shard's rows: all acknowledged pushes, and none twice. */
static void check_rows(struct world *w)
{
    float first[SHARDS] = {-1, -1};
    int status = pull_raw(w);
    for (int tries = 0; status != EMBD_OK && tries < 3; tries++)
        status = pull_raw(w); /* a connection may have gone with what was refused */
    if (status != EMBD_OK)
        fail_msg("%s", embd_error_text());
    for (int i = 0; i < KEYS * DIM; i++) {
        float *same = &first[w->keys[i / DIM] % SHARDS];
        if (*same < 0)
            *same = w->values[i];
        assert_true(w->values[i] == *same);
        assert_true(*same >= (float)w->acknowledged && *same <= (float)w->tried);
    }
}

static bool is_honest(int status)
{
    return status == EMBD_NO_MEMORY || status == EMBD_UNREACHABLE || status == EMBD_CLOSED ||
           status == EMBD_IO || status == EMBD_DEADLINE;
}

static void refuse_each(struct world *w, const char *name, int (*call)(struct world *))
{
    bool refused = true;
    for (uint64_t n = 1; refused; n++) {
        memory_fail(n);
        int status = call(w);
        refused = memory_end();
        w->n_refused += refused;
        if (status != EMBD_OK && (!refused || !is_honest(status)))
            fail_msg("%s, refusal %llu: %s: %s", name, (unsigned long long)n,
                     embd_status_text(status), embd_error_text());
        check_rows(w);
    }
}

static void open_world(struct world *w, bool own_thread)
{
    const char *why = embd_error_text();
    memset(w, 0, sizeof *w);
    cluster_start(&w->cluster, program, SHARDS, 0);
    embd_options_init(&w->options);
    w->options.own_thread = own_thread;
    w->options.deadline_ms = 2000;
    if (embd_connect(w->cluster.address, &w->options, &w->client) != EMBD_OK)
        fail_msg("%s", why);
    embd_schema schema = schema_of("items");
    assert_int_equal(embd_table_create(w->client, &schema), EMBD_OK);
    assert_int_equal(embd_table_open(w->client, "items", &w->table), EMBD_OK);
    for (uint64_t i = 0; i < KEYS; i++) {
        w->keys[i] = i;
        w->weights[i] = 1;
    }
    for (uint64_t r = 0; r <= ROWS; r++)
        w->offsets[r] = r * KEYS / ROWS;
    strcpy(w->dir, "/tmp/embd-memory-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->dump, sizeof w->dump, "%s/dump", w->dir);
}

static void close_world(struct world *w)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    embd_close(w->client);
    cluster_stop(&w->cluster);
    print_message("%u refusals\n", w->n_refused);
}

static void refuse_all(bool own_thread)
{
    static const struct {
        const char *name;
        int (*call)(struct world *);
    } calls[] = {
        {"connect", connect_again}, {"push", push_raw},       {"push, rows plan", push_distinct},
        {"pull", pull_raw},         {"pooled", pull_pooled},  {"pooled, rows plan", pull_distinct},
        {"erase", erase_none},      {"create", create_table}, {"open", open_table},
        {"list", list_tables},      {"tick", tick},           {"dump", dump},
        {"verify", verify},         {"load", load},
    };
    struct world w;
    open_world(&w, own_thread);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        refuse_each(&w, calls[i].name, calls[i].call);
    assert_true(w.n_refused > 50 && w.acknowledged > 1);
    close_world(&w);
}

static void every_call_survives_each_refusal(void **state)
{
    (void)state;
    refuse_all(false);
}

static void every_call_survives_each_refusal_with_a_thread_of_its_own(void **state)
{
    (void)state;
    refuse_all(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_survives_each_refusal),
        cmocka_unit_test(every_call_survives_each_refusal_with_a_thread_of_its_own),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s EMBD\n", argv[0]);
        return 2;
    }
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
