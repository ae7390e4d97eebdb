/* test_jobs.c - the workers of jobs against a model that is told everything that happened, over
 * thousands of made-up histories: workers that run ahead, fall silent, come back in time or late,
 * leave, and are started again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/engine/rounds/jobs.h"

#define MS      UINT64_C(1000000)
#define WORKERS 4u
#define LEASE   (400 * MS)
#define PIECE   (40 * MS) /* between two looks */
#define STEPS   400u

static uint32_t pick(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static void pass(struct jobs *jobs, uint64_t *now, uint64_t ns)
{
    for (uint64_t end = *now + ns; *now < end;) {
        *now += end - *now < PIECE ? end - *now : PIECE;
        jobs_look(jobs, *now);
    }
}

/* ---- one request ---- */

struct ask {
    uint32_t worker;
    uint64_t incarnation, epoch, clock;
    bool leave, beat;
};

static int tell(struct jobs *jobs, const struct ask *ask, uint64_t now, struct job **job,
                struct embd__error *e)
{
    struct job_tick tick = {
        .claim = {"job", ask->worker, WORKERS, LEASE, ask->incarnation, ask->epoch},
        .clock = ask->clock,
        .leave = ask->leave};
    *e = (struct embd__error){.status = EMBD_OK};
    return (ask->beat ? jobs_beat : jobs_tick)(jobs, &tick, now, job, e);
}

static struct job *tell_ok(struct jobs *jobs, uint32_t worker, uint64_t clock, uint64_t now)
{
    struct embd__error e;
    struct job *job;
    struct ask ask = {worker, worker + 1, 0, clock, false, false};
    if (tell(jobs, &ask, now, &job, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    return job;
}

static void tell_error(struct jobs *jobs, const struct ask *ask, uint64_t now, int status,
                       const char *word)
{
    struct embd__error e;
    struct job *job;
    assert_int_equal(tell(jobs, ask, now, &job, &e), status);
    if (strstr(e.text, word) == NULL)
        fail_msg("no '%s' in: %s", word, e.text);
}

/* All have joined, at clock 0. */
static struct job *join_all(struct jobs *jobs, uint64_t now)
{
    struct job *job = NULL;
    for (uint32_t w = 0; w < WORKERS; w++)
        job = tell_ok(jobs, w, 0, now);
    return job;
}

/* ---- histories ---- */

/* The last of what a worker did. */
struct model {
    struct {
        uint64_t incarnation, clock, at;
        enum worker_state state;
    } workers[WORKERS];
    uint64_t epoch;
};

static void model_expire(struct model *m, uint64_t now)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        if (m->workers[w].state == WORKER_LIVE && m->workers[w].at + LEASE < now)
            m->workers[w].state = WORKER_DROPPED;
}

static uint32_t model_count(const struct model *m, enum worker_state state)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < WORKERS; w++)
        n += m->workers[w].state == state;
    return n;
}

/* The clock that a worker may come back at. */
static uint64_t model_clock(const struct model *m)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t w = 0; w < WORKERS; w++)
        if (m->workers[w].state == WORKER_LIVE && m->workers[w].clock < least)
            least = m->workers[w].clock;
    return least == UINT64_MAX || model_count(m, WORKER_ABSENT) > 0 ? 0 : least;
}

static void model_begin(struct model *m, const struct ask *ask)
{
    uint32_t n_others =
        model_count(m, WORKER_LIVE) - (m->workers[ask->worker].state == WORKER_LIVE);
    bool is_known = m->workers[ask->worker].state != WORKER_ABSENT &&
                    m->workers[ask->worker].incarnation == ask->incarnation;
    bool all_left = model_count(m, WORKER_LIVE) + model_count(m, WORKER_DROPPED) == 0;
    if (m->epoch == 0 || all_left || (!is_known && n_others == 0)) {
        uint64_t next = m->epoch + 1;
        *m = (struct model){.epoch = next};
    } else if (!is_known && m->workers[ask->worker].state != WORKER_ABSENT) {
        m->workers[ask->worker].state = WORKER_DROPPED;
        m->workers[ask->worker].clock = 0;
    }
    m->workers[ask->worker].incarnation = ask->incarnation;
}

