/* test_hold.c - holds: what waits for them, in which order it goes on, and how they end. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/route.h"
#include "server/service/push_progress.h"

static const uint64_t keys[2] = {1, 2};
static const float grads[4] = {1, 2, 3, 4};

static struct part part_of(const char *table)
{
    return (struct part){.table = embd__table_id(table),
                         .n_keys = 2,
                         .n_rows = 2,
                         .keys = keys,
                         .grads = grads,
                         .grads_bytes = sizeof grads};
}

static void create(struct rig *rig, const char *name, embd_create_on create_on)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = 2;
    schema.combiner = EMBD_COMBINER_CONCAT;
    schema.create_on = create_on;
    create_table(rig, &schema);
}

static struct exchange *ask_hold(struct rig *rig, struct shard_session *session,
                                 uint64_t timeout_ms)
{
    struct exchange *x = ask(rig, session, METHOD_HOLD);
    embd__msg_map(&x->out, 1);
    embd__msg_field_uint(&x->out, "timeout_ms", timeout_ms);
    return x;
}

static void do_hold(struct rig *rig, struct shard_session *session, uint64_t timeout_ms)
{
    struct exchange *x = ask_hold(rig, session, timeout_ms);
    ask_ok(x);
    ask_free(x);
}

static struct exchange *ask_release(struct rig *rig, struct shard_session *session)
{
    struct exchange *x = ask(rig, session, METHOD_RELEASE);
    embd__msg_map(&x->out, 0);
    return x;
}

static uint64_t do_release(struct rig *rig, struct shard_session *session)
{
    struct fields f;
    struct exchange *x = ask_release(rig, session);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "release");
    uint64_t held_us = embd__field_uint(&f, "held_us", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    ask_free(x);
    return held_us;
}

static struct exchange *send_push(struct rig *rig, struct shard_session *session)
{
    struct part part = part_of("items");
    struct exchange *x = ask(rig, session, METHOD_PUSH);
    embd__parts_write(&x->out, &part, 1, PARTS_PUSH);
    ask_send(x);
    return x;
}

static struct exchange *send_pull(struct rig *rig, struct shard_session *session, const char *table)
{
    struct part part = part_of(table);
    part.want_status = true;
    struct exchange *x = ask(rig, session, METHOD_PULL);
    embd__parts_write(&x->out, &part, 1, PARTS_PULL);
    ask_send(x);
    return x;
}

static uint64_t step_of(struct exchange *x)
{
    struct push_answer answer;
    ask_ok(x);
    bool again;
    assert_int_equal(embd__push_answer_read(&x->reader, &answer, 1, &again), 1);
    ask_free(x);
    return answer.step;
}

static embd_key_status status_of(struct exchange *x)
{
    struct part_answer answer;
    ask_ok(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    embd_key_status status = (embd_key_status)answer.statuses[0];
    ask_free(x);
    return status;
}

static void changes_wait_and_reads_do_not(void **state)
{
    struct rig *rig = *state;
    struct shard_session other = {0};
    do_hold(rig, &rig->admin, 5000);
    struct exchange *push = send_push(rig, &rig->data);
    assert_false(push->is_answered);
    assert_int_equal(push->request.state, REQUEST_PARKED);
    assert_int_equal(rig->data.n_parked, 1);
    assert_int_equal(status_of(send_pull(rig, &other, "items")), EMBD_KEY_MISSING);
    assert_int_equal(status_of(send_pull(rig, &other, "items")), EMBD_KEY_MISSING);
    struct exchange *creating = send_pull(rig, &other, "eager"); /* creates rows: a change */
    assert_false(creating->is_answered);
    rig->now_ns += 7000000;
    assert_int_equal(do_release(rig, &rig->admin), 7000);
    assert_true(push->is_answered && creating->is_answered);
    assert_int_equal(rig->data.n_parked, 0);
    assert_int_equal(step_of(push), 1);
    assert_int_equal(status_of(creating), EMBD_KEY_INSERTED);
    assert_int_equal(figure(rig, NULL, "pushes_held_us"), 7000);
    assert_int_equal(figure(rig, NULL, "requests_parked"), 2);
}

static void a_hold_nobody_waited_for_held_nobody(void **state)
{
    struct rig *rig = *state;
    do_hold(rig, &rig->admin, 5000);
    rig->now_ns += 7000000;
    assert_int_equal(do_release(rig, &rig->admin), 0);
}

