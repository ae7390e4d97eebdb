/* test_rounds_again.c - pushes of rounds that come a second time, since their answer was lost: by
 * another connection, while their step is being made, and after the shard has started anew. A step
 * is made once, and its pushes are answered as applied; one that was not made is made then. */
#include "tests/server/deferred_store.h"
#include "tests/server/journaled.h"

#include <stdio.h>
#include <string.h>

#include "proto/placement.h"
#include "proto/route.h"
#include "server/service/moving.h"

#define WORKERS 3u
#define LEASE   1000u

static const uint64_t key_seven[1] = {7};
static const float gradient[4] = {3, 3, 3, 3};

/* A job whose workers push to the table "t"; a worker's connections are sessions. */
struct job {
    struct journaled j;
    struct rig *rig;
    struct shard_session sessions[WORKERS];
    struct exchange *x[WORKERS];
};

static void reach(struct job *job, uint32_t w)
{
    job->sessions[w] = (struct shard_session){.client = 100 + w};
}

static struct part part_of_t(void)
{
    struct part part = part_of("t", key_seven, 1, gradient);
    part.want_status = true;
    return part;
}

static struct exchange *send_extra(struct job *job, struct shard_session *session,
                                   const struct push_extra *extra)
{
    struct part part = part_of_t();
    struct exchange *x = ask(job->rig, session, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, extra);
    ask_send(x);
    return x;
}

/* A push that is of no round. */
static struct exchange *send_plain(struct job *job, struct shard_session *session, uint64_t order)
{
    return send_extra(job, session, &(struct push_extra){.order = order});
}

static struct exchange *send_by(struct job *job, struct shard_session *session, uint32_t w,
                                uint64_t clock, uint64_t order)
{
    const struct push_extra extra = {.round = {"job", w, WORKERS, clock, LEASE, 100 + w, 1},
                                     .order = order};
    return send_extra(job, session, &extra);
}

/* Without an order: 0. */
static struct exchange *send_ordered(struct job *job, uint32_t w, uint64_t clock, uint64_t order)
{
    return send_by(job, &job->sessions[w], w, clock, order);
}

/* The same bytes as ever for this worker and clock. */
static void push_for(struct job *job, uint32_t w, uint64_t clock)
{
    job->x[w] = send_ordered(job, w, clock, 10 + clock);
}

static void lose(struct job *job, uint32_t w)
{
    ask_free(job->x[w]);
    job->x[w] = NULL;
    shard_session_end(job->rig->shard, &job->sessions[w]);
    reach(job, w);
}

static void send_all(struct job *job, uint64_t clock)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        push_for(job, w, clock);
}

static bool take(struct exchange *x, uint64_t *step_out)
{
    struct push_answer answer = {.step = 0};
    bool again;
    if (x->rig->config.wake != NULL)
        ask_wait(x);
    ask_read(x);
    assert_int_equal(x->reader.answer_status, EMBD_OK);
    int n = embd__push_answer_read(&x->reader, &answer, 1, &again);
    assert_int_equal(n, again ? 0 : 1);
    *step_out = answer.step;
    ask_free(x);
    return again;
}

/* Each is answered: as applied before, or by the step of that number. */
static void check_answer(struct job *job, uint32_t w, bool is_again, uint64_t step)
{
    uint64_t own;
    assert_int_equal(take(job->x[w], &own), is_again);
    if (!is_again)
        assert_int_equal(own, step);
}

static void check_answers(struct job *job, bool is_again, uint64_t step)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        check_answer(job, w, is_again, step);
}

/* Each step takes 3 from the row, whoever was in it. */
static void check_steps(struct job *job, uint64_t n)
{
    float row[4];
    struct part part = part_of("t", key_seven, 1, NULL);
    pull(job->rig, &part, row, NULL);
    assert_int_equal(figure(job->rig, "t", "steps"), n);
    assert_true(row[0] == -3.0f * (float)n && row[3] == row[0]);
}