/* What a tick gives: EMBD_OK, EMBD_LATE, or EMBD_INVALID for a clock that falls. */
static int model_tick(struct model *m, const struct ask *ask, uint64_t now)
{
    bool has_left = m->workers[ask->worker].state == WORKER_LEFT &&
                    m->workers[ask->worker].incarnation == ask->incarnation;
    if (m->epoch != 0 && ask->leave && has_left)
        return EMBD_OK;
    model_begin(m, ask);
    bool is_live = m->workers[ask->worker].state == WORKER_LIVE;
    if (!ask->leave && is_live && ask->clock < m->workers[ask->worker].clock)
        return EMBD_INVALID;
    if (!ask->leave && !is_live && ask->clock < model_clock(m)) {
        if (m->workers[ask->worker].state == WORKER_ABSENT)
            m->workers[ask->worker].state = WORKER_DROPPED;
        return EMBD_LATE;
    }
    m->workers[ask->worker].state = ask->leave ? WORKER_LEFT : WORKER_LIVE;
    m->workers[ask->worker].at = now;
    if (!ask->leave || ask->clock > m->workers[ask->worker].clock)
        m->workers[ask->worker].clock = ask->clock;
    return EMBD_OK;
}

static void compare(const struct model *m, const struct job *job)
{
    assert_int_equal(job->epoch, m->epoch);
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_int_equal(job->workers[w].state, m->workers[w].state);
        if (m->workers[w].state == WORKER_LIVE)
            assert_int_equal(job->workers[w].clock, m->workers[w].clock);
    }
    assert_int_equal(jobs_clock(job), model_clock(m));
}

static void every_history_gives_what_the_model_says(void **state)
{
    uint32_t n_late = 0, n_anew = 0;
    (void)state;
    for (uint64_t history = 1; history <= 300; history++) {
        struct jobs jobs = {0};
        struct model m = {0};
        uint64_t seed = history, now = 1000 * MS, clocks[WORKERS] = {0}, lives[WORKERS] = {0};
        jobs_look(&jobs, now);
        for (uint32_t i = 0; i < STEPS; i++) {
            struct job *job = NULL;
            struct embd__error e;
            /* by tens of ms, so that both sides see a lease end in the same look */
            pass(&jobs, &now, 10 * MS * (pick(&seed, 12) == 0 ? pick(&seed, 90) : pick(&seed, 6)));
            model_expire(&m, now);
            uint32_t w = pick(&seed, WORKERS);
            bool anew = pick(&seed, 40) == 0;
            lives[w] += anew;
            clocks[w] = anew ? 0 : clocks[w] + pick(&seed, 3);
            struct ask ask = {w, 1 + w + 10 * lives[w], 0, clocks[w], pick(&seed, 30) == 0, false};
            uint64_t epoch = m.epoch;
            int expected = model_tick(&m, &ask, now);
            assert_int_equal(tell(&jobs, &ask, now, &job, &e), expected);
            n_anew += epoch > 0 && m.epoch > epoch;
            n_late += expected == EMBD_LATE;
            if (expected == EMBD_LATE)
                clocks[w] = model_clock(&m);
            if (expected == EMBD_INVALID)
                clocks[w] = m.workers[w].clock;
            for (uint32_t j = 0; job == NULL && j < JOBS_MAX; j++)
                job = jobs.jobs[j];
            compare(&m, job);
        }
        jobs_fini(&jobs);
    }
    assert_true(n_late > 1000 && n_anew > 100);
}

/* Whatever the order in which workers run, none that asks before it goes on is further ahead of a
 * live one than the staleness it asked for. */
