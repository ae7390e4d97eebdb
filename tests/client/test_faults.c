/* test_faults.c - what a server or the network can do wrong ends in a status and a sentence, within
 * the deadline, and the handle works again afterwards. What a caller can do wrong is refused before
 * anything is sent.
 *
 * usage: test_faults EMBD */
#include "tests/unit/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/client/cluster.h"
#include "embd/embd.h"
#include "embd/sync.h"
#include "embd/admin.h"
#include "embd/arrays.h"
#include "tests/client/fake_server.h"

static const char *program;

#define N_KEYS 6u

static const uint64_t some_keys[N_KEYS] = {1, 2, 3, 4, 5, 6};
static const uint64_t some_offsets[N_KEYS + 1] = {0, 1, 2, 3, 4, 5, 6};

/* Values with guards on both sides: an answer must not write beyond. */
struct guarded {
    float before[64], values[N_KEYS * FAKE_DIM], after[64];
};

static void fill_guards(struct guarded *g)
{
    memset(g, 0x77, sizeof *g);
}

static void assert_guards(const struct guarded *g)
{
    const uint8_t *before = (const uint8_t *)g->before, *after = (const uint8_t *)g->after;
    for (size_t i = 0; i < sizeof g->before; i++) {
        assert_int_equal(before[i], 0x77);
        assert_int_equal(after[i], 0x77);
    }
}

static embd_client *connect_to(const char *address, uint32_t deadline_ms, bool own_thread)
{
    const char *why = embd_error_text();
    embd_client *client;
    embd_options options;
    embd_options_init(&options);
    options.deadline_ms = deadline_ms;
    options.own_thread = own_thread;
    if (embd_connect(address, &options, &client) != EMBD_OK)
        fail_msg("%s", why);
    return client;
}

static embd_table *open_table(embd_client *client, const char *name)
{
    embd_table *table;
    if (embd_table_open(client, name, &table) != EMBD_OK)
        fail_msg("%s", embd_error_text());
    return table;
}

/* deadline_ms 0: the client's. */
static int pull_within(embd_client *client, embd_table *table, struct guarded *g,
                       uint32_t deadline_ms)
{
    embd_part part = EMBD_PART(.table = table, .n_keys = N_KEYS, .keys = some_keys,
                               .values = g->values, .raw = true);
    embd_call_options options = EMBD_CALL_OPTIONS(.deadline_ms = deadline_ms);
    fill_guards(g);
    int status = embd_pull(client, &part, 1, &options);
    assert_guards(g);
    return status;
}

static int pull(embd_client *client, embd_table *table, struct guarded *g)
{
    return pull_within(client, table, g, 0);
}

/* ---- servers of earlier versions ---- */

/* The fake server names no features. */
static void rows_of_i8_and_i4_are_not_sent_to_a_server_that_does_not_take_them(void **state)
{
    struct fake_server server;
    struct guarded g;
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 1000, false);
    embd_part part = EMBD_PART(.table = open_table(client, "t"), .n_keys = N_KEYS,
                               .keys = some_keys, .values = g.values, .raw = true);
    for (int wire = EMBD_DTYPE_I8; wire <= EMBD_DTYPE_I4; wire++) {
        embd_call_options options = EMBD_CALL_OPTIONS(.wire = (embd_dtype)wire);
        fill_guards(&g);
        assert_int_equal(embd_pull(client, &part, 1, &options), EMBD_INVALID);
        assert_non_null(strstr(embd_error_text(), embd_dtype_name((embd_dtype)wire)));
        assert_non_null(strstr(embd_error_text(), server.address));
        assert_int_equal(embd_push(client, &part, 1, &options), EMBD_INVALID);
        assert_non_null(strstr(embd_error_text(), "does not take; use f32, f16 or bf16"));
    }
    assert_int_equal(pull(client, part.table, &g), EMBD_OK);
    embd_close(client);
    fake_server_stop(&server);
}

/* ---- files ---- */

