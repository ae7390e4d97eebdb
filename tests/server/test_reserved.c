/* test_reserved.c - a push that finds no room or no memory is refused before its record is written;
 * where only its turn can tell, before anything of it is applied, and no start applies it; a store
 * that can do neither ends the process, and the next start applies all of it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/journal/journal.h"
#include "server/log/ending.h"
#include "tests/server/journaled.h"
#include "proto/route.h"
#include "server/service/state.h"

enum { N = 8 };

static const uint64_t keys[2 * N] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const float grads[2 * N * 4] = {1, 2, 3, 4, 5};

/* ---- a store that has no memory, in what it is asked ---- */

static uint64_t reserves_most = UINT64_MAX;    /* rows at once */
static uint64_t reserved;                      /* of the last call */
static uint32_t refused_prepare, refused_push; /* the n-th from now on; 0: none */

int __real_keys_reserve_more(struct store *store, uint64_t n, struct embd__error *e);
int __wrap_keys_reserve_more(struct store *store, uint64_t n, struct embd__error *e);

int __wrap_keys_reserve_more(struct store *store, uint64_t n, struct embd__error *e)
{
    reserved = n;
    if (n > reserves_most)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %llu rows", (unsigned long long)n);
    return __real_keys_reserve_more(store, n, e);
}

static int short_prepare(struct store *store, struct store_change *change, enum store_prepare what,
                         struct embd__error *e)
{
    if (what == STORE_PREPARE_OUTCOME && refused_prepare > 0 && --refused_prepare == 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to prepare");
    return store_host.prepare(store, change, what, e);
}

static void short_push(struct store *store, struct store_change *push, struct store_done *done)
{
    if (refused_push > 0 && --refused_push == 0)
        done->fn(done, embd__error_set(&done->error, EMBD_NO_MEMORY, "no memory to push"));
    else
        store_host.apply(store, push, done);
}

static struct store_ops short_ops(void)
{
    struct store_ops ops = store_host;
    ops.prepare = short_prepare;
    ops.apply = short_push;
    return ops;
}

/* ---- a shard with two journaled tables ---- */

struct world {
    struct rig rig;
    char dir[64];
    struct image a, b;
};

static void take(struct world *w)
{
    image_take(&w->rig, "a", &w->a);
    image_take(&w->rig, "b", &w->b);
}

static void drop_images(struct world *w)
{
    image_fini(&w->a);
    image_fini(&w->b);
}

static void check(struct world *w)
{
    image_check(&w->rig, "a", &w->a);
    image_check(&w->rig, "b", &w->b);
}

static struct exchange *ask_push(struct world *w, uint32_t n_parts, uint32_t first, uint32_t n)
{
    const struct part parts[] = {part_of("a", keys + first, n, grads),
                                 part_of("b", keys + first, n, grads)};
    return ask_parts(&w->rig, METHOD_PUSH, parts, n_parts);
}

static void push_ok(struct world *w, uint32_t n_parts, uint32_t first, uint32_t n)
{
    struct exchange *x = ask_push(w, n_parts, first, n);
    ask_ok(x);
    ask_free(x);
}

static void world_open(struct world *w, const struct store_ops *ops, uint64_t capacity)
{
    embd_schema a = kept_schema("a", EMBD_DURABILITY_DURABLE),
                b = kept_schema("b", EMBD_DURABILITY_DURABLE);
    a.capacity = b.capacity = capacity;
    a.on_full = b.on_full = capacity > 0 ? EMBD_ON_FULL_ERROR : EMBD_ON_FULL_GROW;
    scratch_new(w->dir);
    rig_open(&w->rig, ops, 0, 1, w->dir);
    create_table(&w->rig, &a);
    create_table(&w->rig, &b);
    push_ok(w, 2, 0, N);
    take(w);
}

static void start_anew(struct world *w)
{
    rig_close(&w->rig);
    rig_open(&w->rig, &store_host, 0, 1, w->dir);
}

static void world_close(struct world *w)
{
    rig_close(&w->rig);
    drop_images(w);
    scratch_remove(w->dir);
}

static bool has_withdrawn(const struct world *w)
{
    char path[128];
    snprintf(path, sizeof path, "%s/journal.0.withdrawn", w->dir);
    return access(path, F_OK) == 0;
}

/* ---- cases ---- */

static void what_finds_no_memory_for_rows_is_not_in_the_journal(void **state)
{
    const struct store_ops ops = short_ops();
    struct world w;
    (void)state;
    world_open(&w, &ops, 0);
    uint64_t bytes = figure(&w.rig, NULL, "journal_bytes");
    reserves_most = N - 1;
    for (uint32_t n_parts = 1; n_parts <= 2; n_parts++) {
        ask_error(ask_push(&w, n_parts, N, N), EMBD_NO_MEMORY, "no memory for 8 rows", NULL);
        assert_int_equal(figure(&w.rig, NULL, "journal_bytes"), bytes);
        check(&w);
    }
    /* Some of them have rows: it is enough for the others. */
    push_ok(&w, 2, 2, N);
    assert_int_equal(reserved, 2);
    reserves_most = 0;
    push_ok(&w, 1, 0, N);
    assert_true(figure(&w.rig, NULL, "journal_bytes") > bytes);
    reserves_most = UINT64_MAX;
    drop_images(&w);
    take(&w);
    assert_false(has_withdrawn(&w));
    start_anew(&w);
    check(&w);
    world_close(&w);
}

/* Whichever part it is, and whether or not others could be applied. */
static void what_finds_no_memory_in_its_turn_is_not_begun(void **state)
{
    const struct store_ops ops = short_ops();
    struct world w;
    (void)state;
    world_open(&w, &ops, 0);
    for (uint32_t at = 1; at <= 2; at++) {
        refused_prepare = at;
        ask_error(ask_push(&w, 2, N, N), EMBD_NO_MEMORY, "no memory to prepare", NULL);
        check(&w);
        assert_true(has_withdrawn(&w));
    }
    push_ok(&w, 2, 4, N);
    drop_images(&w);
    take(&w);
    start_anew(&w);
    check(&w);
    world_close(&w);
}

/* As a device, whose memory to work in nobody can promise. */
static void what_was_begun_ends_the_process_and_the_next_start_applies_it(void **state)
{
    const struct store_ops ops = short_ops();
    struct world w;
    int ended = 0;
    (void)state;
    world_open(&w, &ops, 0);
    refused_push = 1;
    ask_error(ask_push(&w, 2, N, N), EMBD_NO_MEMORY, "no memory to push", NULL);
    check(&w);
    rig_close(&w.rig);
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, 2);
        rig_open(&w.rig, &ops, 0, 1, w.dir);
        refused_push = 2;
        ask_send(ask_push(&w, 2, N, N));
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &ended, 0) == child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == EXIT_DISK);
    rig_open(&w.rig, &store_host, 0, 1, w.dir);
    assert_int_equal(figure(&w.rig, "a", "rows"), 2 * N);
    assert_int_equal(figure(&w.rig, "b", "rows"), 2 * N);
    world_close(&w);
}

