/* queue.c - the calls of a store, in the order made.
 *
 * A call goes from waiting to enqueued to ended. One that may create rows is planned in between:
 * the device counts what it creates, and calls behind it wait. A push behind one whose keys all had
 * rows is only looked up, and its step stands right behind that. cuda_collect moves calls on, and
 * calls the done of those that have ended. What can fail: memory, which fails the call and changes
 * nothing; and the device, which fails the store for good. */
#include "server/store/cuda/queue.h"
#include "server/store/cuda/batch_push.h"
#include "server/store/cuda/evict.h"
#include "server/store/cuda/pull.h"
#include "server/store/cuda/push.h"

#include <string.h>

#include "proto/assert.h"

/* With this many calls under way, small pulls wait for one launch: one call runs, one is behind it.
 */
#define UNDER_WAY 2u

/* ---- from waiting to ended ---- */

/* The states that may follow each state, as bits. A batch that changed nothing is dissolved: its
 * calls wait again. */
static const unsigned allowed[CALL_STATES] = {
    [CALL_WAITING] =
        1u << CALL_LOOKED_UP | 1u << CALL_PLANNED | 1u << CALL_ENQUEUED | 1u << CALL_ENDED,
    [CALL_LOOKED_UP] = 1u << CALL_PLANNED | 1u << CALL_ENQUEUED | 1u << CALL_ENDED,
    [CALL_PLANNED] =
        1u << CALL_WAITING | 1u << CALL_REPLANNED | 1u << CALL_ENQUEUED | 1u << CALL_ENDED,
    [CALL_REPLANNED] = 1u << CALL_ENQUEUED | 1u << CALL_ENDED,
    [CALL_ENQUEUED] = 1u << CALL_ENDED,
    [CALL_ENDED] = 0,
};

static void move_to(struct call *call, enum call_state state)
{
    EMBD_ASSERT(allowed[call->state] & 1u << state);
    call->state = state;
}

static void end(struct call *call, int status)
{
    call->status = status;
    move_to(call, CALL_ENDED);
}

static void fail(struct call *call, int device_status, const char *what)
{
    end(call, cuda_error(call->store, device_status, what, &call->done->error));
}

static void set_counts(struct call *call)
{
    uint32_t n_filtered = call->report ? call->report->n_filtered : 0;
    if (call->kind == CALL_PULL)
        return;
    call->change->n_inserted = call->n_inserted;
    call->change->n_full = call->n_full;
    call->change->n_filtered = n_filtered;
    call->change->n_evicted = call->n_evicted;
}

/* Fails this call and the followers of its batch. */
static void fail_batch(struct call *call, int device_status, const char *what)
{
    for (uint32_t n = call->batching == CALL_BATCH_FIRST ? call->n_batched : 1; n > 0;
         n--, call = call->next)
        fail(call, device_status, what);
}

/* The device is done with the call: hands its results over. */
static void finish(struct call *call)
{
    if (call->statuses_out && call->in.n)
        memcpy(call->statuses_out, call->statuses, call->in.n);
    if (call->kind == CALL_PULL)
        pull_hand_over(call, call->values_bytes);
    set_counts(call);
    end(call, EMBD_OK);
}

static void record(struct call *call, enum call_state state)
{
    int status = device_flag_raise(call->flag, call->store->stream);
    if (call->state != state) /* set already for the first call of a batch */
        move_to(call, state);
    if (call->kind == CALL_PULL)
        call->pull->is_sure = status == 0;
    if (status != 0)
        fail_batch(call, status, "signalling the end of a call");
}

/* What the pull found is sorted behind its answer. */
static void end_pull(struct call *call)
{
    record(call, CALL_ENQUEUED);
    int status = call->state == CALL_ENQUEUED ? lookup_sort(call) : 0;
    if (status != 0)
        fail(call, status, "keeping a pull's lookup");
}