/* They would be read as 16-bit floats. */
static void arrays_in_files_are_not_i8_or_i4(void **state)
{
    static const char *const path[] = {"/nowhere/values"};
    struct fake_server server;
    embd_schema schema;
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 1000, false);
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "t");
    schema.dim = 2;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    for (int dtype = EMBD_DTYPE_I8; dtype <= EMBD_DTYPE_I4; dtype++) {
        const embd_arrays_state state_of =
            EMBD_ARRAYS_STATE(.width = 2, .dtype = (embd_dtype)dtype, .values = path);
        const embd_arrays wrong[] = {
            EMBD_ARRAYS(.n_files = 1, .keys = path, .values = path, .dtype = (embd_dtype)dtype),
            EMBD_ARRAYS(.n_files = 1, .keys = path, .values = path, .n_states = 1,
                        .states = &state_of)};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            assert_int_equal(embd_arrays_import(client, &schema, &wrong[i], NULL, NULL, NULL),
                             EMBD_INVALID);
            assert_non_null(strstr(embd_error_text(), "f32, f16 or bf16"));
        }
    }
    embd_close(client);
    fake_server_stop(&server);
}

/* States of a caller compiled with a newer header lie further apart. */
static void states_of_arrays_have_a_size_of_their_own(void **state)
{
    static const char *const path[] = {"/nowhere/values"};
    struct {
        embd_arrays_state known;
        uint64_t more;
    } states[2] = {{.known = EMBD_ARRAYS_STATE(.width = 2, .values = path)},
                   {.known = EMBD_ARRAYS_STATE(.width = 2, .values = path)}};
    const embd_arrays arrays = EMBD_ARRAYS(.n_files = 1, .keys = path, .values = path,
                                           .n_states = 2, .states = &states[0].known);
    struct fake_server server;
    embd_schema schema;
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 1000, false);
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "t");
    schema.dim = 2;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAM, 0.1f);
    states[0].known.struct_bytes = states[1].known.struct_bytes = sizeof states[0];
    assert_int_equal(embd_arrays_import(client, &schema, &arrays, NULL, NULL, NULL), EMBD_CORRUPT);
    states[1].more = 1;
    assert_int_equal(embd_arrays_import(client, &schema, &arrays, NULL, NULL, NULL), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "states[1]: embd_arrays_state: struct_bytes is 40"));
    states[0].known.struct_bytes = sizeof states[0].known;
    assert_int_equal(embd_arrays_import(client, &schema, &arrays, NULL, NULL, NULL), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "states[1]"));
    embd_close(client);
    fake_server_stop(&server);
}

/* No server is asked. */
static void lists_of_a_load_that_are_null_are_refused(void **state)
{
    embd_load_options tables = EMBD_LOAD_OPTIONS(.n_tables = 1),
                      set = EMBD_LOAD_OPTIONS(.n_set = 1);
    struct fake_server server;
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 1000, false);
    for (int replaces = 0; replaces < 2; replaces++) {
        tables.replace = set.replace = replaces;
        assert_int_equal(embd_load_tables(client, "/nowhere", &tables, NULL), EMBD_INVALID);
        assert_string_equal(embd_error_text(), "options.tables is NULL, n_tables is 1");
        assert_int_equal(embd_load_tables(client, "/nowhere", &set, NULL), EMBD_INVALID);
        assert_string_equal(embd_error_text(), "options.set is NULL, n_set is 1");
    }
    embd_close(client);
    fake_server_stop(&server);
}

/* ---- hostile and broken servers ---- */

struct expectation {
    enum fake_manner manner;
    int status;
};

static const struct expectation expectations[] = {
    {FAKE_SILENT, EMBD_DEADLINE},        {FAKE_SLOW, EMBD_DEADLINE},
    {FAKE_CLOSES, EMBD_CLOSED},          {FAKE_CLOSES_MIDWAY, EMBD_CLOSED},
    {FAKE_GARBAGE, EMBD_PROTOCOL},       {FAKE_OTHER_MSGID, EMBD_PROTOCOL},
    {FAKE_REQUESTS, EMBD_PROTOCOL},      {FAKE_MANY_ROWS, EMBD_PROTOCOL},
    {FAKE_FEW_ROWS, EMBD_PROTOCOL},      {FAKE_OTHER_DIM, EMBD_PROTOCOL},
    {FAKE_OTHER_DTYPE, EMBD_PROTOCOL},   {FAKE_LYING_ROWS, EMBD_PROTOCOL},
    {FAKE_LONG_BIN, EMBD_PROTOCOL},      {FAKE_EXTRA_BIN, EMBD_PROTOCOL},
    {FAKE_NO_BIN, EMBD_PROTOCOL},        {FAKE_HUGE_BIN, EMBD_PROTOCOL},
    {FAKE_STRANGE_ERROR, EMBD_PROTOCOL}, {FAKE_NOTIFIES, EMBD_OK},
    {FAKE_CLOSES_ONCE, EMBD_OK},
};

