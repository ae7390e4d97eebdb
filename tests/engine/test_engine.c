/* test_engine.c - random histories of operations on one engine, beside the models: no frame,
 * session, socket or file. After each operation its results are the models'; every so often, and
 * after refusals, so are all tables and streams. An engine that replays each record as it comes,
 * and one that replays all of them at the end, have the same tables, bit for bit.
 *
 * usage: test-engine STORE [--seconds N] [--seed S]: histories S, S + 1, ... for so long; of 0
 * seconds, S alone. STORE: host, deferred (calls of the host store return later), cuda. A seed that
 * failed fails again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/engine/compare.h"
#include "tests/engine/deeds.h"
#include "server/store/candidates.h"
#include "tests/server/deferred_store.h"

/* So many histories, however slow, come to everything. */
enum { DEEDS = 2000, DEEDS_BETWEEN = 64, HISTORIES_LEAST = 8 };

static const struct store_ops *store;
static double seconds = 10;
static uint64_t seed = 1;
static uint32_t n_deeds; /* of this history */

static const struct {
    void (*deed)(struct world *w);
    uint32_t weight;
} deeds[] = {
    {deed_push, 33},   {deed_pull, 22},   {deed_erase, 5},       {deed_round, 6},
    {deed_load, 4},    {deed_wrong, 3},   {deed_open_stream, 4}, {deed_set_streams, 1},
    {deed_create, 9},  {deed_drop, 1},    {deed_stage, 2},       {deed_load_staged, 2},
    {deed_replace, 1}, {deed_unstage, 1}, {deed_set, 3},         {deed_put, 3},
};
enum { N_DEEDS = sizeof deeds / sizeof deeds[0], WEIGHT = 100 };

static void do_one(struct world *w)
{
    uint32_t at = below(w, WEIGHT), i = 0;
    while (at >= deeds[i].weight)
        at -= deeds[i++].weight;
    deeds[i].deed(w);
}

static uint64_t refusals(void)
{
    return seen.full + seen.full_pulls + seen.full_loads + seen.full_puts + seen.gaps +
           seen.puts_refused + seen.forgotten + seen.mixed + seen.wrong + seen.unequal +
           seen.unset + seen.unfit;
}

static void replay_all(struct world *w)
{
    struct copy copy;
    copy_open(&copy);
    for (uint32_t i = 0; i < w->records.n; i++)
        copy_replay(&copy, &w->records, w->records.list[i]);
    compare_with_copy(w, &copy);
    copy_close(&copy);
}

static void run_history(void)
{
    static struct world w;
    world_open(&w, store, seed);
    for (n_deeds = 0; n_deeds < DEEDS; n_deeds++) {
        uint64_t n_refused = refusals();
        do_one(&w);
        if (n_deeds % DEEDS_BETWEEN == 0 || (refusals() > n_refused && one_in(&w, 8)))
            compare_with_models(&w);
        if (n_deeds % (4 * DEEDS_BETWEEN) == 0)
            compare_with_copy(&w, &w.copy);
    }
    compare_with_models(&w);
    compare_with_copy(&w, &w.copy);
    replay_all(&w);
    world_close(&w);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Histories come to everything they are meant for. */
static void check_seen(void)
{
    static const enum op_kind kinds[] = {
        OP_PUSH,  OP_ERASE,   OP_TABLE_CREATE, OP_TABLE_DROP, OP_LOAD, OP_STREAM_OPEN, OP_STREAMS,
        OP_STAGE, OP_UNSTAGE, OP_REPLACE,      OP_TABLE_SET,  OP_PUT,  OP_PREPARE};
    for (uint32_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        assert_true(seen.recorded[kinds[i]] > 0);
    assert_true(seen.full > 0 && seen.full_of_several > 0 && seen.full_pulls > 0 &&
                seen.full_loads > 0);
    assert_true(seen.gaps > 0 && seen.forgotten > 0 && seen.again > 0);
    assert_true(seen.again_in_turn > 0 && seen.gaps_in_turn > 0);
    assert_true(seen.evicted > 0 && seen.filtered > 0 && seen.rows_made > 0 && seen.joined > 0);
    assert_true(seen.erased > 0 && seen.gone > 0 && seen.steps_set > 0);
    assert_true(seen.rounds > 0 && seen.late > 0 && seen.withdrawn > 0 && seen.mixed > 0);
    assert_true(seen.put > 0 && seen.put_without_states > 0 && seen.full_puts > 0);
    assert_true(seen.put_steps > 0);
    assert_true(seen.puts_numbered > 0 && seen.puts_again > 0 && seen.puts_refused > 0);
    assert_true(seen.other_rates > 0);
    assert_true(seen.set > 0 && seen.unset > 0);
    assert_true(seen.swept > 0 || strcmp(store->name, "cuda") == 0);
    assert_true(seen.shrunk > 0 && seen.unshrunk > 0);
    assert_true(seen.wrong > 0 && seen.unequal > 0 && seen.replaced_streams > 0);
    assert_true(seen.replaced > 0 && seen.unfit > 0 && seen.unstaged > 0);
    assert_true(seen.rolled > 0 && seen.kept > 0 && seen.forgotten_with_tables > 0 &&
                seen.brought > 0);
    assert_true(seen.prepared > seen.not_made && seen.not_made > 0);
}

static void operations_are_the_models_and_replays_are_the_same(void **state)
{
    (void)state;
    double began = now();
    uint64_t first = seed, least = seconds > 0 ? HISTORIES_LEAST : 1;
    for (; seed - first < least || now() - began < seconds; seed++)
        run_history();
    double took = now() - began;
    if (seed - first >= HISTORIES_LEAST)
        check_seen();
    printf("%llu operations in %llu histories, %.2f million a minute\n",
           (unsigned long long)seen.operations, (unsigned long long)(seed - first),
           (double)seen.operations / took * 60 / 1e6);
}

static int usage(const char *why)
{
    fprintf(stderr, "%s\nusage: test-engine host|deferred|cuda [--seconds N] [--seed S]\n", why);
    return 2;
}

int main(int argc, char **argv)
{
    struct embd__error e = {.status = EMBD_OK};
    if (argc < 2 || argc % 2 != 0)
        return usage("which store?");
    for (int i = 2; i < argc; i += 2)
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else
            return usage(argv[i]);
    store_least_candidates = model_least_candidates = 6; /* tables forget theirs often */
    deferred_open();
    bool is_deferred = strcmp(argv[1], "deferred") == 0;
    store = is_deferred ? &store_deferred : store_find(argv[1], &e);
    if (store == NULL)
        return usage(e.text);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_the_models_and_replays_are_the_same),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    deeds_fini();
    if (n_failed != 0)
        fprintf(stderr, "again: %s %s --seed %llu --seconds 0; deed %u\n", argv[0], argv[1],
                (unsigned long long)seed, n_deeds);
    return n_failed;
}
