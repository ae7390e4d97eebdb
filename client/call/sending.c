/* sending.c - a call whose parts were taken: they are checked and split, numbered, put into
 * messages and submitted; once more where all shards refused it for their newer map of keys. */
#include "client/call/call.h"

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
        status = embd__work_begin(call, &call->works[i], i);
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

/* ---- again ---- */

/* The numbers that its messages have, and those of shards that it had none for; and their deadline.
 */
static int keep_numbers(struct embd_call *call, uint64_t *deadline_ns_out)
{
    uint32_t n = call->client->n_shards;
    call->again = embd__arena_array(&call->arena, n, sizeof *call->again);
    if (call->again == NULL)
        return EMBD_NO_MEMORY;
    for (uint32_t s = 0; s < n; s++)
        call->again[s] = s >= call->n_shards && call->own != NULL
                             ? embd__numbering_take(&call->client->numbering, &call->own[s])
                             : call->extra.number;
    for (uint32_t i = call->n_openings; i < call->n_messages && call->own != NULL; i++) {
        const struct message *message = call->messages[i];
        if (message->shard >= n)
            continue; /* it has left */
        call->again[message->shard].stream = message->stream;
        call->again[message->shard].sequence = message->sequence;
    }
    *deadline_ns_out = call->messages[call->n_openings]->x.deadline_ns;
    return EMBD_OK;
}

static void send_again(struct embd_call *call, uint64_t deadline_ns)
{
    embd__lent_end(call);
    call->n_messages = call->n_openings = 0;
    embd__lent_begin(call);
    call->again_status = embd__call_prepare(call);
    if (call->again_status != EMBD_OK)
        return;
    for (uint32_t i = 0; i < call->n_messages; i++)
        call->messages[i]->x.deadline_ns = deadline_ns;
    embd__call_submit(call);
}

void embd__call_again(struct embd_call *call)
{
    uint64_t deadline_ns;
    call->replica = 0;
    call->again_status = keep_numbers(call, &deadline_ns);
    if (call->again_status == EMBD_OK)
        send_again(call, deadline_ns);
}

/* ---- replicas ---- */

static const struct exchange *first_failed(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->exchanges[i]->error.status != EMBD_OK)
            return call->exchanges[i];
    return NULL;
}

/* A request that the replica has refused says nothing of its health. */
static uint64_t rest_of(const struct exchange *failed)
{
    if (!embd__is_silence(failed->error.status))
        return 0;
    return failed->is_refused ? REPLICA_REST_LAG_NS : REPLICA_REST_NS;
}

void embd__call_leave_replica(struct embd_call *call)
{
    const struct exchange *failed = first_failed(call);
    if (failed == NULL)
        return;
    embd__replica_rest(call->client, call->replica, rest_of(failed));
    call->replica = 0;
    send_again(call, call->deadline_ns);
    embd__io_await(&call->client->io, &call->job);
}