static void meet_every_manner(bool own_thread)
{
    struct fake_server server;
    struct guarded g;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 30000, own_thread);
    embd_table *table = open_table(client, "t");
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
        server.manner = expectations[i].manner;
        bool lasts =
            expectations[i].status == EMBD_DEADLINE || expectations[i].status == EMBD_CLOSED;
        int status = pull_within(client, table, &g, lasts ? 300 : 0);
        bool is_as_expected = status == expectations[i].status;
        if (expectations[i].status ==
            EMBD_CLOSED) /* by what the client was at when its deadline passed */
            is_as_expected |= status == EMBD_DEADLINE || status == EMBD_UNREACHABLE;
        if (!is_as_expected)
            fail_msg("manner %d: %s (%s)", (int)expectations[i].manner, embd_status_text(status),
                     embd_error_text());
        if (status != EMBD_OK)
            assert_non_null(strstr(embd_error_text(), server.address));
        server.manner = FAKE_GOOD;
        for (int tries = 0; (status = pull(client, table, &g)) != EMBD_OK && tries < 20; tries++)
            continue; /* a slow server may still be busy with the old answer */
        if (status != EMBD_OK)
            fail_msg("after manner %d: %s", (int)expectations[i].manner, embd_error_text());
        assert_true(g.values[0] == 1.0f);
    }
    embd_close(client);
    fake_server_stop(&server);
}

static void no_answer_harms_the_client(void **state)
{
    (void)state;
    meet_every_manner(false);
}

static void no_answer_harms_the_client_with_a_thread_of_its_own(void **state)
{
    (void)state;
    meet_every_manner(true);
}

static void connecting_refuses_what_is_no_server_of_this_version(void **state)
{
    static const enum fake_manner manners[] = {FAKE_OLD_VERSION, FAKE_OTHER_SHARD, FAKE_NO_MAP};
    (void)state;
    for (size_t i = 0; i < sizeof manners / sizeof *manners; i++) {
        struct fake_server server;
        const char *why = embd_error_text();
        embd_client *client = (embd_client *)&server;
        fake_server_start(&server);
        server.manner = manners[i];
        assert_int_equal(embd_connect(server.address, NULL, &client), EMBD_PROTOCOL);
        assert_null(client);
        assert_non_null(strstr(why, manners[i] == FAKE_NO_MAP ? "0 shards" : server.address));
        fake_server_stop(&server);
    }
}

static void a_table_of_another_name_is_refused(void **state)
{
    struct fake_server server;
    embd_table *table = NULL;
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 1000, false);
    server.manner = FAKE_OTHER_SCHEMA;
    assert_int_equal(embd_table_open(client, "t", &table), EMBD_PROTOCOL);
    assert_non_null(strstr(embd_error_text(), server.address));
    assert_null(table);
    embd_close(client);
    fake_server_stop(&server);
}

/* Whether it was applied nobody knows. */
static void push_to_silence(bool own_thread)
{
    static const float grads[N_KEYS * FAKE_DIM] = {1};
    struct fake_server server;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 300, own_thread);
    embd_part part = EMBD_PART(.table = open_table(client, "t"), .n_keys = N_KEYS,
                               .keys = some_keys, .values = (void *)(uintptr_t)grads, .raw = true);
    embd_pusher pusher;
    assert_int_equal(embd_pusher_new(&pusher), EMBD_OK);
    embd_call_options numbered = EMBD_CALL_OPTIONS(.pusher = &pusher, .sequence = 1);
    server.manner = FAKE_SILENT;
    assert_int_equal(embd_push(client, &part, 1, &numbered), EMBD_UNANSWERED);
    assert_non_null(strstr(embd_error_text(), server.address));
    assert_non_null(strstr(embd_error_text(), "may or may not have been applied"));
    embd_close(client);
    fake_server_stop(&server);
}

static void a_numbered_push_that_is_not_answered_is_unknown(void **state)
{
    (void)state;
    push_to_silence(false);
    push_to_silence(true);
}

