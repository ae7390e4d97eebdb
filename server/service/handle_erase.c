/* handle_erase.c - rows that go: the parts are checked, answers on their way that still show them
 * are materialized, then the store forgets the keys, part by part, before this returns. */
#include "server/service/state.h"

int handle_erase(struct call *call)
{
    struct erase_answer answers[LIMIT_PARTS];
    const struct op *op = &call->work->op;
    if (decode_parts(call, OP_ERASE) != EMBD_OK || submit_now(call) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < op->n_parts; i++)
        answers[i] = (struct erase_answer){.n_erased = op->parts[i].n_erased,
                                           .n_keys = op->parts[i].in.n_keys,
                                           .statuses = op->parts[i].statuses};
    embd__msg_result(call->answer, call->reader.msgid);
    embd__erase_answer_write(call->answer, answers, op->n_parts, shard_told_map(call->shard));
    return EMBD_OK;
}
