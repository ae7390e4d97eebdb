/* golden_lag.c - a pull that says how far behind a replica may be, and its answer. As
 * golden_messages.c has the others. */
#include "tests/unit/golden_lag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint64_t keys[1] = {5};
static const float values[2] = {1, 2};

void build_pull_behind_request(struct msg *m)
{
    const struct part part = {.table = 0x12345678, .n_keys = 1, .n_rows = 1, .keys = keys};
    const struct push_extra extra = {.asks_lag = true, .max_behind_ms = 500};
    embd__msg_request(m, 41, METHOD_PULL);
    embd__parts_write_split(m, &part, 1, PARTS_PULL, &extra);
    embd__msg_end(m);
}

void read_pull_behind_request(struct reader *r)
{
    struct part parts[2];
    embd__parts_read(r, parts, 2, PARTS_PULL);
}

void check_pull_behind_request(struct reader *r)
{
    struct part parts[2];
    assert_int_equal(embd__parts_read(r, parts, 2, PARTS_PULL), 1);
    assert_int_equal(parts[0].keys[0], 5);
    assert_true(r->lag.is_told);
    assert_int_equal(r->lag.ms, 500);
}

void build_pull_behind_result(struct msg *m)
{
    const struct part_answer answer = {.n_rows = 1, .dim = 2, .n_keys = 1, .values = values};
    const struct lag lag = {.is_told = true, .ms = 12, .position = 34};
    embd__msg_result(m, 41);
    embd__pull_answer_write(m, &answer, 1, 0, &lag);
    embd__msg_end(m);
}

void read_pull_behind_result(struct reader *r)
{
    struct part_answer answers[2];
    embd__pull_answer_read(r, answers, 2);
}

void check_pull_behind_result(struct reader *r)
{
    struct part_answer answers[2];
    assert_int_equal(embd__pull_answer_read(r, answers, 2), 1);
    assert_memory_equal(answers[0].values, values, sizeof values);
    assert_true(r->lag.is_told);
    assert_int_equal(r->lag.ms, 12);
    assert_int_equal(r->lag.position, 34);
}