/* The request does not fit into the socket's buffers: it is half sent when the deadline passes. */
static void a_server_that_stops_reading_ends_in_the_deadline(void **state)
{
    enum { MANY = 4 << 20 };
    struct fake_server server;
    struct guarded g;
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 300, false);
    embd_table *table = open_table(client, "t");
    uint64_t *keys = calloc(MANY, sizeof *keys);
    float *values = calloc((size_t)MANY * FAKE_DIM, sizeof *values);
    embd_part part =
        EMBD_PART(.table = table, .n_keys = MANY, .keys = keys, .values = values, .raw = true);
    embd_call_options every = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED);
    server.manner = FAKE_READS_NOTHING;
    embd_ping(client, 0, NULL); /* it sleeps in this one's answer */
    assert_int_equal(embd_pull(client, &part, 1, &every), EMBD_DEADLINE);
    free(keys); /* nothing may read them any more */
    free(values);
    server.manner = FAKE_GOOD;
    int status = EMBD_DEADLINE;
    for (int tries = 0; status != EMBD_OK && tries < 20; tries++)
        status = pull(client, table, &g);
    assert_int_equal(status, EMBD_OK);
    embd_close(client);
    fake_server_stop(&server);
}

/* An answer and the reset behind it come together: the call that was not answered is not forgotten.
 */
static void a_reset_behind_an_answer_is_noticed(void **state)
{
    const struct timespec pause = {.tv_nsec = 300000000};
    struct fake_server server;
    struct guarded g[2];
    embd_call *calls[2];
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 30000, false);
    embd_table *table = open_table(client, "t");
    server.manner = FAKE_ANSWERS_AND_RESETS;
    for (int i = 0; i < 2; i++) {
        embd_part part = EMBD_PART(.table = table, .n_keys = N_KEYS, .keys = some_keys,
                                   .values = g[i].values, .raw = true);
        fill_guards(&g[i]);
        assert_int_equal(embd_pull_start(client, &part, 1, NULL, &calls[i]), EMBD_OK);
    }
    nanosleep(&pause, NULL); /* nobody runs the loop */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(embd_wait(calls[i]), EMBD_OK);
        assert_guards(&g[i]);
    }
    embd_close(client);
    fake_server_stop(&server);
}

static void closing_abandons_calls_in_flight(void **state)
{
    struct fake_server server;
    struct guarded g;
    embd_call *call;
    (void)state;
    for (int own_thread = 0; own_thread < 2; own_thread++) {
        fake_server_start(&server);
        embd_client *client = connect_to(server.address, 10000, own_thread == 1);
        embd_part part = EMBD_PART(.table = open_table(client, "t"), .n_keys = N_KEYS,
                                   .keys = some_keys, .values = g.values, .raw = true);
        server.manner = FAKE_SILENT;
        assert_int_equal(embd_pull_start(client, &part, 1, NULL, &call), EMBD_OK);
        assert_false(embd_is_done(call));
        embd_close(client);
        fake_server_stop(&server);
    }
}

/* ---- addresses ---- */

static int try_connect(const char *servers)
{
    const char *why = embd_error_text();
    embd_client *client;
    embd_options options;
    embd_options_init(&options);
    options.deadline_ms = 2000;
    int status = embd_connect(servers, &options, &client);
    if (status == EMBD_OK)
        embd_close(client);
    else
        assert_true(strlen(why) > 10);
    return status;
}

static void addresses_are_checked_and_the_first_that_answers_is_taken(void **state)
{
    struct cluster cluster;
    char list[128];
    (void)state;
    assert_int_equal(try_connect(""), EMBD_INVALID);
    assert_int_equal(try_connect("localhost"), EMBD_INVALID);
    assert_int_equal(try_connect("localhost:0"), EMBD_INVALID);
    assert_int_equal(try_connect("localhost:65536"), EMBD_INVALID);
    assert_int_equal(try_connect("::1:7700"), EMBD_INVALID);
    assert_int_equal(try_connect("127.0.0.1:1,"), EMBD_INVALID);
    assert_int_equal(try_connect("127.0.0.1:1"), EMBD_UNREACHABLE);
    assert_int_equal(try_connect("127.0.0.1:1,[::1]:1"), EMBD_UNREACHABLE);
    cluster_start(&cluster, program, 2, 0);
    snprintf(list, sizeof list, "127.0.0.1:1,%s", cluster.address);
    assert_int_equal(try_connect(list), EMBD_OK);
    snprintf(list, sizeof list, "localhost%s", strchr(cluster.address, ':'));
    assert_int_equal(try_connect(list), EMBD_OK);
    cluster_stop(&cluster);
}