static void start(struct job *job)
{
    job->rig = &job->j.rig;
    for (uint32_t w = 0; w < WORKERS; w++)
        reach(job, w);
}

/* The shard ends as its process would: nobody hears of it. */
static void restart(struct job *job)
{
    journaled_stop(&job->j);
    journaled_start(&job->j);
    start(job);
}

/* ---- the shard goes on ---- */

static void what_was_made_is_answered_as_applied(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    reach(job, 1);
    push_for(job, 1, 0);
    check_answer(job, 1, true, 0);
    send_all(job, 1);
    check_answers(job, false, 2);
    push_for(job, 1, 0); /* a late copy */
    check_answer(job, 1, true, 0);
    check_steps(job, 2);
}

static void what_waited_waits_again(void **state)
{
    struct job *job = *state;
    push_for(job, 0, 0);
    push_for(job, 1, 0);
    lose(job, 0);
    push_for(job, 2, 0);
    push_for(job, 0, 0);
    check_answers(job, false, 1);
    check_steps(job, 1);
}

/* Without an order a push that has been made is another one. */
static void a_push_without_an_order_is_not_known_again(void **state)
{
    struct job *job = *state;
    for (uint32_t w = 0; w < WORKERS; w++)
        job->x[w] = send_ordered(job, w, 0, 0);
    check_answers(job, false, 1);
    ask_error(send_ordered(job, 0, 0, 0), EMBD_INVALID, "up to 0 already", NULL);
    check_steps(job, 1);
}

