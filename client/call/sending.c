/* sending.c - a call whose parts were taken: they are checked and become work, are split, numbered,
 * put into messages and submitted. After the checks nothing looks at the arguments with suspicion;
 * every error names the part, the position and the value. */
#include <math.h>

#include "client/call/call.h"
#include "proto/packed.h"

/* ---- checks ---- */

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

static int begin_work(struct embd_call *call, struct work *work, uint32_t index)
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

/* A push steps a table once, so its gradients must arrive together. */
static int check_tables_differ(struct embd_call *call)
{
    uint64_t look = ++call->client->n_looks;
    for (uint32_t i = 0; i < call->n_works; i++) {
        embd_table *table = call->parts[i].table;
        if (table->look == look)
            return embd__error_set(
                &call->client->error, EMBD_INVALID,
                "parts %u and %u push to the same table %s; one part must hold the table's "
                "whole batch",
                table->look_at, i, call->works[i].schema->name);
        table->look = look;
        table->look_at = i;
    }
    return EMBD_OK;
}

/* ---- preparing ---- */

/* The server counts how often a push names each key. */
static bool counts_occurrences(const embd_schema *s)
{
    return s->on_full == EMBD_ON_FULL_EVICT_LFU && s->lfu_occurrences;
}

/* Whether each distinct key goes once. The server takes the largest of a key's scores. */
static bool goes_by_rows(struct embd_call *call, const struct work *work)
{
    if (call->kind == PARTS_ERASE || work->scores != NULL ||
        (call->kind == PARTS_PUSH && counts_occurrences(work->schema)))
        return false;
    if (call->plan != EMBD_PLAN_AUTO)
        return call->plan == EMBD_PLAN_ROWS;
    return work->n_keys >= PLAN_FEW_KEYS && embd__plan_is_rows(call, work);
}

static int (*const prepare_work[])(struct embd_call *call, struct work *work) = {
    [PARTS_PULL] = embd__pull_prepare,
    [PARTS_PUSH] = embd__push_prepare,
    [PARTS_ERASE] = embd__split,
};

static int prepare_part(struct embd_call *call, struct work *work)
{
    work->by_rows = goes_by_rows(call, work);
    int status = prepare_work[call->kind](call, work);
    if (status == EMBD_OK && work->by_rows)
        embd__plan_note(work, work->n_distinct);
    if (status == EMBD_OK && work->part->statuses != NULL)
        status = embd__place_statuses(call, work);
    return status;
}

/* With i8 or i4 on the wire. Before anything is sent: no shard has a push then that another one
 * refuses. */
static int check_wire(struct embd_call *call)
{
    embd_client *client = call->client;
    for (uint32_t s = 0; s < client->n_shards; s++)
        if (!embd__link_terms(client->shards[s].link)->takes_packed)
            return embd__error_set(&client->error, EMBD_INVALID,
                                   "wire is %s, which the server at %s does not take; use f32, f16 "
                                   "or bf16, or update the server",
                                   embd_dtype_name(call->wire),
                                   embd__link_address(client->shards[s].link));
    bool has_id = (client->numbering.pusher.high | client->numbering.pusher.low) != 0;
    if (call->kind == PARTS_PUSH && !has_id && embd_pusher_new(&client->numbering.pusher))
        return embd__error_set(&client->error, EMBD_IO, "the system has no random numbers");
    return EMBD_OK;
}

static int split_and_number(struct embd_call *call)
{
    bool is_first = call->again == NULL, grows = call->n_shards < call->client->n_shards;
    call->placement = embd__placement_told(call->client);
    call->n_shards = call->client->n_shards;
    int status = embd__is_packed(call->wire) ? check_wire(call) : EMBD_OK;
    for (uint32_t i = 0; i < call->n_works && status == EMBD_OK; i++)
        status = begin_work(call, &call->works[i], i);
    if (status == EMBD_OK && call->kind == PARTS_PUSH)
        status = check_tables_differ(call);
    for (uint32_t i = 0; i < call->n_works && status == EMBD_OK; i++)
        status = prepare_part(call, &call->works[i]);
    if (status == EMBD_OK && call->extra.number.sequence > 0 &&
        (is_first || (grows && call->own == NULL)))
        status = embd__numbered_open(call);
    if (status == EMBD_OK && call->wants_number && call->n_works > 0 && is_first)
        status = embd__numbering_begin(call);
    return status;
}

/* Once more without a shard that has left, where a stream was to be opened. */
int embd__call_prepare(struct embd_call *call)
{
    int status = split_and_number(call);
    while (status == EMBD_MOVED && embd__client_has_shrunk(call->client))
        status = split_and_number(call);
    return status == EMBD_OK ? embd__messages_build(call) : status;
}

/* ---- sending ---- */

#define HOLD_BYTES (256u << 10) /* of gradients a shard; with fewer a system call is worth more */

static void fill(struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_works; i++)
        if (call->kind == PARTS_PUSH)
            embd__push_fill(call, &call->works[i]);
}

/* A server takes gradients that it shares as soon as it reads where they are. */
static bool names_shared(const struct embd_call *call)
{
    for (uint32_t i = call->n_openings; i < call->n_messages; i++)
        if (call->messages[i]->x.is_shared)
            return true;
    return false;
}

/* Whether to send keys before the gradients are made. With an I/O thread of the library's own the
 * caller would have to wait for it. */
static bool sends_keys_first(const struct embd_call *call)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < call->n_works; i++)
        if (call->kind == PARTS_PUSH && call->works[i].is_unfilled)
            bytes += (call->works[i].by_rows ? call->works[i].n_distinct : call->works[i].n_keys) *
                     call->works[i].row_bytes;
    return bytes / call->n_shards >= HOLD_BYTES && !call->client->io.has_thread &&
           !names_shared(call);
}

/* The pieces up to the header of gradients: the first part's, or in columns those of all. */
static uint32_t pieces_before_grads(const struct embd_call *call, const struct message *message)
{
    if (message->has_columns)
        return embd__msg_pieces_before_last(&message->x.msg);
    const struct work *work = &call->works[message->slices[0].work];
    const struct share *share = &work->shares[message->shard];
    uint32_t bins = 1u + (share->offsets != NULL) + (share->slots != NULL) +
                    (share->weights != NULL) + (share->scores != NULL);
    return 2 * bins + 1;
}

/* Holds back the gradients of a push, and what comes behind them. */
static void hold_gradients(struct embd_call *call)
{
    for (uint32_t i = call->n_openings; i < call->n_messages; i++)
        call->messages[i]->x.held = pieces_before_grads(call, call->messages[i]);
}

static void release_gradients(struct embd_call *call)
{
    for (uint32_t i = call->n_openings; i < call->n_messages; i++)
        embd__link_release(&call->messages[i]->x);
}

void embd__call_submit(struct embd_call *call)
{
    bool holds = sends_keys_first(call), is_first = call->again == NULL;
    if (call->kind == PARTS_PUSH && is_first)
        embd__push_begin(call);
    call->job.exchanges = call->exchanges;
    call->job.n = call->n_messages;
    if (call->own != NULL && is_first)
        embd__numbering_sent(call);
    if (holds)
        hold_gradients(call);
    else
        fill(call);
    embd__io_submit(&call->client->io, &call->job);
    if (!holds)
        return;
    fill(call);
    release_gradients(call);
}
