/* check.c - a caller's part becomes work: nothing after this looks at the arguments with suspicion.
 * Every error names the part, the position and the value. */
#include <math.h>

#include "client/call/call.h"
#include "proto/packed.h"

static int invalid(struct embd_call *call, uint32_t part, const char *what, uint64_t at,
                   uint64_t value, const char *expected, uint64_t limit)
{
    return embd__error_set(&call->client->error, EMBD_INVALID, "part %u: %s[%llu] is %llu; %s %llu",
                           part, what, (unsigned long long)at, (unsigned long long)value, expected,
                           (unsigned long long)limit);
}

static int check_pointers(struct embd_call *call, const embd_part *part, uint32_t index)
{
    struct embd__error *e = &call->client->error;
    if (part->table == NULL || part->table->client != call->client)
        return embd__error_set(e, EMBD_INVALID, "part %u: table is %s", index,
                               part->table == NULL ? "NULL" : "of another client");
    if (part->n_keys > 0 && part->keys == NULL)
        return embd__error_set(e, EMBD_INVALID, "part %u: keys is NULL", index);
    if (part->n_keys > INT32_MAX || (part->offsets != NULL && part->n_rows > INT32_MAX))
        return embd__error_set(
            e, EMBD_TOO_LARGE, "part %u: %llu keys in %llu rows; the limit is %d", index,
            (unsigned long long)part->n_keys, (unsigned long long)part->n_rows, INT32_MAX);
    return EMBD_OK;
}

static int find_bad_offset(struct embd_call *call, const embd_part *part, uint32_t index)
{
    const uint64_t *offsets = part->offsets;
    if (offsets[0] != 0)
        return invalid(call, index, "offsets", 0, offsets[0], "it must be", 0);
    for (uint64_t r = 0; r < part->n_rows; r++)
        if (offsets[r + 1] < offsets[r])
            return invalid(call, index, "offsets", r + 1, offsets[r + 1], "the one before is",
                           offsets[r]);
    return invalid(call, index, "offsets", part->n_rows, offsets[part->n_rows],
                   "it must be n_keys,", part->n_keys);
}

static int check_offsets(struct embd_call *call, const embd_part *part, uint32_t index)
{
    const uint64_t *offsets = part->offsets;
    uint32_t slots = part->table->schema.s.slots;
    if (offsets == NULL)
        return EMBD_OK;
    if (part->n_rows % slots != 0)
        return embd__error_set(
            &call->client->error, EMBD_INVALID,
            "part %u: n_rows is %llu, which is not a multiple of the %u slots of table %s", index,
            (unsigned long long)part->n_rows, slots, part->table->schema.s.name);
    uint64_t falls = 0;
    for (uint64_t r = 0; r < part->n_rows; r++)
        falls |= offsets[r + 1] < offsets[r];
    if (falls || offsets[0] != 0 || offsets[part->n_rows] != part->n_keys)
        return find_bad_offset(call, part, index);
    return EMBD_OK;
}

static int check_weights(struct embd_call *call, const embd_part *part, uint32_t index)
{
    const uint32_t exponent = 0x7f800000u;
    uint32_t bad = 0;
    if (part->weights == NULL)
        return EMBD_OK;
    for (uint64_t i = 0; i < part->n_keys; i++)
        bad |= (embd__f32_bits(part->weights[i]) & exponent) == exponent;
    if (!bad)
        return EMBD_OK;
    uint64_t i = 0;
    while (isfinite(part->weights[i]))
        i++;
    return embd__error_set(&call->client->error, EMBD_INVALID,
                           "part %u: weights[%llu] is %g; it must be finite", index,
                           (unsigned long long)i, (double)part->weights[i]);
}

static bool is_score(float x)
{
    return isfinite(x) || x == -INFINITY;
}

static int check_scores(struct embd_call *call, struct work *work)
{
    const embd_part *part = work->part;
    const embd_schema *s = work->schema;
    uint64_t i = 0;
    if (call->kind != PARTS_PUSH || part->scores == NULL)
        return EMBD_OK;
    if (s->on_full != EMBD_ON_FULL_EVICT_SCORE)
        return embd__error_set(&call->client->error, EMBD_INVALID,
                               "part %u: scores are given, but table '%s' has on_full '%s'; "
                               "expected NULL, or a table with on_full 'evict_score'",
                               work->index, s->name, embd_on_full_name(s->on_full));
    while (i < part->n_keys && is_score(part->scores[i]))
        i++;
    if (i < part->n_keys)
        return embd__error_set(&call->client->error, EMBD_INVALID,
                               "part %u: scores[%llu] is %g; it must be finite, or -inf: the key "
                               "gets no score",
                               work->index, (unsigned long long)i, (double)part->scores[i]);
    work->scores = part->scores;
    return EMBD_OK;
}

