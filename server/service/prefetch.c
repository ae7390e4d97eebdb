/* prefetch.c - see prefetch.h.
 *
 * A client copies gradients into its socket more slowly than a shard reads them, so a shard that
 * only waits for the last byte wastes time that it needs afterwards. The maps, keys and offsets of
 * a push come before its gradients. The shard reads them as soon as the gradients begin, has the
 * store look the keys up, and checks gradients while they are in the cache.
 *
 * The happy path: shard_arriving() finds a push of one part, and the store looks its keys up; each
 * later call checks what has arrived since; handle_push() skips both. Nothing depends on it:
 * shard_handle() reads and checks the request again, and if the store has changed meanwhile it
 * looks the keys up again. Requests that cannot be prepared (several parts, errors, a hold, a
 * drain) are left to it. */
#include "server/service/prefetch.h"

#include "server/engine/check.h"
#include "proto/packed.h"
#include "server/service/state.h"

#define LEAST_BYTES (32u << 10) /* with fewer, the rest arrives before any work is done */

/* The only part of a push, or NULL. */
static const struct part *read_part(struct shard *shard, struct request *request)
{
    struct reader reader;
    struct embd__error ignored = {.status = EMBD_OK};
    if (embd__reader_init(&reader, request->frame, &shard->zone, &ignored) != EMBD_OK ||
        reader.method != METHOD_PUSH)
        return NULL;
    struct push_extra extra;
    int n = embd__push_read(&reader, shard->parts, 1, &extra);
    bool is_split_here = reader.placement == shard_split_by(shard); /* it may be later, else */
    return n == 1 && extra.round.n_workers == 0 && is_split_here ? &shard->parts[0] : NULL;
}

static void begin(struct shard *shard, struct request *request)
{
    struct prefetch *prefetch = &request->prefetch;
    struct embd__error ignored = {.status = EMBD_OK};
    struct table *table;
    const struct store_ops *ops = shard->engine.tables.ops;
    const struct part *part = read_part(shard, request);
    if (part == NULL || check_part(&shard->engine.tables, part, 0, &table, &ignored) != EMBD_OK)
        return;
    struct store_keys keys = op_keys(part);
    const struct routed_place place = shard_place(shard);
    if (routed_check(table, &keys, &place, "", &ignored) != EMBD_OK)
        return;
    prefetch->is_on = true;
    prefetch->any_value = table->schema.s.admit_nonfinite || embd__is_packed(part->dtype);
    prefetch->table = part->table;
    prefetch->partition = table->schema.s.partition;
    prefetch->grads = part->grads;
    prefetch->dtype = part->dtype;
    struct store_change push = {.in = keys};
    ops->prepare(table->store, &push, STORE_PREPARE_KEYS, &ignored);
    prefetch->ticket = push.ticket;
}

void shard_arriving(struct shard *shard, struct request *request, uint64_t arrived)
{
    struct prefetch *prefetch = &request->prefetch;
    const struct frame_scanner *frame = request->frame;
    if (!prefetch->is_tried) {
        prefetch->is_tried = true;
        if (frame->bin_bytes >= LEAST_BYTES && !hold_is_on(&shard->hold) && !shard->draining)
            begin(shard, request);
    }
    if (!prefetch->is_on || prefetch->any_value)
        return;
    size_t bytes = embd__dtype_bytes(prefetch->dtype);
    prefetch->n_finite += check_finite(prefetch->grads + prefetch->n_finite * bytes,
                                       prefetch->dtype, arrived / bytes - prefetch->n_finite);
}

void prefetch_forget(struct shard *shard, struct request *request)
{
    struct store_ticket *ticket = &request->prefetch.ticket;
    struct table *table = store_has_ticket(ticket)
                              ? tables_by_id(&shard->engine.tables, request->prefetch.table)
                              : NULL;
    if (table != NULL)
        shard->engine.tables.ops->cancel(table->store, ticket);
}
