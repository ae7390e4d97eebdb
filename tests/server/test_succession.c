/* test_succession.c - who goes on behind a promoted server without a base, and with what; and which
 * followers a process that ends counts, of shards that have finished and of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/follow/failover.h"
#include "server/journal/tail.h"
#include "server/service/succession.h"

enum { POSITION = 300, THEIRS = 11, OWN = 22 };

static struct succession begin(void)
{
    const struct tail_place place = {POSITION, THEIRS, 0};
    struct succession s;
    succession_begin(&s, &place, POSITION, OWN);
    return s;
}

static struct follow_ask ask_from(uint64_t start)
{
    return (struct follow_ask){
        .start = start, .position = POSITION, .chain = THEIRS, .file = 4, .at = 5};
}

static void a_follower_of_the_same_place_gets_the_other_chain_once(void **state)
{
    (void)state;
    struct succession s = begin();
    for (uint64_t start = 1; start <= SUCCESSION_MOST; start++) {
        struct follow_ask ask = ask_from(start), again = ask;
        assert_true(succession_take(&s, &ask));
        assert_int_equal(ask.chain, OWN);
        assert_int_equal(ask.position, POSITION);
        assert_int_equal(ask.file + ask.at, 0);
        assert_false(succession_take(&s, &again)); /* it has not understood */
        assert_int_equal(again.chain, THEIRS);
    }
    struct follow_ask ask = ask_from(99);
    assert_false(succession_take(&s, &ask)); /* they are too many to tell apart */
}

static void followers_without_a_number_are_told_apart_by_name(void **state)
{
    (void)state;
    struct succession s = begin();
    struct follow_ask one = ask_from(0), other = ask_from(0), again = ask_from(0);
    strcpy(one.name, "10.0.0.1:7700");
    strcpy(again.name, one.name);
    strcpy(other.name, "10.0.0.2:7700");
    assert_true(succession_take(&s, &one));
    assert_true(succession_take(&s, &other));
    assert_false(succession_take(&s, &again));
}

static void others_begin_anew(void **state)
{
    (void)state;
    struct follow_ask asks[5];
    for (int i = 0; i < 5; i++)
        asks[i] = ask_from(1);
    asks[0].chain++;
    asks[1].position--;
    asks[2].offset = 1;
    asks[3].is_base = true;
    asks[4].reads = true;
    for (int i = 0; i < 5; i++) {
        struct succession s = begin(), none = {.position = 0};
        const struct follow_ask before = asks[i];
        assert_false(succession_take(&s, &asks[i]));
        assert_memory_equal(&asks[i], &before, sizeof before);
        assert_false(succession_take(&none, &asks[i]));
    }
    const struct tail_place ahead = {POSITION + 1, THEIRS, 0}, within = {POSITION, THEIRS, 9};
    const struct tail_place *places[] = {&ahead, &within};
    for (int i = 0; i < 2; i++) {
        struct succession s;
        struct follow_ask ask = ask_from(1);
        succession_begin(&s, places[i], POSITION, OWN);
        assert_false(succession_take(&s, &ask));
    }
}

/* ---- a process that ends ---- */

static unsigned n_news;

static void on_news(void *arg)
{
    (void)arg;
    n_news++;
}

static void heirs_have_the_records_of_all_shards(void **state)
{
    (void)state;
    const struct failover_set both = {2, {7, 8}}, one = {1, {8}};
    struct failover *f = failover_new(2, 1, on_news, NULL);
    struct failover_set have;
    assert_non_null(f);
    failover_on_news(f, on_news, NULL);
    assert_false(failover_is_finished(f, &have));
    failover_finish(f, 1, &both);
    assert_false(failover_is_finished(f, &have));
    n_news = 0;
    failover_finish(f, 0, &one);
    assert_int_equal(n_news, 1);
    assert_true(failover_is_finished(f, &have));
    assert_int_equal(have.n, 1);
    assert_int_equal(have.ids[0], 8);
    failover_free(f);
}

/* Else the process would take those off the list that may take its name. */
static void followers_that_a_finished_shard_let_go_are_not_gone(void **state)
{
    (void)state;
    const struct failover_set both = {2, {7, 8}}, none = {0};
    struct failover *f = failover_new(2, 1, on_news, NULL);
    struct failover_set live, even;
    assert_non_null(f);
    failover_report(f, 0, 0, &both, &both);
    failover_report(f, 1, 0, &both, &both);
    failover_finish(f, 0, &both);
    failover_report(f, 0, 0, &none, &none);
    failover_look(f, &live, &even);
    assert_int_equal(live.n, 2);
    failover_report(f, 1, 0, &none, &none); /* of this shard they are */
    failover_look(f, &live, &even);
    assert_int_equal(live.n, 0);
    failover_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_follower_of_the_same_place_gets_the_other_chain_once),
        cmocka_unit_test(followers_without_a_number_are_told_apart_by_name),
        cmocka_unit_test(others_begin_anew),
        cmocka_unit_test(heirs_have_the_records_of_all_shards),
        cmocka_unit_test(followers_that_a_finished_shard_let_go_are_not_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
