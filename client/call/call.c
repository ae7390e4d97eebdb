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

void embd__calls_init(struct embd_client *client)
{
    embd__pool_init(&client->messages, sizeof(struct message));
    client->known = calloc(KNOWN_ANSWERS, sizeof *client->known);
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
    embd__pool_fini(&client->messages);
    free(client->known);
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
    call->again = NULL;
    call->again_status = EMBD_OK;
    bool has_replicas = call->kind == PARTS_PULL && call->client->replicas.n > 0;
    call->replica = has_replicas ? embd__replicas_choose(call->client) : 0;
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
        status = embd__call_prepare(call);
    if (status != EMBD_OK) {
        if (call->n_openings > 0)
            embd__numbered_end(call, false);
        give_back_call(call);
        return embd__error_keep(&client->error, status);
    }
    call->is_started = true;
    call->started = ++client->n_started;
    embd__call_submit(call);
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
    if (call->replica > 0)
        embd__call_leave_replica(call);
    if (has_failed(call)) {
        embd__call_follow(call);
        embd__call_forgive_left(call);
    }
    bool failed = has_failed(call);
    if (failed && call->own != NULL)
        embd__numbering_failed(call);
    int status = call->again_status != EMBD_OK ? call->again_status
                 : failed                      ? embd__call_outcome(call)
                                               : finish(call);
    if (failed)
        embd__call_part(call);
    if (status != EMBD_OK && call->kind == PARTS_PUSH && call->extra.round.n_workers > 0)
        embd__member_push_failed(client, &call->extra.round);
    give_back_call(call);
    return status == EMBD_OK ? EMBD_OK : embd__error_keep(&client->error, status);
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