/* ---- real servers that go and come ---- */

static void make_table(embd_client *client, const char *name)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, name);
    schema.dim = FAKE_DIM;
    schema.slots = 2;
    assert_int_equal(embd_table_create(client, &schema), EMBD_OK);
}

static void a_restarted_server_is_reached_again(void **state)
{
    struct cluster cluster;
    struct guarded g;
    (void)state;
    for (int own_thread = 0; own_thread < 2; own_thread++) {
        cluster_start(&cluster, program, 1, 0);
        int port = atoi(strchr(cluster.address, ':') + 1);
        embd_client *client = connect_to(cluster.address, 1000, own_thread == 1);
        make_table(client, "t");
        embd_table *table = open_table(client, "t");
        assert_int_equal(pull(client, table, &g), EMBD_OK);
        cluster_kill(&cluster);
        int status = pull(client, table, &g);
        assert_true(status == EMBD_CLOSED || status == EMBD_UNREACHABLE);
        status = pull(client, table, &g);
        assert_int_equal(status, EMBD_UNREACHABLE);
        assert_non_null(strstr(embd_error_text(), "refused"));
        cluster_start(&cluster, program, 1, port);
        assert_int_equal(pull(client, table, &g), EMBD_UNKNOWN_TABLE);
        make_table(client, "t");
        assert_int_equal(pull(client, table, &g), EMBD_OK);
        embd_close(client);
        cluster_stop(&cluster);
    }
}

static int push_first(embd_client *client, embd_table *table, const embd_pusher *pusher)
{
    static const uint64_t keys[2] = {0, 1};
    static float grads[2 * FAKE_DIM];
    embd_part part =
        EMBD_PART(.table = table, .n_keys = 2, .keys = keys, .values = grads, .raw = true);
    embd_call_options options = EMBD_CALL_OPTIONS(.pusher = pusher, .sequence = 1);
    return embd_push(client, &part, 1, &options);
}

/* The first push may have been applied, and the server has forgotten the stream: whoever made it is
 * told so, and no opening makes it count twice. A client that did not make it cannot know. */
static void a_stream_that_was_forgotten_is_not_opened_anew_for_a_push_that_was_made(void **state)
{
    struct cluster cluster;
    embd_pusher pusher;
    (void)state;
    assert_int_equal(embd_pusher_new(&pusher), EMBD_OK);
    for (int own_thread = 0; own_thread < 2; own_thread++) {
        cluster_start(&cluster, program, 1, 0);
        int port = atoi(strchr(cluster.address, ':') + 1);
        embd_client *client = connect_to(cluster.address, 5000, own_thread == 1);
        make_table(client, "t");
        embd_table *table = open_table(client, "t");
        assert_int_equal(push_first(client, table, &pusher), EMBD_OK);
        assert_int_equal(push_first(client, table, &pusher), EMBD_OK);
        cluster_kill(&cluster);
        cluster_start(&cluster, program, 1, port);
        make_table(client, "t");
        assert_int_equal(push_first(client, table, &pusher), EMBD_FORGOTTEN);
        pusher.stream++;
        assert_int_equal(push_first(client, table, &pusher), EMBD_OK);
        pusher.stream--;
        embd_client *other = connect_to(cluster.address, 5000, own_thread == 1);
        assert_int_equal(push_first(other, open_table(other, "t"), &pusher), EMBD_OK);
        embd_close(other);
        embd_close(client);
        cluster_stop(&cluster);
    }
}

static int count_table(void *arg, const char *name)
{
    char(*names)[EMBD_NAME_MAX + 1] = arg;
    int i = names[0][0] == '\0' ? 0 : 1;
    snprintf(names[i], sizeof names[i], "%s", name);
    return 0;
}

static int sum_figures(void *arg, const char *table, const char *name, uint64_t value)
{
    (void)table;
    (void)name;
    (void)value;
    ++*(int *)arg;
    return 0;
}

