/* erase.c - rows that go: the parts are checked, answers on their way that still show them are
 * settled, then the store forgets the keys, part by part, before this returns. */
#include "server/shard/commit.h"
#include "server/shard/pull.h"
#include "server/shard/settle.h"
#include "server/shard/state.h"

static int prepare(struct call *call)
{
    struct shard_work *work = call->work;
    struct embd__error *e = &call->error;
    if (call_read_parts(call, PARTS_ERASE) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (settle(call->shard, call->request->session, work->parts[i].table, CHANGE_ROWS, e) !=
            EMBD_OK)
            return e->status;
    return commit_parts_now(call);
}

static int erase_part(struct call *call, struct work_part *part, struct erase_answer *answer)
{
    struct store_erase erase = {.in = pull_keys(&part->in), .statuses = part->statuses};
    struct table *table = part->table;
    if (call->shard->tables.ops->erase(table->store, &erase, &call->error) != EMBD_OK)
        return call->error.status;
    call->shard->counters.keys_erased += erase.n_erased;
    part->table = NULL;
    *answer = (struct erase_answer){
        .n_erased = erase.n_erased, .n_keys = part->in.n_keys, .statuses = part->statuses};
    return EMBD_OK;
}

int handle_erase(struct call *call)
{
    struct shard_work *work = call->work;
    struct erase_answer answers[LIMIT_PARTS];
    if (prepare(call) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (erase_part(call, &work->parts[i], &answers[i]) != EMBD_OK) {
            commit_withdraw(work, i > 0, &call->error);
            return call->error.status;
        }
    embd__msg_result(call->answer, call->reader.msgid);
    embd__erase_answer_write(call->answer, answers, work->n_parts, shard_told_map(work->shard));
    return EMBD_OK;
}
