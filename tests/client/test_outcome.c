/* test_outcome.c - the sentence of a call that failed on some shards: which shards it says did
 * what, for any mixture of them. The real thing is in tests/python/test_outcome.py. And a push that
 * is refused before it is sent, and a pull whose map is refused first. */
#include "tests/unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "client/call/call.h"
#include "tests/client/fake_server.h"

#define MOST 1024u

/* How a message ended: done, refused, half way, not sent. */
struct end {
    uint32_t shard;
    char how;
    int status;
};

static void sentence(char text[LIMIT_ERROR_TEXT], enum parts_kind kind, const struct end *ends,
                     uint32_t n, int status)
{
    static struct message messages[MOST];
    static struct message *list[MOST];
    static struct embd_client client;
    client.error = (struct embd__error){0};
    struct embd_call call = {.client = &client, .kind = kind, .messages = list, .n_messages = n};
    for (uint32_t i = 0; i < n; i++) {
        struct exchange *x = &messages[i].x;
        list[i] = &messages[i];
        messages[i].shard = ends[i].shard;
        x->error = (struct embd__error){0};
        x->is_refused = ends[i].how == 'r';
        x->is_out = ends[i].how != 'n';
        if (ends[i].how != 'd')
            embd__error_set(&x->error, ends[i].status, "host:%u: cause %u", ends[i].shard, i);
    }
    assert_int_equal(embd__call_outcome(&call), status);
    strcpy(text, client.error.text);
}

static void checks(const struct end *ends, uint32_t n, int status, const char *expected)
{
    char text[LIMIT_ERROR_TEXT];
    sentence(text, PARTS_PUSH, ends, n, status);
    assert_string_equal(text, expected);
}

#define CHECK(status, expected, ...)                                                               \
    do {                                                                                           \
        const struct end ends[] = {__VA_ARGS__};                                                   \
        checks(ends, sizeof ends / sizeof ends[0], status, expected);                              \
    } while (0)

#define FULL    EMBD_FULL
#define CLOSED  EMBD_CLOSED
#define UNREACH EMBD_UNREACHABLE

static void where_all_are_alike_there_is_no_list(void **state)
{
    (void)state;
    CHECK(EMBD_OK, "", {0, 'd', 0}, {1, 'd', 0});
    CHECK(FULL, "host:0: cause 0", {0, 'r', FULL}, {1, 'r', FULL});
    CHECK(FULL, "host:0: cause 0", {0, 'r', FULL}, {1, 'n', UNREACH}, {2, 'r', EMBD_BUSY});
    CHECK(CLOSED, "host:0: cause 0", {0, 'h', CLOSED}, {1, 'h', EMBD_DEADLINE});
    CHECK(FULL, "host:5: cause 0", {5, 'r', FULL});
}

static void shards_are_listed_by_what_they_did(void **state)
{
    (void)state;
    CHECK(FULL, "host:1: cause 1; applied by shard 0; refused by shard 1 (table is full)",
          {0, 'd', 0}, {1, 'r', FULL});
    CHECK(
        UNREACH,
        "host:0: cause 0; applied by shards 3-5, 7; refused by shards 1-2 (table is full); refused "
        "by shard 8 (server is busy); not sent to shard 0 (server cannot be reached); unknown of "
        "shard 6",
        {0, 'n', UNREACH}, {1, 'r', FULL}, {2, 'r', FULL}, {3, 'd', 0}, {4, 'd', 0}, {5, 'd', 0},
        {6, 'h', CLOSED}, {7, 'd', 0}, {8, 'r', EMBD_BUSY});
    CHECK(CLOSED, "host:0: cause 0; refused by shard 1 (table is full); unknown of shards 0, 2",
          {0, 'h', CLOSED}, {1, 'r', FULL}, {2, 'h', EMBD_DEADLINE});
    /* Shards whose tables have no keys of it need not be there. */
    CHECK(FULL, "host:3: cause 1; applied by shards 1, 5; refused by shard 3 (table is full)",
          {1, 'd', 0}, {3, 'r', FULL}, {5, 'd', 0});
}