static void start(struct call *call)
{
    call->done->error.status = EMBD_OK;
    if (call->store->failed) {
        end(call, embd__error_set(&call->done->error, EMBD_INTERNAL, "%s", call->store->why));
        return;
    }
    int status = call->kind == CALL_PULL ? pull_start(call) : push_start(call);
    if (status != 0)
        fail(call, status, "starting a call");
    else if (call->kind == CALL_PULL)
        end_pull(call);
    else
        record(call, call->is_light || call->is_expected ? CALL_LOOKED_UP : CALL_PLANNED);
    if (call->state == CALL_LOOKED_UP)
        push_presort(call);
}

static void plan_again(struct call *call)
{
    int status = push_plan_again(call);
    if (status != 0)
        fail(call, status, "planning a push");
    else
        record(call, CALL_PLANNED);
}

static void commit(struct call *call)
{
    bool again = false;
    int status = push_check(call, &call->done->error);
    if (status == EMBD_OK)
        status = evict_others(call, &again, &call->done->error);
    if (status == EMBD_OK && !again)
        status = push_commit(call, &call->done->error);
    if (status == EMBD_OK && !again && call->kind == CALL_PUSH) {
        call->is_unreported = true;
        call->store->n_unreported++;
    }
    if (status != EMBD_OK)
        end(call, status);
    else if (call->is_whole)
        finish(call);
    else
        record(call, again ? CALL_REPLANNED : CALL_ENQUEUED);
}

/* Starts this push with those right behind it, as one batch, or alone. */
static void start_pushes(struct call *first)
{
    struct call *calls[BATCH_PUSHES_MAX];
    uint32_t n = batch_push_choose(first, calls);
    int status = n > 0 ? batch_push_start(calls, n) : DEVICE_NO_MEMORY;
    if (status == DEVICE_NO_MEMORY) {
        first->batching = CALL_ALONE;
        start(first);
        return;
    }
    first->n_batched = n;
    for (uint32_t i = 0; i < n; i++) {
        calls[i]->done->error.status = EMBD_OK;
        move_to(calls[i], CALL_PLANNED);
        calls[i]->batching = i > 0 ? CALL_BATCH_FOLLOWER : CALL_BATCH_FIRST;
    }
    if (status != 0)
        fail_batch(first, status, "starting calls");
    else
        record(first, CALL_PLANNED);
}

static void end_pushes(struct call *first)
{
    struct call *call = first;
    bool is_done = batch_push_end(first);
    for (uint32_t n = first->n_batched; n > 0; n--, call = call->next) {
        call->batching = CALL_ALONE;
        if (is_done)
            finish(call);
        else
            move_to(call, CALL_WAITING);
    }
}

/* Starts this pull with those right behind it, in one launch, or alone. */
static void start_together(struct call *first)
{
    struct call *calls[GATHER_MOST];
    uint32_t n = 0;
    int status = 0;
    for (struct call *call = first; call != NULL && call->kind == CALL_PULL &&
                                    call->batching == CALL_CAN_BATCH && n < GATHER_MOST;
         call = call->next)
        calls[n++] = call;
    if (n == 1 || first->store->failed) {
        start(first);
        return;
    }
    status = pull_start_together(calls, n);
    for (uint32_t i = 0; i < n; i++) {
        calls[i]->done->error.status = EMBD_OK;
        calls[i]->batching = i > 0 ? CALL_BATCH_FOLLOWER : CALL_ALONE;
        if (status != 0)
            fail(calls[i], status, "starting calls");
        else
            record(calls[i], CALL_ENQUEUED);
    }
}

static bool is_planned(const struct call *call)
{
    return call->state == CALL_LOOKED_UP || call->state == CALL_PLANNED ||
           call->state == CALL_REPLANNED;
}

/* Starts waiting calls, up to the first that waits for its report. */
static void start_ready(struct store *store)
{
    uint32_t n_under_way = 0;
    for (struct call *call = store->first; call != NULL; call = call->next) {
        bool can_batch = call->batching == CALL_CAN_BATCH;
        if (call->state == CALL_WAITING && can_batch && call->kind == CALL_PULL) {
            if (n_under_way >= UNDER_WAY)
                return;
            start_together(call);
        } else if (call->state == CALL_WAITING && can_batch) {
            start_pushes(call);
        } else if (call->state == CALL_WAITING) {
            start(call);
        }
        if (is_planned(call))
            return;
        n_under_way += call->state == CALL_ENQUEUED && call->batching != CALL_BATCH_FOLLOWER;
    }
}