static void a_connection_keeps_its_order(void **state)
{
    struct rig *rig = *state;
    struct shard_session other = {0};
    do_hold(rig, &rig->admin, 5000);
    struct exchange *pull_before = send_pull(rig, &rig->data, "items");
    struct exchange *first = send_push(rig, &rig->data),
                    *pull = send_pull(rig, &rig->data, "items");
    struct exchange *second = send_push(rig, &other), *third = send_push(rig, &rig->data);
    assert_true(pull_before->is_answered);
    assert_false(first->is_answered || pull->is_answered || second->is_answered ||
                 third->is_answered);
    do_release(rig, &rig->admin);
    assert_int_equal(status_of(pull_before), EMBD_KEY_MISSING);
    assert_int_equal(status_of(pull), EMBD_KEY_HIT);
    assert_int_equal(step_of(first), 1);
    assert_int_equal(step_of(second), 2);
    assert_int_equal(step_of(third), 3);
}

/* Push `order` of the session's client; 0: it tells none, and the msgid is its place. */
static struct exchange *send_ordered(struct rig *rig, struct shard_session *session, uint64_t order)
{
    struct part part = part_of("items");
    const struct push_extra extra = {.order = order};
    struct exchange *x = ask(rig, session, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_send(x);
    return x;
}

static struct exchange *send_erase(struct rig *rig, struct shard_session *session)
{
    struct part part = part_of("items");
    struct exchange *x = ask(rig, session, METHOD_ERASE);
    embd__parts_write(&x->out, &part, 1, PARTS_ERASE);
    ask_send(x);
    return x;
}

/* Holds, lets client 7 in up to `pushed` where that is not 0, and returns how far it has come. */
static uint32_t hold_letting_in(struct rig *rig, uint32_t pushed)
{
    const uint64_t client = 7;
    struct fields f;
    uint32_t reached = 0;
    struct exchange *x = ask(rig, &rig->admin, METHOD_HOLD);
    embd__msg_map(&x->out, 1);
    embd__msg_field_uint(&x->out, "clients", pushed != 0);
    if (pushed != 0) {
        embd__msg_bin(&x->out, &client, sizeof client);
        embd__msg_bin(&x->out, &pushed, sizeof pushed);
    }
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "hold");
    uint64_t n = embd__field_uint(&f, "clients", 0, 1, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__read_bin(&x->reader, "clients", n * sizeof client);
    const uint32_t *bin = embd__read_bin(&x->reader, "pushed", n * sizeof pushed);
    if (n > 0)
        reached = *bin;
    ask_free(x);
    return reached;
}

/* As hello does. */
static void name_client(struct rig *rig, struct shard_session *session)
{
    struct exchange *x = ask(rig, session, METHOD_HELLO);
    embd__msg_map(&x->out, 2);
    embd__msg_field_uint(&x->out, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_uint(&x->out, "client_id", 7);
    ask_ok(x);
    ask_free(x);
}

/* The orders go past 2^32; msgids of the rig are small, and would let in all or nothing. */
static void pushes_are_let_in_by_their_order(void **state)
{
    struct rig *rig = *state;
    const uint64_t first = UINT64_C(0xffffffff);
    name_client(rig, &rig->data);
    assert_int_equal(step_of(send_ordered(rig, &rig->data, first)), 1);
    assert_int_equal(hold_letting_in(rig, 0), UINT32_MAX);
    struct exchange *before = send_erase(rig, &rig->data);
    struct exchange *second = send_ordered(rig, &rig->data, first + 1),
                    *third = send_ordered(rig, &rig->data, first + 2);
    struct exchange *behind = send_erase(rig, &rig->data);
    struct exchange *fourth = send_ordered(rig, &rig->data, first + 3);
    assert_false(before->is_answered || second->is_answered);
    assert_int_equal(hold_letting_in(rig, (uint32_t)(first + 2)), UINT32_MAX);
    assert_true(before->is_answered);
    assert_int_equal(step_of(second), 2);
    assert_int_equal(step_of(third), 3);
    assert_false(behind->is_answered || fourth->is_answered);
    assert_int_equal(hold_letting_in(rig, 0), (uint32_t)(first + 2));
    do_release(rig, &rig->admin);
    assert_true(behind->is_answered);
    assert_int_equal(step_of(fourth), 4);
    ask_free(before);
    ask_free(behind);
}

/* What came before the push on a connection that no push has come on yet. */
static void what_precedes_a_first_push_is_let_in_with_it(void **state)
{
    struct rig *rig = *state;
    name_client(rig, &rig->data);
    hold_letting_in(rig, 0);
    struct exchange *before = send_erase(rig, &rig->data);
    struct exchange *push = send_ordered(rig, &rig->data, 5);
    assert_false(before->is_answered || push->is_answered);
    hold_letting_in(rig, 5);
    assert_true(before->is_answered);
    assert_int_equal(step_of(push), 1);
    do_release(rig, &rig->admin);
    ask_free(before);
}

/* The furthest push of all its connections. */
static void a_client_of_two_connections_is_listed_once(void **state)
{
    struct rig *rig = *state;
    struct shard_session other = {0};
    name_client(rig, &rig->data);
    name_client(rig, &other);
    assert_int_equal(step_of(send_ordered(rig, &rig->data, 6)), 1);
    assert_int_equal(step_of(send_ordered(rig, &other, 5)), 2);
    assert_int_equal(hold_letting_in(rig, 0), 6);
    do_release(rig, &rig->admin);
    assert_int_equal(step_of(send_ordered(rig, &other, 7)), 3);
    assert_int_equal(hold_letting_in(rig, 0), 7);
    do_release(rig, &rig->admin);
    shard_session_end(rig->shard, &other);
}

/* Clients of earlier versions: the msgid of the push is its place. */
static void pushes_without_an_order_are_let_in_by_their_msgid(void **state)
{
    struct rig *rig = *state;
    name_client(rig, &rig->data);
    struct exchange *first = send_ordered(rig, &rig->data, 0);
    uint32_t msgid = first->request.frame->msgid;
    assert_int_equal(step_of(first), 1);
    assert_int_equal(hold_letting_in(rig, 0), msgid);
    struct exchange *second = send_ordered(rig, &rig->data, 0),
                    *third = send_ordered(rig, &rig->data, 0);
    hold_letting_in(rig, second->request.frame->msgid);
    assert_int_equal(step_of(second), 2);
    assert_false(third->is_answered);
    do_release(rig, &rig->admin);
    assert_int_equal(step_of(third), 3);
}

static void all_holders_have_to_release(void **state)
{
    struct rig *rig = *state;
    struct shard_session second = {.is_admin = true};
    do_hold(rig, &rig->admin, 5000);
    do_hold(rig, &second, 5000);
    struct exchange *push = send_push(rig, &rig->data);
    do_release(rig, &rig->admin);
    assert_false(push->is_answered);
    do_release(rig, &second);
    assert_int_equal(step_of(push), 1);
}

static void a_hold_ends_with_its_timeout(void **state)
{
    struct rig *rig = *state;
    do_hold(rig, &rig->admin, 50);
    struct exchange *push = send_push(rig, &rig->data);
    shard_tick(rig->shard, rig->now_ns + 49000000);
    assert_false(push->is_answered);
    shard_tick(rig->shard, rig->now_ns + 50000000);
    assert_true(push->is_answered);
    assert_int_equal(step_of(push), 1);
    ask_error(ask_release(rig, &rig->admin), EMBD_INVALID, "holds nothing", "timeout_ms", NULL);
    do_hold(rig, &rig->admin, 50);
    rig->now_ns += 200000000; /* the next request's time does as well */
    push = send_push(rig, &rig->data);
    assert_int_equal(step_of(push), 2);
}

/* As net does, so many seconds in turns of 0.1 s. */
static void run_for(struct rig *rig, unsigned seconds)
{
    for (unsigned i = 0; i < 10 * seconds; i++) {
        rig->now_ns += 100000000;
        shard_tick(rig->shard, rig->now_ns);
    }
}

static void a_hold_of_a_silent_holder_ends_after_10_s(void **state)
{
    struct rig *rig = *state;
    do_hold(rig, &rig->admin, 3600000);
    struct exchange *push = send_push(rig, &rig->data);
    rig->now_ns +=
        60000000000; /* the shard was busy: what the holder sent meanwhile is not read yet */
    shard_tick(rig->shard, rig->now_ns);
    run_for(rig, 9);
    assert_false(push->is_answered);
    run_for(rig, 1);
    assert_int_equal(step_of(push), 1);
    ask_error(ask_release(rig, &rig->admin), EMBD_INVALID, "holds nothing", NULL);
}

/* A holder that works has no more than that either. */
static void a_hold_lasts_10_s_at_most(void **state)
{
    struct rig *rig = *state;
    do_hold(rig, &rig->admin, 3600000);
    struct exchange *push = send_push(rig, &rig->data);
    for (int i = 0; i < 4; i++) {
        run_for(rig, 2);
        do_hold(rig, &rig->admin, 3600000);
    }
    run_for(rig, 1);
    assert_false(push->is_answered);
    run_for(rig, 2);
    assert_int_equal(step_of(push), 1);
    ask_error(ask_release(rig, &rig->admin), EMBD_INVALID, "holds nothing", NULL);
}

static void a_hold_ends_with_its_connection(void **state)
{
    struct rig *rig = *state;
    do_hold(rig, &rig->admin, 5000);
    struct exchange *push = send_push(rig, &rig->data);
    shard_session_end(rig->shard, &rig->admin);
    assert_int_equal(step_of(push), 1);
}

static void a_parked_request_of_a_lost_connection_has_no_effect(void **state)
{
    struct rig *rig = *state;
    struct shard_session other = {0};
    do_hold(rig, &rig->admin, 5000);
    struct exchange *gone[3];
    for (int i = 0; i < 3; i++)
        gone[i] = send_push(rig, &rig->data);
    struct exchange *push = send_push(rig, &other);
    ask_free(gone[2]);
    ask_free(gone[0]);
    ask_free(gone[1]);
    assert_int_equal(rig->data.n_parked, 0);
    do_release(rig, &rig->admin);
    assert_int_equal(step_of(push), 1);
}

static void a_holder_may_not_change_tables(void **state)
{
    struct rig *rig = *state;
    do_hold(rig, &rig->admin, 5000);
    struct exchange *x = ask(rig, &rig->admin, METHOD_TABLE_DROP);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", "items");
    ask_error(x, EMBD_INVALID, "table_drop", "release first", NULL);
    do_release(rig, &rig->admin);
}

static void a_drain_refuses_what_waits(void **state)
{
    struct rig *rig = *state;
    do_hold(rig, &rig->admin, 5000);
    struct exchange *push = send_push(rig, &rig->data);
    shard_drain(rig->shard);
    assert_true(push->is_answered);
    ask_error(push, EMBD_DRAINING, "push", NULL);
    do_release(rig, &rig->admin);
    assert_int_equal(figure(rig, "items", "steps"), 0);
}

static void a_timeout_beyond_the_limit_is_named(void **state)
{
    struct rig *rig = *state;
    ask_error(ask_hold(rig, &rig->admin, 3600001), EMBD_INVALID, "timeout_ms", "3600001", "3600000",
              NULL);
    ask_error(ask_hold(rig, &rig->admin, 0), EMBD_INVALID, "timeout_ms", "0", "1", NULL);
    struct exchange *x = ask(rig, &rig->admin, METHOD_SCAN);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "table", "items");
    ask_error(x, EMBD_INVALID, "holds nothing", NULL);
}

static int setup(void **state)
{
    static struct rig rig;
    rig_open(&rig, &store_host, 0, 1, NULL);
    create(&rig, "items", EMBD_CREATE_ON_PUSH);
    create(&rig, "eager", EMBD_CREATE_ON_PULL);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    rig_close(*state);
    return 0;
}

/* ---- clients whose connections have ended ---- */

/* It has pushed with an order at that time, and ends. */
static void leave_at(struct push_progress *progress, uint64_t client, uint32_t pushed, uint64_t ns)
{
    struct shard_session session = {.client = 0};
    push_progress_name(progress, &session, client);
    session.is_ordered = true;
    session.pushed = pushed;
    session.pushed_ns = ns;
    push_progress_name(progress, &session, 0);
}

static uint32_t n_listed(struct push_progress *progress, uint64_t now_ns)
{
    struct push_progress_mark *marks;
    uint32_t n = push_progress_list(progress, now_ns, 0, &marks);
    n = push_progress_merge(marks, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(marks[i].pushed, 7 * marks[i].client);
    free(marks);
    return n;
}

static void clients_that_left_are_listed_for_a_minute(void **state)
{
    const uint64_t begin_ns = 1000, later_ns = begin_ns + PUSH_PROGRESS_RECENT_NS;
    struct push_progress progress = {.first = NULL};
    (void)state;
    for (uint32_t i = 1; i <= 1000; i++)
        leave_at(&progress, i, 7 * i, begin_ns);
    leave_at(&progress, 5, 7 * 4, begin_ns); /* once more, from further behind */
    assert_int_equal(n_listed(&progress, later_ns - 1), 1000);
    uint32_t room = progress.n_room;
    for (uint32_t i = 2001; i <= 3000; i++) /* in the place of those */
        leave_at(&progress, i, 7 * i, later_ns);
    assert_int_equal(n_listed(&progress, later_ns), 1000);
    assert_int_equal(progress.n_room, room);
    assert_int_equal(n_listed(&progress, later_ns + PUSH_PROGRESS_RECENT_NS), 0);
    push_progress_fini(&progress);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(changes_wait_and_reads_do_not),
        TEST(a_hold_nobody_waited_for_held_nobody),
        TEST(a_connection_keeps_its_order),
        TEST(pushes_are_let_in_by_their_order),
        TEST(what_precedes_a_first_push_is_let_in_with_it),
        TEST(a_client_of_two_connections_is_listed_once),
        TEST(pushes_without_an_order_are_let_in_by_their_msgid),
        TEST(all_holders_have_to_release),
        TEST(a_hold_ends_with_its_timeout),
        TEST(a_hold_of_a_silent_holder_ends_after_10_s),
        TEST(a_hold_lasts_10_s_at_most),
        TEST(a_hold_ends_with_its_connection),
        TEST(a_parked_request_of_a_lost_connection_has_no_effect),
        TEST(a_holder_may_not_change_tables),
        TEST(a_drain_refuses_what_waits),
        TEST(a_timeout_beyond_the_limit_is_named),
        cmocka_unit_test(clients_that_left_are_listed_for_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