static void nobody_runs_further_ahead_than_it_may(void **state)
{
    (void)state;
    for (uint64_t staleness = 0; staleness < 4; staleness++) {
        struct jobs jobs = {0};
        uint64_t seed = staleness + 1, at[WORKERS] = {0}, steps = 0;
        for (uint32_t i = 0; i < 5000; i++) {
            uint32_t w = pick(&seed, pick(&seed, WORKERS) + 1); /* the first are the fastest */
            struct job *job = tell_ok(&jobs, w, at[w], 1000 * MS + i);
            if (jobs_slowest(job) + staleness < at[w])
                continue; /* waits */
            at[w]++;
            steps++;
            for (uint32_t other = 0; other < WORKERS; other++)
                assert_true(at[w] <= at[other] + staleness + 1);
        }
        assert_true(steps > 100);
        jobs_fini(&jobs);
    }
}

/* ---- one rule each ---- */

static void leases_that_run_out_together_begin_nothing_anew(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    (void)state;
    struct job *job = join_all(&jobs, now);
    for (uint32_t w = 0; w < WORKERS; w++)
        tell_ok(&jobs, w, 10, now);
    job->stepped = 10;
    pass(&jobs, &now, 3 * LEASE);
    assert_int_equal(jobs_count(job, WORKER_DROPPED), WORKERS);
    job = tell_ok(&jobs, 1, 10, now);
    assert_int_equal(job->epoch, 1);
    assert_int_equal(jobs_slowest(job), 10);
    assert_int_equal(jobs_count(job, WORKER_ABSENT), 0);
    jobs_fini(&jobs);
}

static void a_worker_whose_push_waits_is_not_dropped(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    (void)state;
    struct job *job = join_all(&jobs, now);
    job->workers[2].n_waiting = 1;
    pass(&jobs, &now, 3 * LEASE);
    assert_int_equal(job->workers[2].state, WORKER_LIVE);
    assert_int_equal(jobs_count(job, WORKER_DROPPED), WORKERS - 1);
    job->workers[2].n_waiting = 0;
    jobs_fini(&jobs);
}

static void a_late_worker_is_told_where_the_job_is_and_joins_there(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    struct ask late = {3, 4, 1, 5, false, false}, beat = {3, 4, 1, 5, false, true};
    struct embd__error e;
    struct job *found;
    (void)state;
    struct job *job = join_all(&jobs, now);
    tell_ok(&jobs, 3, 5, now);
    for (uint64_t clock = 6; clock < 9; clock++) {
        pass(&jobs, &now, LEASE / 2);
        for (uint32_t w = 0; w < 3; w++)
            tell_ok(&jobs, w, clock, now);
    }
    tell_error(&jobs, &late, now, EMBD_LATE,
               "worker 3 of job 'job' is late: the job passed clock 5 "
               "without it and is at 8");
    assert_int_equal(tell(&jobs, &beat, now, &found, &e), EMBD_OK);
    assert_int_equal(job->workers[3].state, WORKER_DROPPED); /* it lives, and is not waited for */
    late.clock = 8;
    assert_int_equal(tell(&jobs, &late, now, &found, &e), EMBD_OK);
    assert_int_equal(job->workers[3].state, WORKER_LIVE);
    assert_int_equal(job->workers[3].from, 8);
    jobs_fini(&jobs);
}

