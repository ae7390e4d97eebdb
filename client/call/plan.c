/* plan.c - the choice between every occurrence (pooled) and each distinct key once (rows).
 *
 * Either plan is given a cost in bytes of the wire: what it moves, and what it computes as the
 * bytes that could have been moved meanwhile over loopback, the fastest wire there is (0.26 ns a
 * byte where this was measured):
 *   - a key looked up by the server: about 26 ns, or 100 bytes;
 *   - a key of a batch made distinct: about 16 ns, or 60 bytes, and a fifth of its row to be spread
 *     or added here.
 * So on slow wires, where bytes count more than assumed, the plan that moves fewer is chosen all
 * the same unless the two are close.
 *
 * How many keys of a batch are distinct is not known before they are counted, which costs about a
 * tenth of a pull. So a table remembers the ratio of batches of each size (by powers of two):
 * counted at the first batch, at every COUNT_EVERY-th after it, and for nothing whenever the rows
 * plan is taken. */
#include <math.h>

#include "client/call/call.h"

#define LOOKUP_BYTES   100.0
#define DISTINCT_BYTES 60.0
#define SPREAD_PART    0.2
#define COUNT_EVERY    64u

static struct plan_history *history_of(const struct work *work)
{
    uint32_t power = 31u - (uint32_t)__builtin_clz(work->n_keys | 1u);
    return &work->part->table->history[power];
}

void embd__plan_note(const struct work *work, uint32_t n_distinct)
{
    struct plan_history *history = history_of(work);
    if (work->n_keys == 0)
        return;
    history->distinct_ratio = (float)n_distinct / (float)work->n_keys;
    history->calls_left = COUNT_EVERY;
}

/* False: out of memory; then there is nothing to choose by. */
static bool count_distinct(struct embd_call *call, const struct work *work)
{
    int status;
    const uint16_t *slots = embd__key_slots(call, work, &status);
    uint64_t *keys = embd__arena_array(&call->arena, work->n_keys, sizeof *keys);
    uint16_t *slots_out = embd__arena_array(&call->arena, work->n_keys, sizeof *slots_out);
    uint32_t *numbers = embd__arena_array(&call->arena, work->n_keys, sizeof *numbers);
    if (status != EMBD_OK || keys == NULL || slots_out == NULL || numbers == NULL)
        return false;
    int64_t n = embd__distinct(&call->client->distinct, work->keys, slots, work->n_keys, numbers,
                               keys, slots_out);
    if (n >= 0)
        embd__plan_note(work, (uint32_t)n);
    return n >= 0;
}

/* Rows on the wire if every occurrence is requested: a row is sent once for each shard that has
 * keys of it. */
static double pooled_rows(const struct embd_call *call, const struct work *work)
{
    if (!work->is_pooled)
        return work->n_keys;
    double n_shards = work->schema->partition == EMBD_PARTITION_SLOT ? 1 : call->n_shards;
    double keys_per_row = (double)work->n_keys / work->n_rows;
    double shards_of_row = n_shards * (1 - pow(1 - 1 / n_shards, keys_per_row));
    return work->n_rows * fmin(shards_of_row, keys_per_row < 1 ? keys_per_row : n_shards);
}

bool embd__plan_is_rows(struct embd_call *call, const struct work *work)
{
    struct plan_history *history = history_of(work);
    if (history->calls_left == 0) {
        if (!count_distinct(call, work))
            return false;
    } else {
        history->calls_left--;
    }
    double n_keys = work->n_keys, row_bytes = (double)work->row_bytes,
           key_bytes = sizeof(uint64_t) + LOOKUP_BYTES;
    double pooled = n_keys * key_bytes + pooled_rows(call, work) * row_bytes;
    double rows = n_keys * (DISTINCT_BYTES + SPREAD_PART * row_bytes) +
                  n_keys * history->distinct_ratio * (key_bytes + row_bytes);
    return rows < pooled;
}
