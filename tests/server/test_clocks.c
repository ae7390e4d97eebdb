/* test_clocks.c - clocks of workers against a model that remembers every tick ever taken, over
 * thousands of made-up histories: workers that run ahead, fall silent, come back, leave, and ticks
 * that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clocks.h"

#define WORKERS 5u
#define LEASE   100u
#define STEPS   400u

/* ---- the model: the last tick of each worker, and since when the job runs ---- */

struct model {
    struct {
        uint64_t clock, at;
        bool seen, left;
    } last[WORKERS];
};

static bool model_is_live(const struct model *m, uint32_t w, uint64_t now)
{
    return m->last[w].seen && !m->last[w].left && now <= m->last[w].at + LEASE;
}

static uint32_t model_n_live(const struct model *m, uint64_t now)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < WORKERS; w++)
        n += model_is_live(m, w, now);
    return n;
}

static uint64_t model_slowest(const struct model *m, uint64_t now)
{
    uint64_t least = UINT64_MAX, greatest = 0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (!m->last[w].seen)
            return 0;
        if (model_is_live(m, w, now) && m->last[w].clock < least)
            least = m->last[w].clock;
        if (m->last[w].clock > greatest)
            greatest = m->last[w].clock;
    }
    return model_n_live(m, now) > 0 ? least : greatest;
}

static uint32_t pick(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* ---- a history ---- */

static void take_one(struct clocks *clocks, struct model *m, uint64_t *seed, uint64_t now)
{
    struct embd__error e = {.status = EMBD_OK};
    const struct clock_job *job = NULL;
    uint32_t w = pick(seed, WORKERS);
    if (model_n_live(m, now) == 0)
        *m = (struct model){0};
    uint64_t clock = m->last[w].clock + pick(seed, 3);
    bool falls = clock > 0 && pick(seed, 8) == 0;
    clock -= falls ? 1 + pick(seed, (uint32_t)clock) : 0;
    struct clock_tick tick = {"job", w, WORKERS, clock, LEASE, pick(seed, 20) == 0};
    int status = clocks_tick(clocks, &tick, now, &job, &e);
    if (model_is_live(m, w, now) && clock < m->last[w].clock) {
        assert_int_equal(status, EMBD_INVALID);
        assert_non_null(strstr(e.text, "falls"));
        return;
    }
    assert_int_equal(status, EMBD_OK);
    m->last[w].clock = clock;
    m->last[w].at = now;
    m->last[w].seen = true;
    m->last[w].left = tick.leave;
    assert_int_equal(clocks_slowest(job), model_slowest(m, now));
    assert_int_equal(clocks_count(job, WORKER_LIVE), model_n_live(m, now));
}

static void every_history_gives_what_its_last_ticks_say(void **state)
{
    (void)state;
    for (uint64_t history = 1; history <= 200; history++) {
        struct clocks clocks = {0};
        struct model m = {0};
        uint64_t seed = history, now = 1;
        for (uint32_t i = 0; i < STEPS; i++) {
            now += pick(&seed, 12) == 0 ? pick(&seed, 3 * LEASE) : pick(&seed, 30);
            take_one(&clocks, &m, &seed, now);
        }
        clocks_fini(&clocks);
    }
}

/* Whatever the order in which workers run, none that asks before it goes on is further ahead of a
 * live one than the staleness it asked for. */
static void nobody_runs_further_ahead_than_it_may(void **state)
{
    (void)state;
    for (uint64_t staleness = 0; staleness < 4; staleness++) {
        struct clocks clocks = {0};
        uint64_t seed = staleness + 1, at[WORKERS] = {0}, steps = 0;
        for (uint32_t i = 0; i < 5000; i++) {
            struct embd__error e = {.status = EMBD_OK};
            const struct clock_job *job;
            uint32_t w = pick(&seed, pick(&seed, WORKERS) + 1); /* the first are the fastest */
            struct clock_tick tick = {"job", w, WORKERS, at[w], UINT32_MAX, false};
            assert_int_equal(clocks_tick(&clocks, &tick, i, &job, &e), EMBD_OK);
            if (clocks_slowest(job) + staleness < at[w])
                continue; /* waits */
            at[w]++;
            steps++;
            for (uint32_t other = 0; other < WORKERS; other++)
                assert_true(at[w] <= at[other] + staleness + 1);
        }
        assert_true(steps > 100);
        clocks_fini(&clocks);
    }
}

static int tick_once(struct clocks *clocks, const char *job, uint32_t n_workers, uint64_t now,
                     struct embd__error *e)
{
    const struct clock_job *found;
    struct clock_tick tick = {job, 0, n_workers, 0, LEASE, false};
    *e = (struct embd__error){.status = EMBD_OK};
    return clocks_tick(clocks, &tick, now, &found, e);
}

static void jobs_have_a_limit_and_make_room_when_they_are_over(void **state)
{
    (void)state;
    struct clocks clocks = {0};
    struct embd__error e;
    char name[] = "job-00";
    for (uint32_t i = 0; i < CLOCKS_JOBS; i++) {
        name[4] = (char)('0' + i / 10);
        name[5] = (char)('0' + i % 10);
        assert_int_equal(tick_once(&clocks, name, 2, 0, &e), EMBD_OK);
    }
    assert_int_equal(tick_once(&clocks, "more", 2, LEASE, &e), EMBD_FULL);
    assert_int_equal(tick_once(&clocks, "job-00", 3, LEASE, &e), EMBD_INVALID);
    assert_int_equal(tick_once(&clocks, "more", 2, LEASE + 1, &e), EMBD_OK);
    assert_int_equal(tick_once(&clocks, "job-00", 3, LEASE + 1, &e), EMBD_OK);
    clocks_fini(&clocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_gives_what_its_last_ticks_say),
        cmocka_unit_test(nobody_runs_further_ahead_than_it_may),
        cmocka_unit_test(jobs_have_a_limit_and_make_room_when_they_are_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