static int stop_at_once(void *arg, const char *table, const char *name, uint64_t value)
{
    (void)table;
    (void)name;
    (void)value;
    ++*(int *)arg;
    return 7;
}

static void tables_are_made_listed_found_different_and_dropped(void **state)
{
    struct cluster cluster;
    struct guarded g;
    char names[2][EMBD_NAME_MAX + 1] = {"", ""};
    int n = 0;
    embd_schema schema;
    embd_table *unknown = NULL;
    (void)state;
    cluster_start(&cluster, program, 3, 0);
    embd_client *client = connect_to(cluster.address, 5000, false);
    assert_int_equal(embd_shard_count(client), 3);
    assert_string_equal(embd_shard_address(client, 0), cluster.address);
    assert_null(embd_shard_address(client, 3));
    for (uint32_t shard = 0; shard < 3; shard++)
        assert_int_equal(embd_ping(client, shard, NULL), EMBD_OK);
    assert_int_equal(embd_ping(client, 3, NULL), EMBD_INVALID);
    make_table(client, "zebra");
    make_table(client, "ant");
    make_table(client, "ant");
    assert_int_equal(embd_table_list(client, count_table, names), EMBD_OK);
    assert_string_equal(names[0], "ant");
    assert_string_equal(names[1], "zebra");
    embd_table *table = open_table(client, "ant");
    assert_ptr_equal(table, open_table(client, "ant"));
    schema = *embd_table_schema(table);
    assert_int_equal(schema.dim, FAKE_DIM);
    schema.optimizer.lr = 0.5f;
    assert_int_equal(embd_table_create(client, &schema), EMBD_EXISTS);
    assert_non_null(strstr(embd_error_text(), "lr"));
    assert_int_equal(embd_stats(client, 1, sum_figures, &n), EMBD_OK);
    assert_true(n > 5);
    n = 0;
    assert_int_equal(embd_stats(client, 1, stop_at_once, &n), 7);
    assert_int_equal(n, 1);
    assert_int_equal(pull(client, table, &g), EMBD_OK);
    assert_int_equal(embd_table_drop(client, "ant"), EMBD_OK);
    assert_int_equal(embd_table_drop(client, "ant"), EMBD_UNKNOWN_TABLE);
    assert_int_equal(pull(client, table, &g), EMBD_UNKNOWN_TABLE);
    assert_int_equal(embd_table_open(client, "ant", &unknown), EMBD_UNKNOWN_TABLE);
    assert_null(unknown);
    embd_close(client);
    cluster_stop(&cluster);
}

static void draining_ends_every_process(void **state)
{
    struct cluster cluster;
    (void)state;
    cluster_start(&cluster, program, 2, 0);
    embd_client *client = connect_to(cluster.address, 5000, false);
    assert_int_equal(embd_drain(client), EMBD_OK);
    embd_close(client);
    cluster_stop(&cluster); /* waits for the process */
}

/* ---- arguments ---- */

static void refuse(embd_client *client, const embd_part *part, int status, const char *word)
{
    for (int is_push = 0; is_push < 2; is_push++) {
        assert_int_equal((is_push ? embd_push : embd_pull)(client, part, 1, NULL), status);
        if (strstr(embd_error_text(), word) == NULL)
            fail_msg("\"%s\" does not name %s", embd_error_text(), word);
    }
}

