/* Memory for frames: the budget is never passed, also with several threads, and buffers come back.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "server/net/frame_memory.h"

enum { MB = 1 << 20 };

static void the_budget_is_never_passed(void **state)
{
    (void)state;
    struct quota budget = {.limit = 100};
    assert_true(quota_take_answer(&budget, 60));
    assert_false(quota_take_answer(&budget, 41));
    assert_false(quota_take_answer(&budget, UINT64_MAX));
    assert_true(quota_take_answer(&budget, 40));
    assert_false(quota_take_answer(&budget, 1));
    quota_give(&budget, 100);
    assert_int_equal(budget.used, 0);
}

static void what_is_received_leaves_a_part_to_answers_and_connections(void **state)
{
    (void)state;
    struct quota budget = {.limit = 320};
    assert_false(quota_take(&budget, 311));
    assert_true(quota_take(&budget, 310));
    assert_false(quota_take(&budget, 1));
    assert_true(quota_take_answer(&budget, 4));
    assert_true(quota_take_connection(&budget, 6));
    assert_false(quota_take_connection(&budget, 1));
    assert_false(quota_take_answer(&budget, 1));
    quota_give_connection(&budget, 6);
    quota_give(&budget, 314);
    assert_int_equal(budget.used, 0);
    assert_int_equal(budget.connections, 0);
}

static void connections_have_half_at_most(void **state)
{
    (void)state;
    struct quota budget = {.limit = 320};
    assert_true(quota_take_connection(&budget, 160));
    assert_false(quota_take_connection(&budget, 1));
    assert_int_equal(budget.used, 160);
    assert_true(quota_take(&budget, 150));
    quota_give_connection(&budget, 60);
    assert_true(quota_take_connection(&budget, 60));
}

static void large_pushes_have_half_at_most(void **state)
{
    (void)state;
    struct quota budget = {.limit = 320};
    assert_true(quota_take_large(&budget, 100));
    assert_true(quota_take_large(&budget, 60));
    assert_false(quota_take_large(&budget, 1));
    assert_int_equal(quota_large(&budget), 160);
    assert_int_equal(budget.used, 0); /* frames are charged for themselves */
    quota_give_large(&budget, 60);
    assert_true(quota_take_large(&budget, 60));
    quota_give_large(&budget, 160);
    quota_give_large(&budget, 0);
    assert_int_equal(budget.large, 0);
}

static void a_charge_covers_its_bytes_and_a_quarter_more_at_most(void **state)
{
    (void)state;
    assert_int_equal(frame_pool_charge(1), 4096);
    for (uint64_t bytes = 4096; bytes < LIMIT_PUSH_BYTES; bytes += bytes / 7) {
        uint64_t charge = frame_pool_charge(bytes);
        assert_true(charge >= bytes && charge <= bytes + bytes / 4 + 1024);
    }
    assert_int_equal(frame_pool_charge(LIMIT_FRAME_BYTES), LIMIT_FRAME_BYTES);
    assert_int_equal(frame_pool_charge(LIMIT_PUSH_BYTES), LIMIT_PUSH_BYTES);
}

static void a_refusal_names_value_use_and_limit(void **state)
{
    (void)state;
    struct quota budget = {.limit = 8 * MB};
    struct frame_pool pool;
    struct embd__error e = {0};
    frame_pool_init(&pool, &store_host, &budget);
    void *first = frame_pool_take(&pool, 6 * MB, &e);
    assert_non_null(first);
    assert_null(frame_pool_take(&pool, 3 * MB, &e));
    assert_int_equal(e.status, EMBD_BUSY);
    assert_non_null(strstr(e.text, "3145728"));
    assert_non_null(strstr(e.text, "6291456"));
    assert_non_null(strstr(e.text, "8388608"));
    frame_pool_give(&pool, first, 6 * MB);
    assert_int_equal(budget.used, 0);
    frame_pool_fini(&pool);
}

static void the_last_buffer_given_is_the_next_one_taken(void **state)
{
    (void)state;
    struct quota budget = {.limit = 1024ull * MB};
    struct frame_pool pool;
    struct embd__error e = {0};
    frame_pool_init(&pool, &store_host, &budget);
    void *a = frame_pool_take(&pool, MB, &e), *b = frame_pool_take(&pool, MB, &e);
    assert_int_equal((uintptr_t)a % 64, 0);
    frame_pool_give(&pool, a, MB);
    frame_pool_give(&pool, b, MB);
    assert_int_equal(pool.idle_bytes, 2 * MB);
    assert_ptr_equal(frame_pool_take(&pool, MB - 5, &e), b);
    frame_pool_give(&pool, b, MB - 5);
    frame_pool_trim(&pool);
    assert_int_equal(pool.idle_bytes, 0);
    frame_pool_fini(&pool);
}

static void idle_memory_stays_within_its_share(void **state)
{
    (void)state;
    struct quota budget = {.limit = 64 * MB};
    struct frame_pool pool;
    struct embd__error e = {0};
    void *taken[32];
    frame_pool_init(&pool, &store_host, &budget);
    for (int i = 0; i < 32; i++)
        assert_non_null(taken[i] = frame_pool_take(&pool, MB, &e));
    for (int i = 0; i < 32; i++) {
        frame_pool_give(&pool, taken[i], MB);
        assert_true(pool.idle_bytes <= 8 * MB);
    }
    frame_pool_fini(&pool);
}

static void *take_and_give(void *arg)
{
    struct quota *budget = arg;
    for (int i = 0; i < 100000; i++)
        if (quota_take(budget, 7)) {
            if (budget->used > budget->limit)
                return arg;
            quota_give(budget, 7);
        }
    return NULL;
}

static void threads_share_a_budget(void **state)
{
    (void)state;
    struct quota budget = {.limit = 15};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, take_and_give, &budget);
    for (int i = 0; i < 4; i++) {
        void *passed;
        pthread_join(threads[i], &passed);
        assert_null(passed);
    }
    assert_int_equal(budget.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_budget_is_never_passed),
        cmocka_unit_test(what_is_received_leaves_a_part_to_answers_and_connections),
        cmocka_unit_test(connections_have_half_at_most),
        cmocka_unit_test(large_pushes_have_half_at_most),
        cmocka_unit_test(a_charge_covers_its_bytes_and_a_quarter_more_at_most),
        cmocka_unit_test(a_refusal_names_value_use_and_limit),
        cmocka_unit_test(the_last_buffer_given_is_the_next_one_taken),
        cmocka_unit_test(idle_memory_stays_within_its_share),
        cmocka_unit_test(threads_share_a_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