static void a_sign_of_life_changes_no_clock_and_brings_back_who_is_not_late(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    struct ask beat = {3, 4, 1, 0, false, true};
    struct embd__error e;
    struct job *found;
    (void)state;
    struct job *job = join_all(&jobs, now);
    tell_ok(&jobs, 3, 5, now);
    for (uint32_t i = 0; i < 6; i++) {
        pass(&jobs, &now, LEASE / 2);
        assert_int_equal(tell(&jobs, &beat, now, &found, &e), EMBD_OK);
    }
    assert_int_equal(job->workers[3].clock, 5);
    assert_int_equal(jobs_count(job, WORKER_DROPPED), 3);
    pass(&jobs, &now, 2 * LEASE);
    assert_int_equal(job->workers[3].state, WORKER_DROPPED);
    assert_int_equal(tell(&jobs, &beat, now, &found, &e), EMBD_OK);
    assert_int_equal(job->workers[3].state, WORKER_LIVE);
    struct ask leave = {3, 4, 1, 6, true, false};
    assert_int_equal(tell(&jobs, &leave, now, &found, &e), EMBD_OK);
    assert_int_equal(tell(&jobs, &beat, now, &found, &e), EMBD_OK);
    assert_int_equal(job->workers[3].state, WORKER_LEFT);
    jobs_fini(&jobs);
}

static void who_has_left_and_says_so_again_has_left(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    struct embd__error e;
    struct job *found;
    (void)state;
    struct job *job = join_all(&jobs, now);
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct ask leave = {w, w + 1, 1, 6, true, false};
        for (uint32_t i = 0; i < 2; i++) /* the first answer is lost */
            assert_int_equal(tell(&jobs, &leave, now, &found, &e), EMBD_OK);
        assert_ptr_equal(found, job);
    }
    assert_int_equal(job->epoch, 1);
    assert_int_equal(jobs_count(job, WORKER_LEFT), WORKERS);
    jobs_fini(&jobs);
}

static void another_process_takes_the_place_and_the_one_before_is_refused(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    struct ask again = {2, 77, 0, 0, false, false}, before = {2, 3, 1, 4, false, true};
    struct embd__error e;
    struct job *found;
    (void)state;
    struct job *job = join_all(&jobs, now);
    for (uint32_t w = 0; w < WORKERS; w++)
        tell_ok(&jobs, w, 4, now);
    job->stepped = 5;
    tell_error(&jobs, &again, now, EMBD_LATE, "is at 5");
    assert_int_equal(job->workers[2].state, WORKER_DROPPED);
    tell_error(&jobs, &before, now, EMBD_INVALID, "another process");
    again.clock = 5;
    assert_int_equal(tell(&jobs, &again, now, &found, &e), EMBD_OK);
    assert_int_equal(found->epoch, 1);
    assert_int_equal(jobs_count(job, WORKER_LIVE), WORKERS);
    jobs_fini(&jobs);
}

static void note_replaced(void *arg, const struct job *job, uint32_t worker)
{
    (void)job;
    *(uint32_t *)arg |= 1u << worker;
}

static void a_job_that_is_ended_refuses_its_workers_and_begins_anew_at_once(void **state)
{
    uint32_t replaced = 0;
    struct jobs jobs = {.on_replaced = note_replaced, .arg = &replaced};
    uint64_t now = MS;
    (void)state;
    struct job *job = join_all(&jobs, now);
    jobs_end(&jobs, job);
    assert_int_equal(replaced, (1u << WORKERS) - 1);
    assert_int_equal(jobs_count(job, WORKER_LIVE), 0);
    tell_error(&jobs, &(struct ask){1, 2, 1, 5, false, false}, now, EMBD_INVALID, "checkpoint");
    tell_error(&jobs, &(struct ask){1, 9, 1, 5, false, false}, now, EMBD_INVALID, "checkpoint");
    job = tell_ok(&jobs, 2, 7, now); /* the same process, with a new clock */
    assert_int_equal(job->epoch, 2);
    assert_int_equal(job->workers[2].clock, 7);
    assert_int_equal(jobs_count(job, WORKER_ABSENT), WORKERS - 1);
    tell_error(&jobs, &(struct ask){1, 2, 1, 7, false, false}, now, EMBD_INVALID, "epoch 2");
    assert_int_equal(jobs_count(job, WORKER_ABSENT), WORKERS - 1);
    jobs_fini(&jobs);
}