/* An erase may be several messages to a shard. */
static void a_shard_may_have_applied_a_part(void **state)
{
    (void)state;
    CHECK(EMBD_BUSY, "host:0: cause 1; applied in part by shard 0", {0, 'd', 0},
          {0, 'r', EMBD_BUSY});
    CHECK(EMBD_BUSY,
          "host:0: cause 0; applied by shard 1; applied in part by shard 2; refused by shard 0 "
          "(server is busy); unknown of shard 3",
          {0, 'r', EMBD_BUSY}, {0, 'r', EMBD_BUSY}, {1, 'd', 0}, {1, 'd', 0}, {2, 'd', 0},
          {2, 'n', UNREACH}, {3, 'd', 0}, {3, 'r', FULL}, {3, 'h', CLOSED});
}

#define MOVED EMBD_MOVED
#define PARTED                                                                                     \
    "; keys have moved since, and it stays applied in part: do not push it again, go back to a "   \
    "checkpoint with a new client"

static void a_push_that_stays_applied_in_part_is_moved(void **state)
{
    (void)state;
    CHECK(MOVED,
          "host:1: cause 1; applied by shard 0; refused by shard 1 (keys are placed by "
          "another map of the cluster)" PARTED,
          {0, 'd', 0}, {1, 'r', MOVED});
    CHECK(MOVED,
          "host:0: cause 0; refused by shard 1 (keys are placed by another map of the "
          "cluster); unknown of shard 0" PARTED,
          {0, 'h', CLOSED}, {1, 'r', MOVED});
    CHECK(MOVED,
          "host:0: cause 0; applied by shard 1; refused by shard 0 (server is busy); refused "
          "by shard 2 (keys are placed by another map of the cluster)" PARTED,
          {0, 'r', EMBD_BUSY}, {1, 'd', 0}, {2, 'r', MOVED});
    /* No shard has it. */
    CHECK(MOVED, "host:0: cause 0", {0, 'r', MOVED}, {1, 'n', UNREACH});
    CHECK(UNREACH, "host:0: cause 0", {0, 'n', UNREACH}, {1, 'r', MOVED});
    CHECK(EMBD_BUSY, "host:0: cause 0", {0, 'r', EMBD_BUSY}, {1, 'r', MOVED});
    CHECK(MOVED, "host:0: cause 0", {0, 'r', MOVED}, {1, 'r', MOVED});
}

static void a_stream_ends_with_its_first_push_that_is_applied_in_part(void **state)
{
    struct opened opened = {.n = 0};
    struct push_number n = {.high = 7, .low = 8, .sequence = 5, .stream = 1}, other = n;
    (void)state;
    assert_false(embd__numbered_has_ended(&opened, &n));
    embd__numbered_part(&opened, &n);
    embd__numbered_part(&opened, &n); /* its call is seen twice */
    assert_int_equal(opened.n_parted, 1);
    assert_true(embd__numbered_has_ended(&opened, &n));
    n.sequence = 6;
    assert_true(embd__numbered_has_ended(&opened, &n));
    n.sequence = 4;
    assert_false(embd__numbered_has_ended(&opened, &n));
    other.stream = 2;
    assert_false(embd__numbered_has_ended(&opened, &other));
    embd__opened_fini(&opened);
}

static void the_end_of_a_long_sentence_stays(void **state)
{
    static struct end ends[MOST];
    char text[LIMIT_ERROR_TEXT];
    (void)state;
    for (uint32_t i = 0; i < MOST; i++)
        ends[i] = (struct end){i, i % 2 ? 'd' : 'r', MOVED};
    sentence(text, PARTS_PUSH, ends, MOST, MOVED);
    assert_true(strlen(text) > strlen(PARTED));
    assert_string_equal(text + strlen(text) - strlen(PARTED), PARTED);
}