static void arguments_are_refused_by_name_position_and_value(void **state)
{
    struct cluster cluster;
    struct guarded g;
    uint64_t offsets[N_KEYS + 1];
    float weights[N_KEYS] = {1, 1, 1, 1, 1, 1};
    (void)state;
    cluster_start(&cluster, program, 2, 0);
    embd_client *client = connect_to(cluster.address, 5000, false);
    make_table(client, "t");
    embd_table *table = open_table(client, "t");
    const embd_part good =
        EMBD_PART(.table = table, .n_rows = N_KEYS, .offsets = some_offsets, .n_keys = N_KEYS,
                  .keys = some_keys, .weights = weights, .values = g.values);
    memset(&g, 0, sizeof g);
    assert_int_equal(embd_pull(client, &good, 1, NULL), EMBD_OK);
    embd_part part = good;
    part.table = NULL;
    refuse(client, &part, EMBD_INVALID, "table");
    part = good;
    part.keys = NULL;
    refuse(client, &part, EMBD_INVALID, "keys");
    part = good;
    part.values = NULL;
    refuse(client, &part, EMBD_INVALID, "values");
    part = good;
    part.n_rows = 5;
    refuse(client, &part, EMBD_INVALID, "n_rows is 5");
    part = good;
    part.offsets = offsets;
    memcpy(offsets, some_offsets, sizeof offsets);
    offsets[0] = 1;
    refuse(client, &part, EMBD_INVALID, "offsets[0] is 1");
    memcpy(offsets, some_offsets, sizeof offsets);
    offsets[3] = 1;
    refuse(client, &part, EMBD_INVALID, "offsets[3] is 1");
    memcpy(offsets, some_offsets, sizeof offsets);
    offsets[N_KEYS] = 7;
    refuse(client, &part, EMBD_INVALID, "offsets[6] is 7");
    part = good;
    weights[4] = NAN;
    refuse(client, &part, EMBD_INVALID, "weights[4]");
    weights[4] = 1;
    part.n_keys = UINT64_MAX / 8;
    refuse(client, &part, EMBD_TOO_LARGE, "keys");
    embd_part twice[2] = {good, good};
    assert_int_equal(embd_push(client, twice, 2, NULL), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "same table"));
    embd_call_options options = EMBD_CALL_OPTIONS(.wire = (embd_dtype)9);
    assert_int_equal(embd_pull(client, &good, 1, &options), EMBD_INVALID);
    options = (embd_call_options)EMBD_CALL_OPTIONS(.plan = (embd_plan)9);
    assert_int_equal(embd_pull(client, &good, 1, &options), EMBD_INVALID);
    g.values[5] = INFINITY;
    assert_int_equal(embd_push(client, &good, 1, NULL), EMBD_NOT_FINITE);
    embd_close(client);
    cluster_stop(&cluster);
}

/* Over the limits of a message: a pull is cut, a push is refused. */
static void a_pull_too_large_for_a_message_is_cut_and_a_push_refused(void **state)
{
    enum { MANY = 5 << 20 };
    struct cluster cluster;
    (void)state;
    cluster_start(&cluster, program, 1, 0);
    embd_client *client = connect_to(cluster.address, 30000, false);
    make_table(client, "t");
    uint64_t *keys = malloc(MANY * sizeof *keys),
             *offsets = malloc((MANY / 2 + 1) * sizeof *offsets);
    float *values = malloc((size_t)MANY * FAKE_DIM * sizeof *values), few[64 * FAKE_DIM];
    uint8_t *statuses = malloc(MANY);
    for (uint64_t i = 0; i < MANY; i++)
        keys[i] = i * i;
    for (uint64_t i = 0; i <= MANY / 2; i++)
        offsets[i] = i * 2;
    embd_part part =
        EMBD_PART(.table = open_table(client, "t"), .n_rows = MANY / 2, .offsets = offsets,
                  .n_keys = MANY, .keys = keys, .values = values, .statuses = statuses);
    embd_call_options pooled = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED);
    memset(statuses, 0xff, MANY);
    assert_int_equal(embd_pull(client, &part, 1, &pooled), EMBD_OK);
    for (uint64_t first = MANY / 2 - 32; first > 100000; first -= 100000) {
        embd_part check = EMBD_PART(.table = part.table, .n_rows = 32, .offsets = offsets,
                                    .n_keys = 64, .keys = keys + 2 * first, .values = few);
        assert_int_equal(embd_pull(client, &check, 1, &pooled), EMBD_OK);
        assert_memory_equal(values + first * FAKE_DIM, few, 32 * FAKE_DIM * sizeof *few);
    }
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(statuses[i], EMBD_KEY_MISSING);
    memset(values, 0, (size_t)MANY * FAKE_DIM * sizeof *values);
    assert_int_equal(embd_push(client, &part, 1, &pooled), EMBD_TOO_LARGE);
    assert_non_null(strstr(embd_error_text(), "push fewer"));
    free(keys);
    free(offsets);
    free(values);
    free(statuses);
    embd_close(client);
    cluster_stop(&cluster);
}