static void a_job_that_is_started_again_begins_anew_without_the_processes_before(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    struct embd__error e;
    struct job *found;
    (void)state;
    struct job *job = join_all(&jobs, now);
    job->stepped = 9;
    pass(&jobs, &now, 2 * LEASE);
    struct ask first = {1, 55, 0, 0, false, false}, zombie = {0, 1, 1, 9, false, false};
    assert_int_equal(tell(&jobs, &first, now, &found, &e), EMBD_OK);
    assert_int_equal(found->epoch, 2);
    assert_int_equal(jobs_clock(found), 0);
    assert_int_equal(jobs_count(found, WORKER_ABSENT), WORKERS - 1);
    tell_error(&jobs, &zombie, now, EMBD_INVALID,
               "worker 0 belongs to epoch 1 of job 'job', which is over: epoch 2 has begun");
    jobs_fini(&jobs);
}

static void a_server_that_was_started_again_takes_workers_at_their_clocks(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    struct embd__error e;
    struct job *job = NULL;
    (void)state;
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct ask ask = {w, w + 1, 6, 20 + w % 2, false, w % 2 == 0};
        assert_int_equal(tell(&jobs, &ask, now, &job, &e), EMBD_OK);
    }
    assert_int_equal(job->epoch, 6);
    assert_int_equal(jobs_slowest(job), 20);
    jobs_fini(&jobs);
}

/* That one has not heard of the second epoch. */
static void a_worker_of_an_earlier_epoch_that_comes_first_behind_a_start_is_refused(void **state)
{
    uint32_t replaced = 0;
    struct jobs jobs = {.on_replaced = note_replaced, .arg = &replaced};
    uint64_t now = MS;
    struct job *job;
    struct embd__error e;
    (void)state;
    assert_int_equal(tell(&jobs, &(struct ask){2, 3, 1, 4, false, true}, now, &job, &e), EMBD_OK);
    assert_int_equal(job->epoch, 1);
    assert_int_equal(tell(&jobs, &(struct ask){0, 11, 2, 9, false, true}, now, &job, &e), EMBD_OK);
    assert_int_equal(job->epoch, 2);
    assert_int_equal(replaced, 1u << 2);
    tell_error(&jobs, &(struct ask){2, 3, 1, 4, false, false}, now, EMBD_INVALID, "epoch 2");
    assert_int_equal(tell(&jobs, &(struct ask){2, 13, 2, 9, false, true}, now, &job, &e), EMBD_OK);
    assert_int_equal(jobs_count(job, WORKER_LIVE), 2);
    assert_int_equal(job->workers[2].clock, 9);
    jobs_fini(&jobs);
}

/* Another worker was started again meanwhile, and comes first: neither is refused. */
static void workers_of_a_job_go_on_beside_one_that_is_new_behind_a_start(void **state)
{
    struct jobs jobs = {.on_replaced = NULL};
    uint64_t now = MS;
    struct job *job = tell_ok(&jobs, 1, 0, now);
    struct embd__error e;
    (void)state;
    assert_int_equal(tell(&jobs, &(struct ask){0, 11, 3, 9, false, true}, now, &job, &e), EMBD_OK);
    assert_int_equal(job->epoch, 3);
    assert_int_equal(tell(&jobs, &(struct ask){1, 2, 1, 0, false, true}, now, &job, &e), EMBD_OK);
    assert_int_equal(tell(&jobs, &(struct ask){2, 13, 3, 9, false, true}, now, &job, &e), EMBD_OK);
    assert_int_equal(jobs_count(job, WORKER_ABSENT), 1);
    jobs_fini(&jobs);
}

static void time_in_which_the_shard_slept_counts_for_no_lease(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    (void)state;
    jobs_look(&jobs, now);
    struct job *job = join_all(&jobs, now);
    now += 10 * LEASE;
    jobs_look(&jobs, now);
    assert_int_equal(jobs_count(job, WORKER_LIVE), WORKERS);
    pass(&jobs, &now, LEASE + 50 * MS);
    assert_int_equal(jobs_count(job, WORKER_DROPPED), WORKERS);
    jobs_fini(&jobs);
}