static void another_process_of_the_worker_is_not_taken_for_it(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    struct push_extra extra = {.round = {"job", 0, WORKERS, 0, LEASE, 999, 1}, .order = 10};
    struct part part = part_of_t();
    struct exchange *x = ask(job->rig, &job->sessions[0], METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_error(x, EMBD_INVALID, "another process", NULL);
}

/* Its client sends both again, and the second would be there before the first. */
static void nothing_overtakes_a_push_that_left_its_round(void **state)
{
    struct job *job = *state;
    struct part part = part_of_t();
    struct push_extra extra = {.order = 11};
    push_for(job, 0, 0);
    struct exchange *behind = ask(job->rig, &job->sessions[0], METHOD_PUSH);
    embd__push_write(&behind->out, &part, 1, &extra);
    ask_send(behind);
    shard_session_half_end(job->rig->shard, &job->sessions[0]);
    ask_error(job->x[0], EMBD_CLOSED, "closed its side", NULL);
    ask_error(behind, EMBD_CLOSED, "no longer in its round", NULL);
    reach(job, 0);
    send_all(job, 0);
    check_answers(job, false, 1);
    check_steps(job, 1);
}

/* The shard does not know yet that the connection is lost. */
static void the_newer_connection_has_the_push(void **state)
{
    struct job *job = *state;
    struct exchange *old;
    struct shard_session lost;
    struct part part = part_of_t();
    struct push_extra extra = {.order = 11};
    push_for(job, 0, 0);
    struct exchange *behind = ask(job->rig, &job->sessions[0], METHOD_PUSH);
    embd__push_write(&behind->out, &part, 1, &extra);
    ask_send(behind);
    old = job->x[0];
    struct exchange *again;
    lost = (struct shard_session){.client = 100};
    again = ask(job->rig, &lost, METHOD_PUSH);
    struct push_extra same = {.round = {"job", 0, WORKERS, 0, LEASE, 100, 1}, .order = 10};
    embd__push_write(&again->out, &part, 1, &same);
    ask_send(again);
    ask_error(old, EMBD_CLOSED, "again, on another connection", NULL);
    ask_error(behind, EMBD_CLOSED, "goes on with another one", NULL);
    job->x[0] = again;
    push_for(job, 1, 0);
    push_for(job, 2, 0);
    check_answers(job, false, 1);
    check_steps(job, 1);
}

/* It comes on the ended connection as a whole, and another push behind it. */
static void nothing_overtakes_a_push_that_came_too_late_for_its_round(void **state)
{
    struct job *job = *state;
    shard_session_half_end(job->rig->shard, &job->sessions[0]);
    push_for(job, 0, 0);
    ask_error(job->x[0], EMBD_CLOSED, "cannot wait", NULL);
    ask_error(send_plain(job, &job->sessions[0], 11), EMBD_CLOSED, "no longer in its round", NULL);
    reach(job, 0);
    send_all(job, 0);
    check_answers(job, false, 1);
    check_steps(job, 1);
}

/* As hello does. */
static void name_client(struct job *job, struct shard_session *session)
{
    struct exchange *x = ask(job->rig, session, METHOD_HELLO);
    embd__msg_map(&x->out, 2);
    embd__msg_field_uint(&x->out, "protocol", LIMIT_PROTOCOL);
    embd__msg_field_uint(&x->out, "client_id", 100);
    ask_ok(x);
    ask_free(x);
}

/* Worker 0 has gone on from `sessions[0]` to `sessions[1]`. */
static void name_two(struct job *job, struct shard_session *sessions)
{
    for (uint32_t i = 0; i < 2; i++)
        name_client(job, &sessions[i]);
}

static void end_two(struct job *job, struct shard_session *sessions)
{
    for (uint32_t i = 0; i < 2; i++)
        shard_session_end(job->rig->shard, &sessions[i]);
}

/* The bytes of the connection that the worker has left come last. */
static void a_late_copy_does_not_displace_the_push(void **state)
{
    struct job *job = *state;
    struct shard_session sessions[2] = {{0}};
    uint64_t step;
    name_two(job, sessions);
    job->x[0] = send_by(job, &sessions[1], 0, 0, 10);
    struct exchange *next = send_plain(job, &sessions[1], 11);
    ask_error(send_by(job, &sessions[0], 0, 0, 10), EMBD_CLOSED, "newer connection", NULL);
    ask_error(send_plain(job, &sessions[0], 11), EMBD_CLOSED, "goes on with another one", NULL);
    push_for(job, 1, 0);
    push_for(job, 2, 0);
    check_answers(job, false, 1);
    assert_false(take(next, &step));
    assert_int_equal(step, 2);
    end_two(job, sessions);
}

/* Pushes were split by the even map, and keys have moved since. */
static void what_was_made_is_known_by_a_later_map(void **state)
{
    struct job *job = *state;
    struct placement map;
    struct embd__error e = {.status = EMBD_OK};
    send_all(job, 0);
    check_answers(job, false, 1);
    embd__placement_begin(&map, 2, 2, 2, &e);
    embd__placement_add(&map, 0, 256, &e);
    embd__placement_add(&map, 1, 768, &e);
    assert_int_equal(embd__placement_end(&map, &e), EMBD_OK);
    moving_take_place(job->rig->shard, &map);
    push_for(job, 0, 0);
    check_answer(job, 0, true, 0);
    push_for(job, 0, 1);
    ask_error(job->x[0], EMBD_MOVED, "version 2", NULL);
    assert_int_equal(figure(job->rig, "t", "steps"), 1);
}

/* ---- the shard starts anew ---- */

static void a_step_that_was_made_is_made_once(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    ask_wait(job->x[0]); /* the record is written; nobody takes the answers */
    for (uint32_t w = 0; w < WORKERS; w++)
        ask_free(job->x[w]);
    restart(job);
    check_steps(job, 1);
    send_all(job, 0);
    check_answers(job, true, 0);
    send_all(job, 1);
    check_answers(job, false, 2);
    restart(job);
    send_all(job, 1);
    check_answers(job, true, 0);
    check_steps(job, 2);
}

/* Numbered by nobody, of a client of its own, until the journal begins anew. */
static void compact(struct job *job)
{
    struct shard_session other = {.client = 7};
    struct part part = part_of_t();
    for (uint64_t order = 1; figure(job->rig, NULL, "journal_bases") < 2; order++) {
        struct push_extra extra = {.order = order};
        struct exchange *x = ask(job->rig, &other, METHOD_PUSH);
        embd__push_write(&x->out, &part, 1, &extra);
        ask_ok(x);
        ask_free(x);
    }
}

static void a_base_knows_the_steps_before_it(void **state)
{
    struct job *job = *state;
    journaled_stop(&job->j);
    rig_open_limited(&job->j.rig, job->j.dir, 4096);
    start(job);
    send_all(job, 0);
    check_answers(job, false, 1);
    compact(job);
    uint64_t n = figure(job->rig, "t", "steps");
    restart(job);
    send_all(job, 0);
    check_answers(job, true, 0);
    assert_int_equal(figure(job->rig, "t", "steps"), n);
}

static void a_step_that_was_not_made_is_made_by_all(void **state)
{
    struct job *job = *state;
    push_for(job, 0, 0);
    push_for(job, 1, 0);
    for (uint32_t w = 0; w < 2; w++)
        ask_free(job->x[w]);
    restart(job);
    send_all(job, 0);
    check_answers(job, false, 1);
    check_steps(job, 1);
}

/* `flag`: a field that is true, or NULL. */
static int tick_in(struct job *job, const char *name, uint32_t w, uint64_t clock, const char *flag)
{
    struct exchange *x = ask(job->rig, &job->rig->data, METHOD_TICK);
    embd__msg_map(&x->out, flag != NULL ? 8 : 7);
    embd__msg_field_str(&x->out, "job", name);
    embd__msg_field_uint(&x->out, "worker", w);
    embd__msg_field_uint(&x->out, "workers", WORKERS);
    embd__msg_field_uint(&x->out, "clock", clock);
    embd__msg_field_uint(&x->out, "lease_ms", LEASE);
    embd__msg_field_uint(&x->out, "incarnation", 100 + w);
    embd__msg_field_uint(&x->out, "epoch", 1);
    if (flag != NULL)
        embd__msg_field_bool(&x->out, flag, true);
    ask_send(x);
    ask_read(x);
    int status = x->reader.answer_status;
    ask_free(x);
    return status;
}

static int tick(struct job *job, uint32_t w, uint64_t clock, const char *flag)
{
    return tick_in(job, "job", w, clock, flag);
}

/* Its sign of life comes before its push, and it has the answer to the step, or has not. */
static void one_that_was_in_the_step_is_waited_for(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    for (uint64_t clock = 0; clock < 2; clock++) {
        restart(job);
        push_for(job, 0, clock);
        check_answer(job, 0, true, 0);
        assert_int_equal(tick(job, 1, clock, clock == 0 ? "beat" : NULL), EMBD_OK);
        push_for(job, 0, clock + 1);
        push_for(job, 2, clock + 1);
        assert_false(job->x[0]->is_answered);
        push_for(job, 1, clock + 1);
        check_answers(job, false, clock + 2);
    }
    check_steps(job, 3);
}

static void pass_lease(struct job *job)
{
    for (uint32_t ms = 0; ms < LEASE + 200; ms += 100) {
        job->rig->now_ns += UINT64_C(100000000);
        shard_tick(job->rig->shard, job->rig->now_ns);
    }
}

/* Worker 2 was dropped, and the shard does not know it any more. */
static void one_that_was_not_in_the_step_is_late(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    push_for(job, 0, 1);
    push_for(job, 1, 1);
    pass_lease(job);
    ask_wait(job->x[0]);
    ask_free(job->x[0]);
    ask_free(job->x[1]);
    restart(job);
    check_steps(job, 2);
    push_for(job, 2, 1);
    assert_false(job->x[2]->is_answered);
    push_for(job, 0, 1);
    check_answer(job, 0, true, 0);
    ask_error(job->x[2], EMBD_LATE, "worker 2", "clock 1", NULL);
    push_for(job, 1, 1);
    check_answer(job, 1, true, 0);
    send_all(job, 2);
    check_answers(job, false, 3);
    check_steps(job, 3);
}

/* ---- what such a push says of its worker ---- */

/* It is known by a later one: its clock may be any. */
static void the_clock_of_an_earlier_push_says_nothing(void **state)
{
    struct job *job = *state;
    for (uint64_t clock = 0; clock < 2; clock++) {
        send_all(job, clock);
        check_answers(job, false, clock + 1);
    }
    for (uint64_t clock = 2; clock < 4; clock++) {
        uint64_t step;
        assert_true(take(send_ordered(job, 0, UINT64_C(1) << 62, 10), &step));
        push_for(job, 1, clock);
        push_for(job, 2, clock);
        assert_false(job->x[1]->is_answered);
        push_for(job, 0, clock);
        check_answers(job, false, clock + 1);
        restart(job);
    }
    check_steps(job, 4);
}

/* A late copy of its last push comes. */
static void one_that_was_dropped_stays_so(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    for (uint64_t clock = 1; clock < 3; clock++) {
        push_for(job, 0, clock);
        push_for(job, 1, clock);
        if (clock == 1)
            pass_lease(job);
        check_answer(job, 0, false, clock + 1);
        check_answer(job, 1, false, clock + 1);
        push_for(job, 2, 0);
        check_answer(job, 2, true, 0);
    }
    check_steps(job, 3);
}

/* Nor does its job begin anew. */
static void one_that_has_left_stays_so(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    assert_int_equal(tick(job, 2, 1, "leave"), EMBD_OK);
    push_for(job, 2, 0);
    check_answer(job, 2, true, 0);
    push_for(job, 0, 1);
    push_for(job, 1, 1);
    check_answer(job, 0, false, 2);
    check_answer(job, 1, false, 2);
    assert_int_equal(tick(job, 0, 2, "leave"), EMBD_OK);
    assert_int_equal(tick(job, 1, 2, "leave"), EMBD_OK);
    push_for(job, 2, 0);
    check_answer(job, 2, true, 0);
    assert_int_equal(tick(job, 1, 2, "leave"), EMBD_OK);
    check_steps(job, 2);
}

/* Its first push, which joined, comes when another process is the worker. */
static void a_process_before_does_not_join_again(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    struct push_extra extra = {.round = {"job", 0, WORKERS, 0, LEASE, 999, 0}, .order = 10};
    ask_error(send_extra(job, &job->sessions[0], &extra), EMBD_INVALID, "another process", NULL);
    send_all(job, 1);
    check_answers(job, false, 2);
}

/* Others have all the room since the start. */
static void what_was_made_is_known_without_room_for_its_job(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    check_answers(job, false, 1);
    restart(job);
    int status = EMBD_OK;
    for (uint32_t i = 0; i < 1000 && status == EMBD_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "other-%u", i);
        status = tick_in(job, name, 0, 0, NULL);
    }
    assert_int_equal(status, EMBD_FULL);
    send_all(job, 0);
    check_answers(job, true, 0);
    send_all(job, 1);
    for (uint32_t w = 0; w < WORKERS; w++)
        ask_error(job->x[w], EMBD_FULL, "jobs", NULL);
    check_steps(job, 1);
}