/* Every call that takes a struct looks at its size first. */
static void structs_without_their_size_are_refused(void **state)
{
    struct fake_server server;
    float values[4 * FAKE_DIM];
    embd_clock clock = EMBD_CLOCK(.job = "j", .n_workers = 1, .lease_ms = 1000);
    embd_call_options call = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_ROWS);
    embd_options options = {.deadline_ms = 1000};
    embd_client *none;
    uint64_t value = 0;
    (void)state;
    options.struct_bytes = call.struct_bytes = clock.struct_bytes = 0;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 10000, false);
    embd_part parts[2] = {EMBD_PART(.table = open_table(client, "t"), .n_keys = 4,
                                    .keys = some_keys, .values = values, .raw = true),
                          EMBD_PART()};
    parts[1] = parts[0];
    assert_int_equal(embd_connect(server.address, &options, &none), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "embd_options: struct_bytes is 0"));
    assert_null(none);
    assert_int_equal(embd_pull(client, parts, 1, &call), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "embd_call_options: struct_bytes is 0"));
    assert_int_equal(embd_tick(client, &clock, 0, NULL), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "embd_clock: struct_bytes is 0"));
    assert_int_equal(embd_tick_rejoin(client, &clock, &value, NULL), EMBD_INVALID);
    parts[1].struct_bytes = 0;
    assert_int_equal(embd_pull(client, parts, 2, NULL), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "part 1: embd_part: struct_bytes is 0"));
    parts[1].struct_bytes = sizeof(embd_part) - 8;
    assert_int_equal(embd_pull(client, parts, 2, NULL), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "that of part 0 is"));
    embd_close(client);
    fake_server_stop(&server);
}

/* Parts of a newer header lie further apart. */
static void parts_of_a_newer_header_are_taken(void **state)
{
    struct newer_part {
        embd_part part;
        uint64_t later[2];
    } parts[2] = {{EMBD_PART(), {0}}, {EMBD_PART(), {0}}};
    struct fake_server server;
    float values[2][4 * FAKE_DIM];
    (void)state;
    fake_server_start(&server);
    embd_client *client = connect_to(server.address, 10000, false);
    for (int i = 0; i < 2; i++) {
        parts[i].part = (embd_part)EMBD_PART(.table = open_table(client, "t"), .n_keys = 4,
                                             .keys = some_keys, .values = values[i], .raw = true);
        parts[i].part.struct_bytes = sizeof parts[i];
    }
    assert_int_equal(embd_pull(client, &parts[0].part, 1, NULL), EMBD_OK);
    parts[1].later[1] = 1;
    assert_int_equal(embd_pull(client, &parts[0].part, 2, NULL), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "part 1: embd_part: struct_bytes is"));
    embd_close(client);
    fake_server_stop(&server);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_answer_harms_the_client),
        cmocka_unit_test(no_answer_harms_the_client_with_a_thread_of_its_own),
        cmocka_unit_test(rows_of_i8_and_i4_are_not_sent_to_a_server_that_does_not_take_them),
        cmocka_unit_test(arrays_in_files_are_not_i8_or_i4),
        cmocka_unit_test(states_of_arrays_have_a_size_of_their_own),
        cmocka_unit_test(lists_of_a_load_that_are_null_are_refused),
        cmocka_unit_test(connecting_refuses_what_is_no_server_of_this_version),
        cmocka_unit_test(a_table_of_another_name_is_refused),
        cmocka_unit_test(a_numbered_push_that_is_not_answered_is_unknown),
        cmocka_unit_test(a_server_that_stops_reading_ends_in_the_deadline),
        cmocka_unit_test(a_reset_behind_an_answer_is_noticed),
        cmocka_unit_test(closing_abandons_calls_in_flight),
        cmocka_unit_test(addresses_are_checked_and_the_first_that_answers_is_taken),
        cmocka_unit_test(a_restarted_server_is_reached_again),
        cmocka_unit_test(a_stream_that_was_forgotten_is_not_opened_anew_for_a_push_that_was_made),
        cmocka_unit_test(tables_are_made_listed_found_different_and_dropped),
        cmocka_unit_test(draining_ends_every_process),
        cmocka_unit_test(arguments_are_refused_by_name_position_and_value),
        cmocka_unit_test(structs_without_their_size_are_refused),
        cmocka_unit_test(parts_of_a_newer_header_are_taken),
        cmocka_unit_test(a_pull_too_large_for_a_message_is_cut_and_a_push_refused),
    };
    if (argc != 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
