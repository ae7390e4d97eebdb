/* call.c - the queue of a store's calls. A call goes from waiting to enqueued to ended; one that
 * may create rows stops in between until its plan is there. cuda_collect moves calls on and calls
 * the done of those that have ended. */
#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES                                                                                \
    ((uint64_t)64 << 10) /* inputs that are cheaper to copy here than to send one by one */
#define ALIGNMENT 256u
/* Calls under way from which on small pulls gather for one launch: one that runs, one behind it. */
#define UNDER_WAY 2u

void *arena_take(struct arena *arena, uint64_t bytes)
{
    uint64_t at = arena->bytes;
    arena->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return arena->base ? arena->base + at : NULL;
}

int cuda_error(struct store *store, int device_status, const char *what, struct embd__error *e)
{
    const char *name = store->schema->s.name;
    if (device_status == DEVICE_NO_MEMORY)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no device memory %s", name, what);
    if (!store->failed)
        snprintf(store->why, sizeof store->why, "table %s: the device failed %s: %s", name, what,
                 device_text(device_status));
    store->failed = true;
    return embd__error_set(e, EMBD_INTERNAL, "%s", store->why);
}

/* ---- a call's memory ---- */

struct call *call_new(struct store *store)
{
    struct call *call = store->spare;
    if (call != NULL) {
        store->spare = call->next;
    } else {
        call = calloc(1, sizeof *call);
        if (call == NULL || device_flag_new(&call->flag) != 0) {
            free(call);
            return NULL;
        }
    }
    struct device_flag *flag = call->flag;
    *call = (struct call){.store = store, .flag = flag};
    return call;
}

void call_free(struct call *call)
{
    struct store *store = call->store;
    buffer_free(call->staging, call->staging_bytes);
    device_free(call->scratch, store->stream);
    device_free(call->second, store->stream);
    call->staging = NULL;
    call->scratch = call->second = NULL;
    call->next = store->spare;
    store->spare = call;
}

/* ---- inputs ---- */

void call_set_input(struct call *call, int which, const void *from, uint64_t bytes)
{
    call->inputs[which] = (struct input){.from = from, .bytes = bytes};
}

/* What is in device memory needs no room; what is pinned is sent from where it is, unless it is
 * little. */
void call_lay_out_inputs(struct call *call)
{
    struct arena block = {.base = NULL}, staging = {.base = NULL};
    uint64_t bytes = 0;
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        input->kind = input->from ? memory_kind(input->from) : MEMORY_DEVICE;
        bytes += input->kind != MEMORY_DEVICE ? input->bytes : 0;
    }
    call->is_small = bytes <= SMALL_BYTES;
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        input->at = block.bytes;
        input->staged_at = staging.bytes;
        if (input->kind != MEMORY_DEVICE)
            arena_take(&block, input->bytes);
        if (input->kind == MEMORY_HOST || (input->kind == MEMORY_PINNED && call->is_small))
            arena_take(&staging, input->bytes);
    }
    call->in_bytes = block.bytes;
    call->staged_bytes = staging.bytes;
}

void call_set_keys(struct call *call, const struct store_keys *in, uint32_t first, uint32_t n_rows)
{
    uint32_t begin = in->offsets ? in->offsets[first] : first;
    uint32_t end = in->offsets ? in->offsets[first + n_rows] : first + n_rows;
    uint64_t n = end - begin;
    call->in.n = end - begin;
    call->in.n_rows = n_rows;
    call->in.first = begin;
    call_set_input(call, IN_KEYS, in->keys + begin, n * sizeof *in->keys);
    if (in->offsets)
        call_set_input(call, IN_OFFSETS, in->offsets + first,
                       (n_rows + 1ull) * sizeof *in->offsets);
    if (in->slots)
        call_set_input(call, IN_SLOTS, in->slots + first, (uint64_t)n_rows * sizeof *in->slots);
    if (in->weights)
        call_set_input(call, IN_WEIGHTS, in->weights + begin, n * sizeof *in->weights);
}

static void set_view(struct call *call)
{
    call->in.keys = call->inputs[IN_KEYS].on_device;
    call->in.offsets = call->inputs[IN_OFFSETS].on_device;
    call->in.slots = call->inputs[IN_SLOTS].on_device;
    call->in.weights = call->inputs[IN_WEIGHTS].on_device;
}

static void stage(const struct call *call, const struct input *input)
{
    if (input->bytes)
        memcpy(call->staging + input->staged_at, input->from, input->bytes);
}