static int check_lr(struct embd_call *call, const embd_part *part, uint32_t index)
{
    if (call->kind != PARTS_PUSH || part->lr == 0.0f || (part->lr > 0.0f && isfinite(part->lr)))
        return EMBD_OK;
    return embd__error_set(&call->client->error, EMBD_INVALID,
                           "part %u: lr is %g; it must be a finite number above 0, or 0: the "
                           "table's",
                           index, (double)part->lr);
}

/* Keys with their slot's start added, each checked against its slot's size. */
static int add_slot_starts(struct embd_call *call, struct work *work)
{
    const embd_part *part = work->part;
    const uint64_t *sizes = part->table->schema.sizes, *starts = part->table->schema.slot_starts;
    uint64_t *stored = embd__arena_array(&call->arena, part->n_keys, sizeof *stored);
    if (stored == NULL)
        return embd__call_no_memory(call);
    uint32_t slot = 0;
    for (uint64_t r = 0; r < work->n_batch_rows; r++) {
        uint64_t begin = work->offsets == NULL ? r : work->offsets[r];
        uint64_t end = work->offsets == NULL ? r + 1 : work->offsets[r + 1];
        for (uint64_t i = begin; i < end; i++) {
            if (part->keys[i] >= sizes[slot])
                return invalid(call, work->index, "keys", i, part->keys[i], "its slot's size is",
                               sizes[slot]);
            stored[i] = part->keys[i] + starts[slot];
        }
        slot = slot + 1 == work->schema->slots ? 0 : slot + 1;
    }
    work->keys = stored;
    return EMBD_OK;
}

static int identity_offsets(struct embd_call *call, struct work *work)
{
    uint64_t *offsets =
        embd__arena_array(&call->arena, (uint64_t)work->n_keys + 1, sizeof *offsets);
    if (offsets == NULL)
        return embd__call_no_memory(call);
    for (uint64_t i = 0; i <= work->n_keys; i++)
        offsets[i] = i;
    work->offsets = offsets;
    return EMBD_OK;
}

/* Single keys without weights are their own sums, whatever the combiner: such work is not pooled.
 */
static int shape(struct embd_call *call, struct work *work)
{
    const embd_part *part = work->part;
    bool is_erase = call->kind == PARTS_ERASE;
    bool combines = work->schema->combiner != EMBD_COMBINER_CONCAT && !part->raw && !is_erase;
    work->n_keys = (uint32_t)part->n_keys;
    work->offsets = part->offsets;
    work->n_batch_rows = part->offsets != NULL ? part->n_rows : part->n_keys;
    work->weights = combines ? part->weights : NULL;
    work->is_pooled = combines && (part->offsets != NULL || part->weights != NULL);
    work->n_rows = work->is_pooled ? (uint32_t)work->n_batch_rows : work->n_keys;
    if (work->n_rows > 0 && part->values == NULL && !is_erase)
        return embd__error_set(&call->client->error, EMBD_INVALID, "part %u: values is NULL",
                               work->index);
    return work->is_pooled && work->offsets == NULL ? identity_offsets(call, work) : EMBD_OK;
}

int embd__work_begin(struct embd_call *call, struct work *work, uint32_t index)
{
    const embd_part *part = &call->parts[index];
    *work = (struct work){.part = part, .index = index, .keys = part->keys};
    int status = check_pointers(call, part, index);
    if (status != EMBD_OK)
        return status;
    work->schema = &part->table->schema.s;
    work->dim = work->schema->dim;
    work->row_bytes = embd__wire_row_bytes(call->wire, work->dim);
    status = check_offsets(call, part, index);
    if (status == EMBD_OK)
        status = check_weights(call, part, index);
    if (status == EMBD_OK)
        status = check_lr(call, part, index);
    if (status == EMBD_OK)
        status = check_scores(call, work);
    if (status == EMBD_OK)
        status = shape(call, work);
    if (status == EMBD_OK && part->table->schema.slot_starts != NULL)
        status = add_slot_starts(call, work);
    return status;
}