static void a_full_table_s_pushes_are_refused_before_their_records(void **state)
{
    struct world w;
    (void)state;
    world_open(&w, &store_host, N + 2);
    uint64_t before = figure(&w.rig, NULL, "journal_bytes");
    ask_error(ask_push(&w, 1, N, N), EMBD_FULL, "capacity",
              NULL); /* the first one its turn tells */
    uint64_t after_one = figure(&w.rig, NULL, "journal_bytes");
    assert_true(after_one > before);
    for (int i = 0; i < 3; i++)
        ask_error(ask_push(&w, 1, N, N), EMBD_FULL, "capacity", NULL);
    ask_error(ask_push(&w, 2, N, N), EMBD_FULL, "part 0", NULL);
    assert_int_equal(figure(&w.rig, NULL, "journal_bytes"), after_one);
    check(&w);
    push_ok(&w, 1, 0, N); /* all have rows */
    push_ok(&w, 1, N, 2); /* and there is room for two */
    erase_one(&w.rig, "a");
    push_ok(&w, 1, N + 2, 1);
    drop_images(&w);
    take(&w);
    start_anew(&w);
    check(&w);
    world_close(&w);
}

/* What waits for its record keeps its memory, until it is applied or its connection goes. */
static void memory_is_reserved_beside_what_is_on_its_way(void **state)
{
    const struct store_ops ops = short_ops();
    struct world w;
    struct exchange *x[3];
    (void)state;
    world_open(&w, &ops, 0);
    rig_wake(&w.rig);
    for (int i = 0; i < 3; i++) {
        x[i] = ask(&w.rig, &w.rig.data, METHOD_PUSH);
        const struct part parts[] = {part_of("a", keys, 3, grads),
                                     part_of("b", keys + i, N, grads)};
        embd__push_write(&x[i]->out, parts, 2, NULL);
        ask_send(x[i]);
        assert_int_equal(reserved, (uint64_t)(i + 1) * N);
    }
    ask_free(x[2]); /* it is gone; its record is not */
    for (int i = 0; i < 2; i++) {
        ask_wait(x[i]);
        ask_ok(x[i]);
        ask_free(x[i]);
    }
    while (w.rig.shard->engine.n_recorded > 0)
        shard_collect(w.rig.shard);
    x[0] = ask(&w.rig, &w.rig.data, METHOD_PUSH);
    const struct part part = part_of("b", keys, 5, grads);
    embd__push_write(&x[0]->out, &part, 1, NULL);
    ask_send(x[0]);
    assert_int_equal(reserved, 5);
    ask_wait(x[0]);
    ask_free(x[0]);
    drop_images(&w);
    take(&w);
    start_anew(&w);
    check(&w);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_finds_no_memory_for_rows_is_not_in_the_journal),
        cmocka_unit_test(what_finds_no_memory_in_its_turn_is_not_begun),
        cmocka_unit_test(what_was_begun_ends_the_process_and_the_next_start_applies_it),
        cmocka_unit_test(a_full_table_s_pushes_are_refused_before_their_records),
        cmocka_unit_test(memory_is_reserved_beside_what_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
