/* parts.c - the parts of a pull, push or erase, from bytes to work: read, checked one by one,
 * copied. */
#include <stdio.h>

#include "server/shard/ahead.h"
#include "server/engine/check.h"
#include "server/shard/permit.h"
#include "server/shard/pull.h"
#include "server/shard/state.h"

/* Two parts of a push for one table would be two steps in one request, which no refusal could take
 * back. */
static int check_twice(const struct shard_work *work, struct embd__error *e)
{
    for (uint32_t i = 1; i < work->n_parts; i++)
        for (uint32_t j = 0; j < i; j++)
            if (work->parts[i].table == work->parts[j].table)
                return embd__error_set(e, EMBD_INVALID,
                                       "part %u table: '%s' is the table of part %u already", i,
                                       work->parts[i].table->schema.s.name, j);
    return EMBD_OK;
}

/* Of a push the keys may have been looked at while its gradients arrived. */
static int check_routes(struct call *call, const struct work_part *part, uint32_t i,
                        const struct routed_place *place)
{
    char what[CHECK_WHAT];
    struct store_keys in = pull_keys(&part->in);
    if (i == 0 && ahead_is_routed(call->request, part->table))
        return EMBD_OK;
    snprintf(what, sizeof what, "part %u", i);
    return routed_check(part->table, &in, place, what, &call->error);
}

static int check_all(struct call *call, enum parts_kind kind)
{
    struct shard_work *work = call->work;
    struct embd__error *e = &call->error;
    const struct routed_place place = shard_place(call->shard);
    for (uint32_t i = 0; i < work->n_parts; i++) {
        struct work_part *part = &work->parts[i];
        part->in = call->shard->parts[i];
        if (check_part(&call->shard->tables, &part->in, i, &part->table, e) != EMBD_OK)
            return e->status;
        if (permit_part(call, part->table, kind != PARTS_PULL) != EMBD_OK ||
            check_routes(call, part, i, &place) != EMBD_OK)
            return e->status;
        if (kind == PARTS_PUSH &&
            check_grads(part->table, &part->in, i, i == 0 ? ahead_n_finite(call->request) : 0, e) !=
                EMBD_OK)
            return e->status;
    }
    return kind == PARTS_PUSH ? check_twice(work, e) : EMBD_OK;
}

int call_read_parts(struct call *call, enum parts_kind kind)
{
    struct embd__error *e = &call->error;
    struct part *parts = call->shard->parts;
    int n = kind == PARTS_PUSH ? embd__push_read(&call->reader, parts, LIMIT_PARTS, &call->extra)
                               : embd__parts_read(&call->reader, parts, LIMIT_PARTS, kind);
    if (n < 0)
        return e->status;
    if (work_size_parts(call->work, (uint32_t)n, e) != EMBD_OK || check_all(call, kind) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < call->work->n_parts; i++)
        hot_see(&call->work->parts[i].table->hot, call->work->parts[i].in.keys,
                call->work->parts[i].in.n_keys);
    if (work_size_statuses(call->work, e) != EMBD_OK)
        return e->status;
    return call_reserve_answer(call, call->work->n_parts);
}
