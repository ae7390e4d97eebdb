/* deferred_store.c - see deferred_store.h. */
#include "tests/server/deferred_store.h"

#include <stdlib.h>

#define MAX_CALLS 64

struct store_ops store_deferred;

static struct call {
    struct store *store;
    struct store_pull *pull;
    struct store_change *change;
    struct store_done *done;
    bool has_run; /* and is to be told of it */
    int status;
} calls[MAX_CALLS];
static uint32_t first, last, n_cancelled;

static void keep(struct call call)
{
    if (last - first == MAX_CALLS)
        abort();
    calls[last++ % MAX_CALLS] = call;
}

static void pull_later(struct store *store, struct store_pull *pull, struct store_done *done)
{
    keep((struct call){.store = store, .pull = pull, .done = done});
}

static void apply_later(struct store *store, struct store_change *change, struct store_done *done)
{
    keep((struct call){.store = store, .change = change, .done = done});
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

static void run_call(struct call *call)
{
    struct effect effect = {.done.fn = on_effect, .call = call};
    if (call->has_run)
        return;
    if (call->pull != NULL)
        store_host.pull(call->store, call->pull, &effect.done);
    else
        store_host.apply(call->store, call->change, &effect.done);
    while (!call->has_run) /* a push of very many keys */
        store_host.collect(call->store);
}

/* As a device, which has done all that it was asked before. */
static int prepare_behind(struct store *store, struct store_change *change, enum store_prepare what,
                          struct embd__error *e)
{
    for (uint32_t i = first; i != last && what == STORE_PREPARE_OUTCOME; i++)
        if (calls[i % MAX_CALLS].store == store)
            run_call(&calls[i % MAX_CALLS]);
    return store_host.prepare(store, change, what, e);
}

static const struct store_ticket *ticket_of(const struct call *call)
{
    return call->pull != NULL ? &call->pull->ticket : &call->change->ticket;
}

/* A call under way takes effect, behind those before it. */
static int cancel(struct store *store, struct store_ticket *ticket)
{
    uint32_t at = first;
    while (at != last && ticket_of(&calls[at % MAX_CALLS]) != ticket)
        at++;
    if (at == last)
        return store_host.cancel(store, ticket);
    for (uint32_t i = first; i != at + 1; i++)
        if (calls[i % MAX_CALLS].store == store)
            run_call(&calls[i % MAX_CALLS]);
    int status = calls[at % MAX_CALLS].status;
    for (last--; at != last; at++)
        calls[at % MAX_CALLS] = calls[(at + 1) % MAX_CALLS];
    n_cancelled++;
    return status;
}

uint32_t deferred_cancelled(void)
{
    return n_cancelled;
}

void deferred_open(void)
{
    first = last = n_cancelled = 0;
    store_deferred = store_host;
    store_deferred.name = "deferred";
    store_deferred.caps = (struct store_caps){.is_async = true};
    store_deferred.pull = pull_later;
    store_deferred.prepare = prepare_behind;
    store_deferred.apply = apply_later;
    store_deferred.cancel = cancel;
}

bool deferred_fail(void)
{
    if (first == last)
        return false;
    struct store_done *done = calls[first++ % MAX_CALLS].done;
    done->fn(done, embd__error_set(&done->error, EMBD_NO_MEMORY, "no memory on the device"));
    return true;
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
