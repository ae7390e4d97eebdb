/* test_early_pulls.c - large pulls of a shard on the cuda store, which are answered while the
 * device makes them. What can still be refused is refused, and never cut; a device that fails cuts
 * it; who goes meanwhile leaves nothing. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/route.h"
#include "proto/schema.h"
#include "tests/cuda/stand_in_device.h"

enum { N = 2048, DIM = 256 }; /* 2 MiB of f32 */

struct world {
    struct rig rig;
    struct part parts[2];
    uint64_t keys[N];
};

static uint32_t n_told; /* times that more of an answer was there */

static void on_more(struct request *request)
{
    assert_int_equal(request->state, REQUEST_ANSWERED);
    n_told++;
}

static void begin(struct world *w)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "rows");
    schema.dim = DIM;
    schema.durability = EMBD_DURABILITY_SNAPSHOT;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    rig_open(&w->rig, &store_cuda, 0, 1, NULL);
    create_table(&w->rig, &schema);
    for (uint32_t i = 0; i < N; i++)
        w->keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < 2; i++)
        w->parts[i] = (struct part){.table = embd__table_id("rows"),
                                    .n_keys = N,
                                    .n_rows = N,
                                    .keys = w->keys,
                                    .dtype = i == 0 ? EMBD_DTYPE_F32 : EMBD_DTYPE_F16,
                                    .want_status = i == 0};
}

static void end(struct world *w)
{
    rig_close(&w->rig);
    assert_int_equal(stand_in_bytes, 0);
}

static struct exchange *begin_pull(struct world *w, uint32_t n_parts)
{
    struct exchange *x = ask_parts(&w->rig, METHOD_PULL, w->parts, n_parts);
    x->request.on_more = on_more;
    n_told = 0;
    ask_send(x);
    return x;
}

static void collect_all(struct world *w)
{
    while (shard_collect(w->rig.shard))
        ;
}

/* Bins of two parts: values, statuses, values. */
static void test_what_is_made_rises(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    struct exchange *x = begin_pull(&w, 2);
    assert_false(x->is_answered);
    ask_wait(x);
    assert_true(x->request.is_partial && x->request.has_answer);
    uint64_t before = shard_made(&x->request, 0);
    assert_true(before > 0 && before < N * DIM * 4 && before % (DIM * 4) == 0);
    assert_int_equal(n_told, 0);
    assert_int_equal(shard_made(&x->request, 1), 0);
    while (x->request.is_partial && shard_made(&x->request, 0) < N * DIM * 4)
        shard_collect(w.rig.shard);
    assert_true(n_told > 0 && x->request.is_partial);
    assert_int_equal(shard_made(&x->request, 1), N);
    assert_true(shard_made(&x->request, 2) < N * DIM * 2);
    collect_all(&w);
    assert_false(x->request.is_partial);
    ask_read(x);
    assert_int_equal(x->reader.answer_status, EMBD_OK);
    ask_free(x);
    assert_int_equal(figure(&w.rig, NULL, "keys_pulled"), 2 * N);
    end(&w);
}

static void test_small_answers_and_those_who_do_not_ask_get_them_whole(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    struct exchange *x = ask_parts(&w.rig, METHOD_PULL, w.parts, 2);
    ask_send(x);
    ask_wait(x);
    assert_false(x->request.is_partial);
    ask_free(x);
    x = begin_pull(&w, 2);
    ask_free(x);
    w.parts[0].n_keys = w.parts[0].n_rows = N - 1;
    x = begin_pull(&w, 1);
    ask_wait(x);
    assert_false(x->request.is_partial);
    assert_int_equal(n_told, 0);
    ask_free(x);
    end(&w);
}

/* Wherever there is none: in the second part, too, while the first is being made. */
static void test_a_lack_of_memory_is_refused_before_anything_is_sent(void **state)
{
    (void)state;
    struct world w;
    uint32_t n_refused = 0;
    begin(&w);
    for (bool is_refused = true; is_refused; n_refused += is_refused) {
        stand_in_calls_left = n_refused;
        struct exchange *x = begin_pull(&w, 2);
        ask_wait(x);
        collect_all(&w);
        stand_in_calls_left = UINT64_MAX;
        assert_true(x->request.has_answer && !x->request.is_partial);
        ask_read(x);
        is_refused = x->reader.answer_status != EMBD_OK;
        if (is_refused)
            assert_int_equal(x->reader.answer_status, EMBD_NO_MEMORY);
        ask_free(x);
    }
    assert_true(n_refused > 0);
    end(&w);
}

static void test_a_device_that_fails_cuts_the_answer(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    struct exchange *x = begin_pull(&w, 1);
    ask_wait(x);
    assert_true(x->request.is_partial);
    uint64_t made = shard_made(&x->request, 0);
    stand_in_failure = 700;
    collect_all(&w);
    stand_in_failure = 0;
    assert_true(!x->request.has_answer && !x->request.is_partial && n_told > 0);
    assert_true(made > 0);
    ask_free(x);
    assert_int_equal(figure(&w.rig, NULL, "keys_pulled"), 0);
    end(&w);
}

/* At any moment. */
static void test_who_goes_meanwhile_leaves_nothing(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    for (uint32_t n = 0; n < 12; n++) {
        struct exchange *x = begin_pull(&w, 2);
        for (uint32_t i = 0; i < n; i++)
            shard_collect(w.rig.shard);
        n_told = 0;
        ask_free(x);
        collect_all(&w);
        assert_int_equal(n_told, 0);
    }
    struct exchange *x = begin_pull(&w, 2);
    ask_wait(x);
    collect_all(&w);
    ask_read(x);
    assert_int_equal(x->reader.answer_status, EMBD_OK);
    ask_free(x);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_made_rises),
        cmocka_unit_test(test_small_answers_and_those_who_do_not_ask_get_them_whole),
        cmocka_unit_test(test_a_lack_of_memory_is_refused_before_anything_is_sent),
        cmocka_unit_test(test_a_device_that_fails_cuts_the_answer),
        cmocka_unit_test(test_who_goes_meanwhile_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