/* Read by the kernel, once, from the host's memory. */
static int leave_in_place(struct call *call)
{
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        if (input->kind == MEMORY_HOST)
            stage(call, input);
        input->on_device =
            input->kind == MEMORY_HOST ? call->staging + input->staged_at : input->from;
    }
    return 0;
}

/* Few bytes: gathered here, then sent as one. */
static int upload_together(struct call *call, uint8_t *block)
{
    for (int i = 0; i < IN_COUNT; i++) {
        struct input *input = &call->inputs[i];
        if (input->kind != MEMORY_DEVICE)
            stage(call, input);
        input->on_device = input->kind == MEMORY_DEVICE ? input->from : block + input->at;
    }
    return device_copy(block, call->staging, call->in_bytes, call->store->stream);
}

static int upload_one(struct call *call, struct input *input, uint8_t *block)
{
    input->on_device = input->kind == MEMORY_DEVICE ? input->from : block + input->at;
    if (input->kind == MEMORY_DEVICE)
        return 0;
    if (input->kind == MEMORY_HOST)
        stage(call, input);
    const void *from = input->kind == MEMORY_HOST ? call->staging + input->staged_at : input->from;
    return device_copy(block + input->at, from, input->bytes, call->store->stream);
}

int call_upload(struct call *call, uint8_t *block, bool is_in_place)
{
    int status = 0;
    if (is_in_place)
        status = leave_in_place(call);
    else if (call->is_small)
        status = upload_together(call, block);
    else
        for (int i = 0; i < IN_COUNT && status == 0; i++)
            status = upload_one(call, &call->inputs[i], block);
    set_view(call);
    return status;
}

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
static void fail_joined(struct call *call, int device_status, const char *what)
{
    for (uint32_t n = call->n_joined ? call->n_joined : 1; n > 0; n--, call = call->next)
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
        fail_joined(call, status, "telling the end of a call");
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
    struct call *calls[JOIN_MOST];
    uint32_t n = join_choose(first, calls);
    int status = n > 0 ? join_start(calls, n) : DEVICE_NO_MEMORY;
    if (status == DEVICE_NO_MEMORY) {
        first->can_join = false;
        start(first);
        return;
    }
    first->n_joined = n;
    for (uint32_t i = 0; i < n; i++) {
        calls[i]->done->error.status = EMBD_OK;
        calls[i]->state = CALL_PLANNED;
        calls[i]->has_joined = i > 0;
    }
    if (status != 0)
        fail_joined(first, status, "starting calls");
    else
        record(first, CALL_PLANNED);
}

static void end_pushes(struct call *first)
{
    struct call *call = first;
    bool is_done = join_end(first);
    for (uint32_t n = first->n_joined; n > 0; n--, call = call->next) {
        call->has_joined = false;
        call->can_join = false;
        call->n_joined = 0;
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
         call != NULL && call->kind == CALL_PULL && call->can_join && n < GATHER_MOST;
         call = call->next)
        calls[n++] = call;
    if (n == 1 || first->store->failed) {
        start(first);
        return;
    }
    status = pull_start_together(calls, n);
    for (uint32_t i = 0; i < n; i++) {
        calls[i]->done->error.status = EMBD_OK;
        calls[i]->has_joined = i > 0;
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
        if (call->state == CALL_WAITING && call->can_join && is_pull && n_under_way >= UNDER_WAY)
            return;
        if (call->state == CALL_WAITING && call->can_join && is_pull)
            start_together(call);
        else if (call->state == CALL_WAITING && call->can_join)
            start_pushes(call);
        else if (call->state == CALL_WAITING)
            start(call);
        if (call->state == CALL_PLANNED)
            return;
        n_under_way += call->state == CALL_ENQUEUED && !call->has_joined;
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
        fail_joined(call, error, "running a call");
    else if (call->n_joined > 0)
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

void call_wait_all(struct store *store)
{
    device_use(store->device);
    for (struct call *call = store->first; call != NULL; call = call->next)
        while (call->state != CALL_ENDED) {
            int status = device_stream_wait(store->stream);
            if (status != 0)
                fail_joined(call, status, "running a call");
            else
                advance(call);
        }
}

void cuda_forget(struct store *store, struct store_done *done)
{
    call_wait_all(store);
    for (struct call *call = store->first; call != NULL; call = call->next)
        if (call->done == done) {
            unlink_call(store, call);
            call_free(call);
            return;
        }
}

void call_submit(struct store *store, enum call_kind kind, void *request, struct store_done *done)
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
        join_prepare(call);
    start_ready(store);
    if (kind == CALL_PULL && call->pull->now) {
        call_wait_all(store);
        call_done(call);
    }
}