/* ---- a device ---- */

/* The answer is that of the step, since it is being made. */
static void a_push_whose_step_is_being_made_gets_its_result(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    lose(job, 0);
    push_for(job, 0, 0);
    assert_false(job->x[0]->is_answered);
    lose(job, 0); /* and once more */
    push_for(job, 0, 0);
    assert_true(deferred_run());
    assert_false(deferred_run());
    check_answer(job, 0, true, 0);
    check_answer(job, 1, false, 1);
    check_answer(job, 2, false, 1);
    assert_int_equal(figure(job->rig, "t", "steps"), 1);
}

static void a_late_copy_does_not_take_the_result(void **state)
{
    struct job *job = *state;
    struct shard_session sessions[2] = {{0}};
    name_two(job, sessions);
    job->x[0] = send_by(job, &sessions[1], 0, 0, 10);
    push_for(job, 1, 0);
    push_for(job, 2, 0);
    ask_error(send_by(job, &sessions[0], 0, 0, 10), EMBD_CLOSED, "newer connection", NULL);
    ask_error(send_plain(job, &sessions[0], 11), EMBD_CLOSED, "goes on with another one", NULL);
    assert_true(deferred_run());
    check_answers(job, false, 1);
    end_two(job, sessions);
}

/* It was being made when the connection ended, and fails. */
static void nothing_overtakes_a_push_whose_step_fails(void **state)
{
    struct job *job = *state;
    send_all(job, 0);
    struct exchange *behind = send_plain(job, &job->sessions[0], 11);
    shard_session_half_end(job->rig->shard, &job->sessions[0]);
    assert_false(job->x[0]->is_answered);
    assert_true(deferred_fail());
    for (uint32_t w = 0; w < WORKERS; w++)
        ask_error(job->x[w], EMBD_NO_MEMORY, "no memory", NULL);
    shard_tick(job->rig->shard, job->rig->now_ns);
    assert_false(deferred_run());
    ask_error(behind, EMBD_CLOSED, "no longer in its round", NULL);
}