/* Moves a call on. All calls before it have ended. False: the device has not reached its flag. */
static bool advance(struct call *call)
{
    int error = 0;
    if (call->state == CALL_ENDED)
        return true;
    if (device_flag_query(call->flag, &error) == DEVICE_PENDING)
        return false;
    if (error != 0)
        fail_batch(call, error, "running a call");
    else if (call->batching == CALL_BATCH_FIRST)
        end_pushes(call);
    else if (call->state == CALL_LOOKED_UP && push_needs_plan(call))
        plan_again(call);
    else if (is_planned(call))
        commit(call);
    else
        finish(call);
    start_ready(call->store);
    return true;
}

static struct store_ticket *ticket_of(const struct call *call)
{
    return call->kind == CALL_PULL ? &call->pull->ticket : &call->change->ticket;
}

static void use_up(struct store *store, struct store_ticket *ticket)
{
    store->n_promised -= ticket->n_keys;
    *ticket = (struct store_ticket){0};
}

static void unlink_call(struct store *store, struct call *call)
{
    struct call **at = &store->first, *before = NULL;
    while (*at != call) {
        before = *at;
        at = &before->next;
    }
    *at = call->next;
    if (store->last == call)
        store->last = before;
    store->n_unreported -= call->is_unreported;
    use_up(store, ticket_of(call));
}

/* Removes an ended call and calls its done, which may make new calls. */
static void call_done(struct call *call)
{
    struct store_done *done = call->done;
    int status = call->status;
    unlink_call(call->store, call);
    call_free(call);
    done->fn(done, status);
}

bool cuda_collect(struct store *store)
{
    if (store->first == NULL)
        return false;
    device_use(store->device);
    while (store->first != NULL && advance(store->first))
        if (store->first->state == CALL_ENDED)
            call_done(store->first);
    if (store->first != NULL && store->first->n_pieces > 1)
        pull_tell(store->first);
    return store->first != NULL;
}

void cuda_wait_all(struct store *store)
{
    device_use(store->device);
    for (struct call *call = store->first; call != NULL; call = call->next)
        while (call->state != CALL_ENDED) {
            int status = device_stream_wait(store->stream);
            if (status != 0)
                fail_batch(call, status, "running a call");
            else
                advance(call);
        }
}

int cuda_cancel(struct store *store, struct store_ticket *ticket)
{
    struct call *call = store->first;
    while (call != NULL && ticket_of(call) != ticket)
        call = call->next;
    if (call == NULL) {
        use_up(store, ticket);
        return EMBD_OK;
    }
    cuda_wait_all(store);
    int status = call->status;
    unlink_call(store, call);
    call_free(call);
    return status;
}

void cuda_submit(struct store *store, enum call_kind kind, void *request, struct store_done *done)
{
    struct call *call = NULL;
    int status = device_use(store->device);
    if (status == 0)
        call = call_new(store);
    if (call == NULL) {
        if (kind != CALL_PULL)
            use_up(store, &((struct store_change *)request)->ticket);
        done->error.status = EMBD_OK;
        done->fn(done,
                 cuda_error(store, status ? status : DEVICE_NO_MEMORY, "for a call", &done->error));
        return;
    }
    call->kind = kind;
    call->done = done;
    if (kind == CALL_PULL)
        call->pull = request;
    else
        call->change = request;
    if (store->last)
        store->last->next = call;
    else
        store->first = call;
    store->last = call;
    if (kind == CALL_PULL && (status = pull_prepare(call)) != 0)
        fail(call, status, "preparing a pull");
    if (kind == CALL_PUSH)
        batch_push_prepare(call);
    start_ready(store);
}
