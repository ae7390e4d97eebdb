/* queue.c - the queue of a store's calls. A call goes from waiting to enqueued to ended; one that
 * may create rows stops in between until its plan is there. cuda_collect moves calls on and calls
 * the done of those that have ended. */
#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/kernels/batch_push.h"

#include <string.h>

/* Calls under way from which on small pulls gather for one launch: one that runs, one behind it. */
#define UNDER_WAY 2u

/* ---- from waiting to ended ---- */

static void end(struct call *call, int status)
{
    call->status = status;
    call->state = CALL_ENDED;
}

static void fail(struct call *call, int device_status, const char *what)
{
    end(call, cuda_error(call->store, device_status, what, &call->done->error));
}

static void set_counts(struct call *call)
{
    uint32_t n_filtered = call->report ? call->report->n_filtered : 0;
    if (call->kind == CALL_PUSH) {
        call->push->n_inserted = call->n_inserted;
        call->push->n_full = call->n_full;
        call->push->n_filtered = n_filtered;
        call->push->n_evicted = call->n_evicted;
    } else if (call->kind == CALL_INSERT) {
        call->insert->n_inserted = call->n_inserted;
        call->insert->n_full = call->n_full;
        call->insert->n_filtered = n_filtered;
        call->insert->n_evicted = call->n_evicted;
    }
}

/* This call and those that went with it. */
static void fail_batch(struct call *call, int device_status, const char *what)
{
    for (uint32_t n = call->n_batched ? call->n_batched : 1; n > 0; n--, call = call->next)
        fail(call, device_status, what);
}

/* The device is done with it: hand over what it made. */
static void finish(struct call *call)
{
    if (call->statuses_out && call->in.n)
        memcpy(call->statuses_out, call->statuses, call->in.n);
    if (call->values_out && call->values_bytes)
        memcpy(call->values_out, call->values, call->values_bytes);
    set_counts(call);
    end(call, EMBD_OK);
}

static void record(struct call *call, enum call_state state)
{
    int status = device_flag_raise(call->flag, call->store->stream);
    call->state = state;
    if (status != 0)
        fail_batch(call, status, "telling the end of a call");
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
    else
        record(call, call->kind == CALL_PULL ? CALL_ENQUEUED : CALL_PLANNED);
    if (call->state == CALL_PLANNED)
        push_presort(call);
}

static void commit(struct call *call)
{
    bool again = false;
    int status = evict_others(call, &again, &call->done->error);
    if (status == EMBD_OK && !again)
        status = push_commit(call, &call->done->error);
    if (status == EMBD_OK && !again && call->kind == CALL_PUSH) {
        call->is_untold = true;
        call->store->n_untold++;
    }
    if (status != EMBD_OK)
        end(call, status);
    else
        record(call, again ? CALL_PLANNED : CALL_ENQUEUED);
}

/* This push and those right behind it, as far as they can; or it alone, in the longer way. */
static void start_pushes(struct call *first)
{
    struct call *calls[BATCH_PUSHES_MAX];
    uint32_t n = batch_push_choose(first, calls);
    int status = n > 0 ? batch_push_start(calls, n) : DEVICE_NO_MEMORY;
    if (status == DEVICE_NO_MEMORY) {
        first->can_batch = false;
        start(first);
        return;
    }
    first->n_batched = n;
    for (uint32_t i = 0; i < n; i++) {
        calls[i]->done->error.status = EMBD_OK;
        calls[i]->state = CALL_PLANNED;
        calls[i]->is_follower = i > 0;
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
        call->is_follower = false;
        call->can_batch = false;
        call->n_batched = 0;
        if (is_done)
            finish(call);
        else
            call->state = CALL_WAITING;
    }
}

/* This pull and those right behind it, as far as they can. */
static void start_together(struct call *first)
{
    struct call *calls[GATHER_MOST];
    uint32_t n = 0;
    int status = 0;
    for (struct call *call = first;
         call != NULL && call->kind == CALL_PULL && call->can_batch && n < GATHER_MOST;
         call = call->next)
        calls[n++] = call;
    if (n == 1 || first->store->failed) {
        start(first);
        return;
    }
    status = pull_start_together(calls, n);
    for (uint32_t i = 0; i < n; i++) {
        calls[i]->done->error.status = EMBD_OK;
        calls[i]->is_follower = i > 0;
        if (status != 0)
            fail(calls[i], status, "starting calls");
        else
            record(calls[i], CALL_ENQUEUED);
    }
}

/* Starts what waits, as far as no plan is in the way. */
static void start_ready(struct store *store)
{
    uint32_t n_under_way = 0;
    for (struct call *call = store->first; call != NULL; call = call->next) {
        bool is_pull = call->kind == CALL_PULL;
        if (call->state == CALL_WAITING && call->can_batch && is_pull && n_under_way >= UNDER_WAY)
            return;
        if (call->state == CALL_WAITING && call->can_batch && is_pull)
            start_together(call);
        else if (call->state == CALL_WAITING && call->can_batch)
            start_pushes(call);
        else if (call->state == CALL_WAITING)
            start(call);
        if (call->state == CALL_PLANNED)
            return;
        n_under_way += call->state == CALL_ENQUEUED && !call->is_follower;
    }
}

/* Moves a call on that everything before it has ended for. False: the device is not there yet. */
static bool advance(struct call *call)
{
    int error = 0;
    if (call->state == CALL_ENDED)
        return true;
    if (device_flag_query(call->flag, &error) == DEVICE_PENDING)
        return false;
    if (error != 0)
        fail_batch(call, error, "running a call");
    else if (call->n_batched > 0)
        end_pushes(call);
    else if (call->state == CALL_PLANNED)
        commit(call);
    else
        finish(call);
    start_ready(call->store);
    return true;
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
    store->n_untold -= call->is_untold;
}

/* Its done may make new calls. */
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

void cuda_forget(struct store *store, struct store_done *done)
{
    cuda_wait_all(store);
    for (struct call *call = store->first; call != NULL; call = call->next)
        if (call->done == done) {
            unlink_call(store, call);
            call_free(call);
            return;
        }
}

void cuda_submit(struct store *store, enum call_kind kind, void *request, struct store_done *done)
{
    struct call *call = NULL;
    int status = device_use(store->device);
    if (status == 0)
        call = call_new(store);
    if (call == NULL) {
        done->error.status = EMBD_OK;
        done->fn(done,
                 cuda_error(store, status ? status : DEVICE_NO_MEMORY, "for a call", &done->error));
        return;
    }
    call->kind = kind;
    call->done = done;
    if (kind == CALL_PULL)
        call->pull = request;
    else if (kind == CALL_PUSH)
        call->push = request;
    else
        call->insert = request;
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
    if (kind == CALL_PULL && call->pull->now) {
        cuda_wait_all(store);
        call_done(call);
    }
}