static void an_asynchronous_worker_never_comes_late(void **state)
{
    struct jobs jobs = {0};
    uint64_t now = 1000 * MS;
    struct embd__error e;
    struct job *job = join_all(&jobs, now);
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        pass(&jobs, &now, LEASE / 2);
        for (uint32_t w = 0; w < 3; w++)
            tell_ok(&jobs, w, 7 + i, now);
    }
    struct job_tick tick = {
        .claim = {"job", 3, WORKERS, LEASE, 4, 1}, .clock = 2, .asynchronous = true};
    e.status = EMBD_OK;
    assert_int_equal(jobs_tick(&jobs, &tick, now, &job, &e), EMBD_OK);
    assert_int_equal(jobs_slowest(job), 2);
    jobs_fini(&jobs);
}

/* ---- how many ---- */

static int tick_once(struct jobs *jobs, const char *name, uint32_t n_workers, uint64_t now,
                     uint64_t incarnation, struct embd__error *e)
{
    struct job *found;
    struct job_tick tick = {.claim = {name, 0, n_workers, LEASE, incarnation, 0}};
    *e = (struct embd__error){.status = EMBD_OK};
    return jobs_tick(jobs, &tick, now, &found, e);
}

static void jobs_have_a_limit_and_make_room_when_they_are_over(void **state)
{
    (void)state;
    struct jobs jobs = {0};
    struct embd__error e;
    uint64_t now = 1000 * MS;
    char name[] = "job-00";
    jobs_look(&jobs, now);
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        name[4] = (char)('0' + i / 10);
        name[5] = (char)('0' + i % 10);
        assert_int_equal(tick_once(&jobs, name, 2, now, 1, &e), EMBD_OK);
    }
    pass(&jobs, &now, LEASE);
    assert_int_equal(tick_once(&jobs, "more", 2, now, 1, &e), EMBD_FULL);
    assert_int_equal(tick_once(&jobs, "job-00", 3, now, 1, &e), EMBD_INVALID);
    pass(&jobs, &now, 50 * MS);
    assert_int_equal(tick_once(&jobs, "more", 2, now, 1, &e), EMBD_OK);
    assert_int_equal(tick_once(&jobs, "job-01", 3, now, 1, &e), EMBD_INVALID);
    assert_int_equal(tick_once(&jobs, "job-01", 3, now, 2, &e), EMBD_OK);
    jobs_fini(&jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_gives_what_the_model_says),
        cmocka_unit_test(nobody_runs_further_ahead_than_it_may),
        cmocka_unit_test(leases_that_run_out_together_begin_nothing_anew),
        cmocka_unit_test(a_worker_whose_push_waits_is_not_dropped),
        cmocka_unit_test(a_late_worker_is_told_where_the_job_is_and_joins_there),
        cmocka_unit_test(a_sign_of_life_changes_no_clock_and_brings_back_who_is_not_late),
        cmocka_unit_test(who_has_left_and_says_so_again_has_left),
        cmocka_unit_test(another_process_takes_the_place_and_the_one_before_is_refused),
        cmocka_unit_test(a_job_that_is_ended_refuses_its_workers_and_begins_anew_at_once),
        cmocka_unit_test(a_job_that_is_started_again_begins_anew_without_the_processes_before),
        cmocka_unit_test(a_server_that_was_started_again_takes_workers_at_their_clocks),
        cmocka_unit_test(a_worker_of_an_earlier_epoch_that_comes_first_behind_a_start_is_refused),
        cmocka_unit_test(workers_of_a_job_go_on_beside_one_that_is_new_behind_a_start),
        cmocka_unit_test(time_in_which_the_shard_slept_counts_for_no_lease),
        cmocka_unit_test(an_asynchronous_worker_never_comes_late),
        cmocka_unit_test(jobs_have_a_limit_and_make_room_when_they_are_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
