/* golden_erase.c - the messages of an erase. As golden_messages.c has the others. */
#include "tests/unit/golden_erase.h"

#include "tests/unit/cmocka_all.h"

#define PART_TABLE 0x12345678u

static struct part parts[LIMIT_PARTS];
static const uint64_t erase_keys[2] = {5, 9};
static const uint16_t erase_slots[2] = {0, 3};

void build_erase_request(struct msg *m)
{
    const struct part part = {.table = PART_TABLE,
                              .n_keys = 2,
                              .n_rows = 2,
                              .want_status = true,
                              .keys = erase_keys,
                              .slots = erase_slots};
    embd__msg_request(m, 13, METHOD_ERASE);
    embd__parts_write(m, &part, 1, PARTS_ERASE);
    embd__msg_end(m);
}

void read_erase_request(struct reader *r)
{
    embd__parts_read(r, parts, LIMIT_PARTS, PARTS_ERASE);
}

void check_erase_request(struct reader *r)
{
    assert_int_equal(r->method, METHOD_ERASE);
    assert_int_equal(embd__parts_read(r, parts, LIMIT_PARTS, PARTS_ERASE), 1);
    assert_int_equal(parts[0].table, PART_TABLE);
    assert_int_equal(parts[0].n_rows, 2);
    assert_true(parts[0].want_status);
    assert_memory_equal(parts[0].keys, erase_keys, sizeof erase_keys);
    assert_memory_equal(parts[0].slots, erase_slots, sizeof erase_slots);
}

void build_erase_result(struct msg *m)
{
    static const uint8_t statuses[2] = {EMBD_KEY_EVICTED, EMBD_KEY_MISSING};
    const struct erase_answer answer = {.n_erased = 1, .n_keys = 2, .statuses = statuses};
    embd__msg_result(m, 13);
    embd__erase_answer_write(m, &answer, 1, 0);
    embd__msg_end(m);
}

void read_erase_result(struct reader *r)
{
    static struct erase_answer answers[LIMIT_PARTS];
    embd__erase_answer_read(r, answers, LIMIT_PARTS);
}

void check_erase_result(struct reader *r)
{
    struct erase_answer answer;
    assert_int_equal(embd__erase_answer_read(r, &answer, 1), 1);
    assert_int_equal(answer.n_erased, 1);
    assert_int_equal(answer.n_keys, 2);
    assert_int_equal(answer.statuses[0], EMBD_KEY_EVICTED);
    assert_int_equal(answer.statuses[1], EMBD_KEY_MISSING);
}
