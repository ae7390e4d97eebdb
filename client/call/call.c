/* call.c - the life of a call: taken from the pool, its parts checked and split, its messages
 * submitted; then awaited, finished into the caller's arrays and put back. Calls and what they hold
 * are kept, so that a training loop allocates nothing after its first steps. */
#include "client/call/call.h"

#include <stdlib.h>
#include <string.h>

#include "client/core/clocks.h"
#include "embd/sync.h"
#include "proto/structs.h"

/* ---- the pool ---- */

static struct embd_call *take_call(embd_client *client)
{
    struct embd_call *call = client->free_calls;
    if (call != NULL) {
        client->free_calls = call->next_free;
        return call;
    }
    call = calloc(1, sizeof *call);
    if (call == NULL) {
        embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a call");
        return NULL;
    }
    call->client = client;
    call->next = client->calls;
    client->calls = call;
    return call;
}

static void give_back_call(struct embd_call *call)
{
    embd__lent_end(call);
    embd__arena_reset(&call->arena);
    call->is_started = false;
    call->next_free = call->client->free_calls;
    call->client->free_calls = call;
}

void embd__calls_fini(struct embd_client *client)
{
    while (client->calls != NULL) {
        struct embd_call *call = client->calls;
        client->calls = call->next;
        embd__messages_fini(call);
        embd__arena_fini(&call->arena);
        free(call);
    }
}

/* ---- start ---- */

/* The push of a worker to a round. */
static int take_round(struct embd_call *call, const embd_clock *clock, uint64_t value)
{
    if (call->kind != PARTS_PUSH)
        return embd__error_set(&call->client->error, EMBD_INVALID,
                               "this call has a round; only a push may have one");
    return embd__clock_take_round(call->client, clock, value, &call->extra.round, &call->member);
}

static int take_options(struct embd_call *call, const embd_call_options *options)
{
    embd_call_options own = {0};
    const embd_call_options *o = &own;
    struct embd__error *e = &call->client->error;
    if (options != NULL && embd__take(embd_call_options, &own, options, e) != EMBD_OK)
        return e->status;
    if ((unsigned)o->wire >= PART_DTYPES)
        return embd__error_set(e, EMBD_INVALID,
                               "unknown wire dtype %d; expected f32, f16, bf16, i8 or i4",
                               (int)o->wire);
    if ((unsigned)o->plan > EMBD_PLAN_ROWS)
        return embd__error_set(e, EMBD_INVALID, "unknown plan %d; expected auto, pooled or rows",
                               (int)o->plan);
    call->deadline_ms = o->deadline_ms;
    call->wire = call->kind == PARTS_ERASE ? EMBD_DTYPE_F32 : o->wire; /* an erase has no values */
    call->plan = o->plan;
    call->zero_missing = o->zero_missing;
    call->extra.round.n_workers = 0;
    call->extra.number.sequence = 0;
    call->own = NULL;
    call->opening_ns = 0;
    call->is_noted = false;
    call->wants_number = call->kind == PARTS_PUSH && o->round == NULL && o->pusher == NULL &&
                         !call->client->options.unnumbered;
    if (o->round != NULL && take_round(call, o->round, o->round_clock) != EMBD_OK)
        return e->status;
    return o->pusher != NULL ? embd__numbered_take(call, o->pusher, o->sequence) : EMBD_OK;
}

/* The caller's parts lie as far apart as the first one is long. */
static int copy_parts(struct embd_call *call, const embd_part *parts)
{
    const char *part = (const char *)parts;
    struct embd__error why = {0};
    for (uint32_t i = 0; i < call->n_works; i++) {
        call->parts[i] = (embd_part){0};
        if (embd__take(embd_part, &call->parts[i], part, &why) != EMBD_OK)
            return embd__error_set(&call->client->error, why.status, "part %u: %s", i, why.text);
        if (((const embd_part *)part)->struct_bytes != parts->struct_bytes)
            return embd__error_set(&call->client->error, EMBD_INVALID,
                                   "part %u: struct_bytes is %u, that of part 0 is %u", i,
                                   ((const embd_part *)part)->struct_bytes, parts->struct_bytes);
        part += parts->struct_bytes;
    }
    return EMBD_OK;
}