/* ---- all ---- */

static void create(struct job *job, embd_durability durability)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "t");
    schema.dim = 4;
    schema.durability = durability;
    schema.partition = EMBD_PARTITION_MODULO;
    schema.initializer = (embd_initializer){EMBD_INITIALIZER_CONSTANT, 0, 0};
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_SGD, 1);
    create_table(job->rig, &schema);
}

static int setup(void **state)
{
    static struct job job;
    job = (struct job){.rig = NULL};
    journaled_new(&job.j);
    start(&job);
    create(&job, EMBD_DURABILITY_DURABLE);
    *state = &job;
    return 0;
}

static int teardown(void **state)
{
    struct job *job = *state;
    journaled_end(&job->j);
    return 0;
}

static int open_unkept(void **state, const struct store_ops *ops, uint32_t index, uint32_t n_shards)
{
    static struct job job;
    job = (struct job){.rig = NULL};
    rig_open(&job.j.rig, ops, index, n_shards, NULL);
    start(&job);
    create(&job, EMBD_DURABILITY_SNAPSHOT);
    *state = &job;
    return 0;
}

static int setup_device(void **state)
{
    deferred_open();
    return open_unkept(state, &store_deferred, 0, 1);
}

/* Which has the key. */
static int setup_second(void **state)
{
    return open_unkept(state, &store_host, 1, 2);
}

