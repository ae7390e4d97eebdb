/* golden_changes.c - a subscriber asks what changed in a table, and is answered with a part. As
 * golden_messages.c has the others. */
#include "tests/unit/golden_changes.h"

#include <string.h>

#include "proto/changes.h"

static const struct changes_ask the_ask = {.table = "items",
                                           .dtype = EMBD_DTYPE_F16,
                                           .id = 0x0123456789abcdef,
                                           .part = 2,
                                           .chain = 0x1122334455667788};

void build_changes_request(struct msg *m)
{
    embd__msg_request(m, 52, METHOD_CHANGES);
    embd__changes_ask_write(m, &the_ask);
    embd__msg_end(m);
}

void read_changes_request(struct reader *r)
{
    struct changes_ask ask;
    if (embd__changes_ask_read(r, &ask) == EMBD_OK &&
        (strcmp(ask.table, "items") != 0 || ask.dtype != EMBD_DTYPE_F16 || ask.from_now ||
         ask.ends || ask.id != the_ask.id || ask.part != 2 || ask.chain != the_ask.chain))
        embd__error_set(r->error, EMBD_INVALID, "another question than was written");
}

void build_changes_result(struct msg *m)
{
    static const uint64_t keys[2] = {7, 9}, gone_keys[1] = {8};
    static const uint16_t slots[2] = {0, 1}, rows[4] = {0x3c00, 0, 0, 0xbc00};
    struct changes_answer answer = {.id = the_ask.id,
                                    .part = 3,
                                    .before = the_ask.chain,
                                    .round = 2,
                                    .is_last = true,
                                    .step = 40,
                                    .dtype = EMBD_DTYPE_F16,
                                    .dim = 2,
                                    .n_rows = 2,
                                    .n_gone = 1,
                                    .has_slots = true,
                                    .keys = keys,
                                    .slots = slots,
                                    .rows = rows,
                                    .gone_keys = gone_keys,
                                    .gone_slots = slots};
    answer.chain = embd__changes_chain(&answer);
    embd__msg_result(m, 52);
    embd__changes_answer_write(m, &answer);
    embd__msg_end(m);
}

void read_changes_result(struct reader *r)
{
    struct changes_answer answer;
    if (embd__changes_answer_read(r, &answer) == EMBD_OK &&
        (answer.part != 3 || answer.n_rows != 2 || answer.keys[1] != 9 || answer.slots[1] != 1 ||
         answer.gone_keys[0] != 8 || answer.gone_slots[0] != 0 || !answer.is_last ||
         answer.is_first || answer.chain != embd__changes_chain(&answer)))
        embd__error_set(r->error, EMBD_INVALID, "another answer than was written");
}
