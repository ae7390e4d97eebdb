/* handle_erase.c - rows that go: the parts are checked, answers on their way that still show them
 * are materialized, then the store forgets the keys, part by part. */
#include "server/service/state.h"

static void result(const struct shard_work *work, struct msg *m)
{
    struct erase_answer *answers = work->shard->answers.erase;
    const struct op *op = &work->op;
    for (uint32_t i = 0; i < op->n_parts; i++)
        answers[i] = (struct erase_answer){.n_erased = op->parts[i].n_erased,
                                           .n_keys = op->parts[i].in.n_keys,
                                           .statuses = op->parts[i].statuses};
    embd__erase_answer_write(m, answers, op->n_parts, shard_told_map(work->shard));
}

int handle_erase(struct call *call)
{
    return decode_parts(call, OP_ERASE) != EMBD_OK ? call->error.status : submit(call, result);
}