static int teardown_unkept(void **state)
{
    struct job *job = *state;
    rig_close(job->rig);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_made_is_answered_as_applied),
        TEST(what_waited_waits_again),
        TEST(a_push_without_an_order_is_not_known_again),
        TEST(another_process_of_the_worker_is_not_taken_for_it),
        TEST(nothing_overtakes_a_push_that_left_its_round),
        TEST(the_newer_connection_has_the_push),
        TEST(nothing_overtakes_a_push_that_came_too_late_for_its_round),
        TEST(a_late_copy_does_not_displace_the_push),
        cmocka_unit_test_setup_teardown(what_was_made_is_known_by_a_later_map, setup_second,
                                        teardown_unkept),
        TEST(a_step_that_was_made_is_made_once),
        TEST(a_base_knows_the_steps_before_it),
        TEST(a_step_that_was_not_made_is_made_by_all),
        TEST(one_that_was_in_the_step_is_waited_for),
        TEST(one_that_was_not_in_the_step_is_late),
        TEST(the_clock_of_an_earlier_push_says_nothing),
        TEST(one_that_was_dropped_stays_so),
        TEST(one_that_has_left_stays_so),
        TEST(a_process_before_does_not_join_again),
        TEST(what_was_made_is_known_without_room_for_its_job),
        cmocka_unit_test_setup_teardown(a_push_whose_step_is_being_made_gets_its_result,
                                        setup_device, teardown_unkept),
        cmocka_unit_test_setup_teardown(a_late_copy_does_not_take_the_result, setup_device,
                                        teardown_unkept),
        cmocka_unit_test_setup_teardown(nothing_overtakes_a_push_whose_step_fails, setup_device,
                                        teardown_unkept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