static void a_pull_has_no_list(void **state)
{
    const struct end ends[] = {{0, 'd', 0}, {1, 'r', FULL}};
    char text[LIMIT_ERROR_TEXT];
    (void)state;
    sentence(text, PARTS_PULL, ends, 2, FULL);
    assert_string_equal(text, "host:1: cause 1");
}

/* The longest sentence is as long as sentences may be, and begins as it would. */
static void a_thousand_shards_fit(void **state)
{
    static struct end ends[MOST];
    char text[LIMIT_ERROR_TEXT];
    (void)state;
    for (uint32_t i = 0; i < MOST; i++)
        ends[i] = (struct end){i, i % 2 ? 'd' : 'r', FULL};
    sentence(text, PARTS_ERASE, ends, MOST, FULL);
    assert_true(strlen(text) < LIMIT_ERROR_TEXT);
    assert_memory_equal(text, "host:0: cause 0; applied by shards 1, 3, 5,", 43);
    assert_string_equal(text + strlen(text) - 3, "...");
}

/* It names no `push_bytes`, and takes pushes no longer than other frames. */
static void a_large_push_is_not_sent_to_a_server_of_an_earlier_version(void **state)
{
    enum { MANY = 3 << 20 };
    struct fake_server server;
    embd_client *client;
    embd_options options;
    embd_table *table;
    (void)state;
    fake_server_start(&server);
    embd_options_init(&options);
    options.unnumbered = true; /* it opens no streams */
    assert_int_equal(embd_connect(server.address, &options, &client), EMBD_OK);
    assert_int_equal(embd_table_open(client, "t", &table), EMBD_OK);
    uint64_t *keys = calloc(MANY, sizeof *keys);
    float *values = calloc((size_t)MANY * FAKE_DIM, sizeof *values);
    embd_part part =
        EMBD_PART(.table = table, .n_keys = MANY, .keys = keys, .values = values, .raw = true);
    embd_call_options every = EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED);
    assert_int_equal(embd_push(client, &part, 1, &every), EMBD_TOO_LARGE);
    assert_non_null(strstr(embd_error_text(), "67108864 bytes"));
    assert_non_null(strstr(embd_error_text(), "push_limit"));
    embd_close(client);
    free(keys);
    free(values);
    fake_server_stop(&server);
}

/* Another map splits the keys, and the first question for it is refused. */
static void a_call_waits_for_the_map_that_refuses_it(void **state)
{
    struct fake_server server;
    embd_client *client;
    embd_table *table;
    uint64_t key = 7, offsets[] = {0, 1};
    float row[FAKE_DIM] = {0};
    (void)state;
    fake_server_start(&server);
    assert_int_equal(embd_connect(server.address, NULL, &client), EMBD_OK);
    assert_int_equal(embd_table_open(client, "t", &table), EMBD_OK);
    server.manner = FAKE_MOVED;
    embd_part part = EMBD_PART(.table = table, .n_rows = 1, .offsets = offsets, .n_keys = 1,
                               .keys = &key, .values = row);
    assert_int_equal(embd_pull(client, &part, 1, NULL), EMBD_OK);
    assert_int_equal(server.manner, FAKE_MAP_NEW);
    assert_true(row[0] == 1);
    embd_close(client);
    fake_server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_all_are_alike_there_is_no_list),
        cmocka_unit_test(shards_are_listed_by_what_they_did),
        cmocka_unit_test(a_shard_may_have_applied_a_part),
        cmocka_unit_test(a_push_that_stays_applied_in_part_is_moved),
        cmocka_unit_test(a_stream_ends_with_its_first_push_that_is_applied_in_part),
        cmocka_unit_test(the_end_of_a_long_sentence_stays),
        cmocka_unit_test(a_pull_has_no_list),
        cmocka_unit_test(a_thousand_shards_fit),
        cmocka_unit_test(a_large_push_is_not_sent_to_a_server_of_an_earlier_version),
        cmocka_unit_test(a_call_waits_for_the_map_that_refuses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
