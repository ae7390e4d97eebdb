/* deferred_store.c - see deferred_store.h. */
#include "tests/server/deferred_store.h"

#include <stdlib.h>

#define MAX_CALLS 64

struct store_ops store_deferred;

static struct call {
    struct store *store;
    struct store_pull *pull;
    struct store_push *push;
    struct store_insert *insert;
    struct store_done *done;
    bool has_run; /* and is to be told of it */
    int status;
} calls[MAX_CALLS];
static uint32_t first, last;

static void keep(struct call call)
{
    if (last - first == MAX_CALLS)
        abort();
    calls[last++ % MAX_CALLS] = call;
}

static void pull_later(struct store *store, struct store_pull *pull, struct store_done *done)
{
    if (pull->now)
        store_host.pull(store, pull, done);
    else
        keep((struct call){.store = store, .pull = pull, .done = done});
}

static void push_later(struct store *store, struct store_push *push, struct store_done *done)
{
    keep((struct call){.store = store, .push = push, .done = done});
}

static void insert_later(struct store *store, struct store_insert *insert, struct store_done *done)
{
    keep((struct call){.store = store, .insert = insert, .done = done});
}

/* A call's effect, which is told later. */
struct effect {
    struct store_done done; /* first */
    struct call *call;
};

static void on_effect(struct store_done *done, int status)
{
    struct call *call = ((struct effect *)(void *)done)->call;
    call->done->error = done->error;
    call->status = status;
    call->has_run = true;
}

/* What was prepared may be another call's by now. */
static void run_call(struct call *call)
{
    struct effect effect = {.done.fn = on_effect, .call = call};
    if (call->has_run)
        return;
    if (call->pull != NULL) {
        store_host.pull(call->store, call->pull, &effect.done);
    } else if (call->push != NULL) {
        call->push->is_prepared = false;
        store_host.push(call->store, call->push, &effect.done);
    } else {
        call->insert->is_prepared = false;
        store_host.insert(call->store, call->insert, &effect.done);
    }
}

/* As a device, which has done all that it was asked before. */
static int prepare_behind(struct store *store, struct store_plan *plan, struct embd__error *e)
{
    for (uint32_t i = first; i != last; i++)
        if (calls[i % MAX_CALLS].store == store)
            run_call(&calls[i % MAX_CALLS]);
    return store_host.prepare(store, plan, e);
}

static void forget(struct store *store, struct store_done *done)
{
    (void)store;
    uint32_t n = first;
    for (uint32_t i = first; i != last; i++)
        if (calls[i % MAX_CALLS].done != done)
            calls[n++ % MAX_CALLS] = calls[i % MAX_CALLS];
    last = n;
}

void deferred_open(void)
{
    first = last = 0;
    store_deferred = store_host;
    store_deferred.name = "deferred";
    store_deferred.pull_bytes = UINT64_MAX;
    store_deferred.pull = pull_later;
    store_deferred.push = push_later;
    store_deferred.prepare = prepare_behind;
    store_deferred.insert = insert_later;
    store_deferred.forget = forget;
}

bool deferred_run(void)
{
    if (first == last)
        return false;
    struct call *call = &calls[first % MAX_CALLS];
    run_call(call);
    struct call told = *call;
    first++;
    told.done->fn(told.done, told.status);
    return true;
}