static int take_parts(struct embd_call *call, const embd_part *parts, size_t n_parts)
{
    if (n_parts > UINT16_MAX)
        return embd__error_set(&call->client->error, EMBD_TOO_LARGE,
                               "%zu parts in a call; the limit is %u", n_parts, UINT16_MAX);
    call->n_works = (uint32_t)n_parts;
    call->parts = embd__arena_array(&call->arena, n_parts, sizeof *call->parts);
    call->works = embd__arena_array(&call->arena, n_parts, sizeof *call->works);
    if (call->parts == NULL || call->works == NULL)
        return embd__call_no_memory(call);
    return copy_parts(call, parts);
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
        if (!embd__link_takes_packed(client->shards[s].link))
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

static int prepare(struct embd_call *call)
{
    int status = embd__is_packed(call->wire) ? check_wire(call) : EMBD_OK;
    for (uint32_t i = 0; i < call->n_works && status == EMBD_OK; i++)
        status = embd__work_begin(call, &call->works[i], i);
    if (status == EMBD_OK && call->kind == PARTS_PUSH)
        status = check_tables_differ(call);
    for (uint32_t i = 0; i < call->n_works && status == EMBD_OK; i++)
        status = prepare_part(call, &call->works[i]);
    if (status == EMBD_OK && call->extra.number.sequence > 0)
        status = embd__numbered_open(call);
    if (status == EMBD_OK && call->wants_number && call->n_works > 0)
        status = embd__numbering_begin(call);
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
    return bytes / call->client->n_shards >= HOLD_BYTES && !call->client->io.has_thread &&
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

static void submit(struct embd_call *call)
{
    bool holds = sends_keys_first(call);
    if (call->kind == PARTS_PUSH)
        embd__push_begin(call);
    call->job.exchanges = call->exchanges;
    call->job.n = call->n_messages;
    if (call->own != NULL)
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

static int start(embd_client *client, const embd_part *parts, size_t n_parts,
                 const embd_call_options *options, enum parts_kind kind, embd_call **call_out)
{
    client->error = (struct embd__error){0};
    struct embd_call *call = take_call(client);
    if (call == NULL)
        return embd__error_keep(&client->error, client->error.status);
    call->kind = kind;
    call->n_messages = call->n_openings = 0;
    embd__lent_begin(call);
    int status = take_options(call, options);
    if (status == EMBD_OK)
        status = take_parts(call, parts, n_parts);
    if (status == EMBD_OK)
        status = prepare(call);
    if (status != EMBD_OK) {
        if (call->n_openings > 0)
            embd__numbered_end(call, false);
        give_back_call(call);
        return embd__error_keep(&client->error, status);
    }
    call->is_started = true;
    submit(call);
    *call_out = call;
    return EMBD_OK;
}

int embd_pull_start(embd_client *client, const embd_part *parts, size_t n_parts,
                    const embd_call_options *options, embd_call **call_out)
{
    return start(client, parts, n_parts, options, PARTS_PULL, call_out);
}

int embd_push_start(embd_client *client, const embd_part *parts, size_t n_parts,
                    const embd_call_options *options, embd_call **call_out)
{
    return start(client, parts, n_parts, options, PARTS_PUSH, call_out);
}

/* ---- end ---- */

/* An answer may be an error, or differ from what was requested. */
static bool has_failed(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->exchanges[i]->error.status != EMBD_OK)
            return true;
    return false;
}

static int finish(struct embd_call *call)
{
    int status = EMBD_OK;
    for (uint32_t i = 0; i < call->n_works && status == EMBD_OK; i++) {
        struct work *work = &call->works[i];
        if (work->part->statuses != NULL)
            embd__scatter_statuses(call, work);
        if (call->kind == PARTS_PULL)
            status = embd__pull_finish(call, work);
    }
    return status;
}

int embd_wait(embd_call *call)
{
    embd_client *client = call->client;
    embd__io_await(&client->io, &call->job);
    client->error = (struct embd__error){0};
    if (call->n_openings > 0)
        embd__numbered_end(call, true);
    bool failed = has_failed(call);
    if (failed && call->own != NULL)
        embd__numbering_failed(call);
    int status = failed ? embd__call_outcome(call) : finish(call);
    if (status != EMBD_OK && call->kind == PARTS_PUSH && call->extra.round.n_workers > 0)
        embd__member_push_failed(client, &call->extra.round);
    give_back_call(call);
    return embd__error_keep(&client->error, status);
}

bool embd_is_done(embd_call *call)
{
    return embd__io_poll(&call->client->io, &call->job);
}

int embd_pull(embd_client *client, const embd_part *parts, size_t n_parts,
              const embd_call_options *options)
{
    embd_call *call;
    int status = embd_pull_start(client, parts, n_parts, options, &call);
    return status == EMBD_OK ? embd_wait(call) : status;
}

int embd_push(embd_client *client, const embd_part *parts, size_t n_parts,
              const embd_call_options *options)
{
    embd_call *call;
    int status = embd_push_start(client, parts, n_parts, options, &call);
    return status == EMBD_OK ? embd_wait(call) : status;
}

int embd_erase(embd_client *client, const embd_part *parts, size_t n_parts,
               const embd_call_options *options)
{
    embd_call *call;
    int status = start(client, parts, n_parts, options, PARTS_ERASE, &call);
    return status == EMBD_OK ? embd_wait(call) : status;
}
